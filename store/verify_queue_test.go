package store_test

import (
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestARunThatNobodyBeginsIsStuckAndFound: only a bug makes one.
func TestARunThatNobodyBeginsIsStuckAndFound(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, runID := newSession(t, s), looptest.NewID()
	mustAppend(t, s, appendOf(id, 1, encode(t, id, runID, 0,
		event.RunCreated{Agent: "a", MessageID: looptest.NewID(), AssistantMessageID: looptest.NewID(), Policy: event.PolicyEnqueue})))
	db.ShiftClock(t, time.Minute)
	got := lines(t, db, `SELECT status, reason, why FROM agentd.stuck WHERE stuck_for > '0' AND since < agentd.clock()`)
	wantLines(t, "stuck", got, []string{"enqueued|not_promoted|it is behind no other run and nobody queued it"})

	report, err := store.Verify(limit(t), db.Pool)
	want := store.Difference{
		Table: "runs", Row: runID, Column: "status", Got: "an enqueued run and no active run", Want: "an active run, or the next one queued",
	}
	if err != nil || len(report.Differences) != 1 || report.Differences[0] != want {
		t.Errorf("verify: %v, %v; want %v", report.Differences, err, want)
	}
}
