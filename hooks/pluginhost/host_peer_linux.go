package pluginhost

import (
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ancestors are the process at the other end of a socket, its parent, and so on. It
// is never nil.
func ancestors(conn net.Conn) []int {
	out := []int{}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return out
	}
	file, err := socket.SyscallConn()
	if err != nil {
		return out
	}
	pid := 0
	if err := file.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	}); err != nil {
		return out
	}
	const most = 64 // who has more of them is nobody's
	for pid > 1 && len(out) < most {
		out = append(out, pid)
		pid = parent(pid)
	}
	return out
}

// parent is the parent of a process, 0 for one that is gone.
func parent(pid int) int {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// pid (name) state ppid …, and the name may hold spaces and brackets.
	fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	out, _ := strconv.Atoi(fields[1])
	return out
}
