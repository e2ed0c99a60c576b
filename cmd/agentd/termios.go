package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// muteEcho stops a terminal from showing what is typed, and returns what undoes
// that. Ctrl-C stays a signal, and what is typed stays there to be read.
func muteEcho(tty *os.File) (restore func(), err error) {
	before, err := unix.IoctlGetTermios(int(tty.Fd()), getTermios)
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	muted := *before
	muted.Lflag &^= unix.ECHO | unix.ECHONL
	if err := unix.IoctlSetTermios(int(tty.Fd()), setTermios, &muted); err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	return func() {
		// A terminal that is gone needs nothing restored.
		_ = unix.IoctlSetTermios(int(tty.Fd()), setTermios, before)
	}, nil
}

// flushInput drops what was typed and not read.
func flushInput(tty *os.File) error {
	if err := flushTTY(int(tty.Fd())); err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	return nil
}
