//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package main

import "golang.org/x/sys/unix"

const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
)

const fread = 1 // sys/fcntl.h: the input alone

func flushTTY(fd int) error { return unix.IoctlSetPointerInt(fd, unix.TIOCFLUSH, fread) }
