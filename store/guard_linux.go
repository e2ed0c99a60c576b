package store

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// limitUnacknowledged ends a connection whose peer has acknowledged nothing for
// so long.
func limitUnacknowledged(conn syscall.RawConn, limit time.Duration) error {
	var refused error
	err := conn.Control(func(fd uintptr) {
		refused = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
	})
	return errors.Join(err, refused)
}
