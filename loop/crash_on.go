//go:build faults

package loop

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// crash kills this process with SIGKILL if AGENTD_CRASH_AT says so:
// "point" at the first pass, "point:n" at the n-th.
func crash(p Point) {
	crashes.Lock()
	defer crashes.Unlock()
	name, nth, _ := strings.Cut(os.Getenv("AGENTD_CRASH_AT"), ":")
	if Point(name) != p {
		return
	}
	crashes.passed++
	want, err := strconv.Atoi(nth)
	if err != nil {
		want = 1
	}
	if crashes.passed == want {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way; nothing may happen after it
	}
}

var crashes struct {
	sync.Mutex
	passed int
}
