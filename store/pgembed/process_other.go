//go:build !linux

package pgembed

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// childAttr cannot ask for a parent-death signal here: after a kill -9 the
// postmaster stays until the next Start on its data directory stops it.
func childAttr(cred *syscall.Credential, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: cred}
}

// inspect looks at the process that a postmaster.pid names.
func inspect(pid int, dataDir string) sighting {
	if err := syscall.Kill(pid, 0); err == syscall.ESRCH {
		return sighting{state: stateGone}
	}
	out, err := exec.Command("ps", "-o", "ppid=,stat=,command=", "-p", strconv.Itoa(pid)).Output() //nolint:noctx // ps returns at once
	if err != nil {
		return sighting{state: stateUnknown}
	}
	var parent int
	var state string
	if _, err := fmt.Sscan(string(out), &parent, &state); err != nil {
		return sighting{state: stateUnknown}
	}
	if strings.HasPrefix(state, "Z") {
		return sighting{state: stateGone}
	}
	if !strings.Contains(string(out), "postgres") {
		return sighting{state: stateOther}
	}
	if !strings.Contains(string(out), dataDir) {
		return sighting{state: stateUnknown}
	}
	return sighting{state: statePostmaster, parent: parent}
}

// memoryDir knows of none here.
func memoryDir(uint64) string { return "" }
