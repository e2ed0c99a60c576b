package pgembed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// childAttr asks for death as the parent-death signal; 0 asks for none. The
// kernel forgets that wish when a process changes its user, but Go makes it
// after it changed the user, and the postgres binary is not setuid.
func childAttr(cred *syscall.Credential, death syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: cred, Pdeathsig: death}
}

// inspect looks at the process that a postmaster.pid names.
func inspect(pid int, dataDir string) sighting {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			return sighting{state: stateGone}
		}
		return sighting{state: stateUnknown}
	}
	// pid (name) state ppid …, and the name may hold spaces and brackets.
	text := string(stat)
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return sighting{state: stateUnknown}
	}
	name := text[open+1 : end]
	var state string
	var parent int
	if _, err := fmt.Sscan(text[end+1:], &state, &parent); err != nil {
		return sighting{state: stateUnknown}
	}
	if state == "Z" || state == "X" {
		// Dead, and its parent has not looked. It blocks Postgres all the same,
		// which only asks whether the number is taken.
		return sighting{state: stateGone}
	}
	if !strings.Contains(name, "postgres") && !strings.Contains(name, "postmaster") {
		return sighting{state: stateOther}
	}
	cwd, err := os.Stat(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return sighting{state: stateUnknown}
	}
	if dir, err := os.Stat(dataDir); err != nil || !os.SameFile(cwd, dir) {
		return sighting{state: stateOther}
	}
	return sighting{state: statePostmaster, parent: parent}
}

// memoryDir is a directory in memory for everybody, with at least so many bytes
// free, or "".
func memoryDir(room uint64) string {
	const dir, tmpfs = "/dev/shm", 0x01021994
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Type != tmpfs || fs.Bavail*uint64(fs.Bsize) < room {
		return ""
	}
	return dir
}
