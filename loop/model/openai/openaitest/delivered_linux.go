package openaitest

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// delivered waits until the other side's kernel has all that was written, which
// it keeps for its program also over a reset. There is no signal for that.
func delivered(conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return // closed
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		left := 0
		err := raw.Control(func(fd uintptr) {
			left, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) // 0 if it is closed
		})
		if err != nil || left == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return
		}
	}
}
