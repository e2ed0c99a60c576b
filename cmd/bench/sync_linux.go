package main

import (
	"os"
	"syscall"
)

// fdatasync is what Postgres calls at a commit.
func fdatasync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
