package store

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// silentSoFar reports whether nothing has come over an idle connection since it
// was last used: not its end, and not the reason for that. It does not wait, and
// takes nothing.
func silentSoFar(conn net.Conn) bool {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = over.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	var peeked error
	// Not Read, which would wait for the driver's own reader.
	err = raw.Control(func(fd uintptr) {
		_, _, peeked = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	return err == nil && peeked == unix.EAGAIN
}
