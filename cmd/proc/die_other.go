//go:build !linux

package proc

import "os/exec"

// DieWithUs does nothing where the kernel has no such service.
func DieWithUs(*exec.Cmd) {}
