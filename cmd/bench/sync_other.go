//go:build !linux

package main

import "os"

// fdatasync is the nearest thing where there is none.
func fdatasync(f *os.File) error { return f.Sync() }
