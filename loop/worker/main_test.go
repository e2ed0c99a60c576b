package worker_test

import (
	"os"
	"testing"

	"github.com/seed-2ca4966b/agentd/proctest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		proctest.DieWithParent()
		os.Exit(child(url))
	}
	storetest.Main(m, storetest.RequireToolCalls)
}
