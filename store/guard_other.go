//go:build !linux

package store

import (
	"syscall"
	"time"
)

// limitUnacknowledged leaves it to the system, whose own limit is minutes.
func limitUnacknowledged(syscall.RawConn, time.Duration) error { return nil }
