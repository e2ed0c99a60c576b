package storetest

import (
	"os"
	"sync"
	"testing"

	"github.com/seed-2ca4966b/agentd/proctest"
)

// The directories of servers of a test's own.
const (
	bouncerPrefix = "agentd-bouncer-"
	serverPrefix  = "agentd-server-"
)

// sweepOnce sweeps once in each process that makes some.
var sweepOnce = sync.OnceFunc(sweep)

// sweep deletes those that killed tests have left.
func sweep() {
	for _, prefix := range []string{bouncerPrefix, serverPrefix} {
		proctest.Sweep(os.TempDir(), prefix)
	}
}

// madeDir makes a directory for a server that every user can reach. It goes
// with the test, or at the latest with a later one of any package.
func madeDir(t testing.TB, prefix string) string {
	t.Helper()
	sweepOnce()
	return proctest.Dir(t, prefix)
}
