package proc

import (
	"os/exec"
	"syscall"
)

// dieWithUs has the kernel end a process when this one is gone, kill -9
// included.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
