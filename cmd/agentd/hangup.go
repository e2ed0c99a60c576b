package main

import (
	"os"
	"os/signal"
	"syscall"
)

// terminalGoneCheck returns what tells, when SIGHUP arrives, whether the terminal
// that this process was started in is gone. Otherwise the signal was sent by
// somebody, as to a daemon. A process that was started with the signal ignored is
// to outlive its terminal.
func terminalGoneCheck() func() bool {
	if signal.Ignored(syscall.SIGHUP) || !hasTerminal() {
		return func() bool { return false }
	}
	return func() bool { return !hasTerminal() }
}

// hasTerminal reports whether the process has a controlling terminal.
func hasTerminal() bool {
	f, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	_ = f.Close() // nothing was written
	return true
}
