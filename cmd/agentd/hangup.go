package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

var errTerminalGone = errors.New("the terminal is gone")

// withHangups takes SIGHUP until stop is called, which is once everything else has
// ended: a process that starts or stops is not cut off by who wants its hooks
// loaded again. That is what it passes on; a signal that finds another one
// waiting adds nothing. If the signal says that the terminal is gone, which is for
// the whole process, the context ends, with errTerminalGone as its cause.
func withHangups(ctx context.Context) (_ context.Context, reloads <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	gone := terminalGoneCheck() // looks at what the signal did before
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	asked, stopped, done := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stopped:
				return
			case <-signals:
			}
			if gone() {
				cancel(errTerminalGone)
				continue
			}
			select {
			case asked <- struct{}{}:
			default:
			}
		}
	}()
	return ctx, asked, func() {
		signal.Stop(signals)
		close(stopped)
		<-done
		cancel(nil)
	}
}

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
