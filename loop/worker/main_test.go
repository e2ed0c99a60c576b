package worker_test

import (
	"os"
	"testing"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		os.Exit(child(url))
	}
	storetest.Main(m, storetest.RequireToolCalls)
}
