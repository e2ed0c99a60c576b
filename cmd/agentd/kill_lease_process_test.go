package main

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestServeRefusesALeaseThatIsTooShort(t *testing.T) {
	t.Parallel()
	for _, lease := range []string{"0s", "299ms", "-1s"} {
		code, _, said := runAgentd(t, options{env: []string{"AGENTD_DATABASE_URL=postgres://127.0.0.1:1/x", "AGENTD_LEASE=" + lease}}, "serve")
		if code != exitUsage || !strings.Contains(said, "--lease: "+lease) {
			t.Errorf("%s: exit code %d, said %q", lease, code, said)
		}
	}
}

func TestServeKeepsTheLeaseThatItIsGiven(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	startServe(t, db, nil, "--roles", "worker", "--lease", "1h")
	if lease := scalar[float64](t, db, `SELECT extract(epoch FROM alive_until - heartbeat_at) FROM agentd.workers`); lease != 3600 {
		t.Errorf("the lease is %v s", lease)
	}
}
