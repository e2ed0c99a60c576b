package pluginhost

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

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
	var out []int
	for _, pid := range processes() {
		if parent(pid) == os.Getpid() {
			out = append(out, pid)
		}
	}
	return out
}

// socketsVariable is in the environment of a plugin, and of what it starts.
const socketsVariable = "PLUGIN_UNIX_SOCKET_DIR="

// killUsers kills the processes of this user whose sockets are to be in dir, or in a
// directory in it, and returns when there is none. It is for what a plugin has started
// and left to others, where its keeper, who would find it, was killed itself. Dir is
// absolute.
func killUsers(dir string) {
	if !filepath.IsAbs(dir) {
		return // everybody's would be in it
	}
	const tries = 100 // such a process may start others while it is looked for
	for range tries {
		pids := usersOf(dir)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have gone
		}
		time.Sleep(10 * time.Millisecond) // there is no signal for their ends
	}
}

func usersOf(dir string) []int {
	exact, within := []byte("\x00"+socketsVariable+dir+"\x00"), []byte("\x00"+socketsVariable+dir+"/")
	var out []int
	for _, pid := range processes() {
		// Of others' processes, and of those that are ending, it cannot be read.
		environ, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		environ = append([]byte{0}, environ...)
		if bytes.Contains(environ, exact) || bytes.Contains(environ, within) {
			out = append(out, pid)
		}
	}
	return out
}

// processes are all of the machine that this one sees.
func processes() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }() // it was only read
	names, _ := dir.Readdirnames(-1)
	var out []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			out = append(out, pid)
		}
	}
	return out
}
