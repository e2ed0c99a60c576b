package pluginhost

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// killWeight makes the kernel end a plugin before its host when there is no memory.
const killWeight = "500"

// childAttr has the kernel kill the plugin with its keeper.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adopt makes this process the parent of what its descendants leave behind. Without
// it what has left the plugin's process group stays.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// limited starts a process whose data, and that of those that it starts, is bounded.
// It is data and not address space, since Go's runtime reserves much that it does not
// use. The process has the limit from its first moment: this one has it meanwhile.
func limited(memory int64, start func() (int, error)) (int, error) {
	if memory > 0 {
		var own unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_DATA, &own); err != nil {
			return 0, err
		}
		soft := unix.Rlimit{Cur: min(uint64(memory), own.Max), Max: own.Max}
		if err := unix.Setrlimit(unix.RLIMIT_DATA, &soft); err != nil {
			return 0, err
		}
		defer unix.Setrlimit(unix.RLIMIT_DATA, &own) //nolint:errcheck // up to the maximum that it had it is allowed
	}
	pid, err := start()
	if err != nil {
		return 0, err
	}
	if memory > 0 {
		_ = unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: uint64(memory), Max: uint64(memory)}, nil) // it may have gone
	}
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(killWeight), 0o600) // only a wish
	return pid, nil
}

func dup2(from, to int) error { return unix.Dup3(from, to, 0) }

// children are the processes whose parent this one is.
func children() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }() // it was only read
	names, _ := dir.Readdirnames(-1)
	var out []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state ppid …, and the name may hold spaces and brackets.
		rest := string(stat)[strings.LastIndexByte(string(stat), ')')+1:]
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			out = append(out, pid)
		}
	}
	return out
}
