package store_test

import (
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestLogConformance(t *testing.T) {
	t.Parallel()
	looptest.TestLog(t, func(t *testing.T) loop.Log {
		db := storetest.New(t)
		return clocked{startStore(t, db, store.Options{Queue: jobs{}}), db}
	})
}

// clocked is a log and its clock.
type clocked struct {
	*store.Store
	db *storetest.DB
}

func (c clocked) SetClock(t testing.TB, at time.Time) { c.db.SetClock(t, at) }
