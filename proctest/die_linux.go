package proctest

import (
	"os"

	"golang.org/x/sys/unix"
)

// DieWithParent has the kernel end this process with SIGKILL when its parent is
// gone, even while this one is stopped. It is for children of tests, and for
// test binaries that have nothing to clean up.
func DieWithParent() {
	parent := os.Getppid()
	// An error leaves things as they were: nothing depends on it but tidiness.
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	if os.Getppid() != parent {
		os.Exit(1) //nolint:revive // it went before it was watched, and this process with it
	}
}
