package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// hangupTakes is how long after its signal a terminal may still seem to be there.
const hangupTakes = time.Second

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
		passHangups(stopped, signals, gone, func() { cancel(errTerminalGone) }, asked)
	}()
	return ctx, asked, func() {
		signal.Stop(signals)
		close(stopped)
		<-done
		cancel(nil)
	}
}

// passHangups calls end if a signal says that the terminal is gone, also if that
// is seen only hangupTakes later, and otherwise passes it on.
func passHangups(stopped <-chan struct{}, signals <-chan os.Signal, gone func() bool, end func(), asked chan<- struct{}) {
	var later <-chan time.Time
	for {
		select {
		case <-stopped:
			return
		case <-later:
			if gone() {
				end()
			}
			continue
		case <-signals:
		}
		if gone() {
			end()
			continue
		}
		later = time.After(hangupTakes)
		select {
		case asked <- struct{}{}:
		default:
		}
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
