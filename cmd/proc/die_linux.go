package proc

import (
	"os/exec"
	"syscall"
)

// DieWithUs has the kernel end a process when this one is gone, kill -9
// included.
func DieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
