package store_test

import (
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestLogConformance(t *testing.T) {
	t.Parallel()
	looptest.TestLog(t, func(t *testing.T) loop.Log {
		return startStore(t, storetest.New(t), store.Options{Queue: jobs{}})
	})
}
