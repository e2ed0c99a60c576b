package store_test

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestProjectionsAreWhatTheLogFoldsTo writes logs that the transition table
// allows, cut into appends anywhere. That the rows are what the log folds to
// is compared by the database's cleanup; this test compares what Load gives.
func TestProjectionsAreWhatTheLogFoldsTo(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{CommitWindow: -1})
	if err := s.PutHookSet(limit(t), noHooks); err != nil {
		t.Fatal(err)
	}
	seen := &seenInLogs{kinds: map[event.Type]int{}}
	// Until everything was there, which it mostly is after one round; what comes
	// once in ten logs may be in none of some dozen.
	for round := 0; round == 0 || round < 10 && len(seen.missing()) > 0 && !t.Failed(); round++ {
		rapid.Check(t, func(t *rapid.T) {
			w := &walk{t: t, log: s, clock: time.Date(2026, 1, 1, 0, 0, 0, 123456000, time.UTC), id: looptest.NewID()}
			w.wander()
			w.compare()
			seen.add(w)
		})
	}
	t.Logf("events by type: %v", seen.kinds)
	for _, kind := range seen.missing() {
		t.Errorf("no log had %s", kind)
	}
}

// seenInLogs counts what was in the logs that were compared.
type seenInLogs struct {
	mu    sync.Mutex
	kinds map[event.Type]int
}

func (s *seenInLogs) add(w *walk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range w.events {
		s.kinds[e.Type]++
	}
	s.kinds["withdrawn"] += w.withdrawn
	for _, r := range w.state.Runs {
		s.kinds["retry"] += r.Retries
		for _, turn := range r.Turns {
			for _, c := range turn.Calls {
				if c.Asked == event.ApprovalOfOutcome {
					s.kinds["outcome"]++
				}
				if c.Edits > 0 {
					s.kinds["edited"]++
				}
				if c.Decision == event.DecisionExpired {
					s.kinds["expired"]++
				}
			}
		}
		if r.QueuedFor == event.QueuedNext {
			s.kinds["next"]++
		}
	}
}

// missing is what has to be in some log and was in none.
func (s *seenInLogs) missing() []event.Type {
	return slices.DeleteFunc([]event.Type{
		event.TypeSessionCreated, event.TypeSessionDeleted, event.TypeMessageCreated, event.TypeRunCreated, event.TypeRunQueued,
		event.TypeRunStarted, event.TypeRunResumed, event.TypeRunReleased, event.TypeTurnStarted, event.TypeModelRequested,
		event.TypeAssistantDelta, event.TypeAssistantDiscarded, event.TypeAssistantCompleted, event.TypeAssistantStopped,
		event.TypeToolProposed, event.TypeToolStarted, event.TypeToolExecuted, event.TypeToolResult, event.TypeTurnCompleted,
		event.TypeRunCancelRequested, event.TypeRunCompleted, event.TypeRunFailed, event.TypeRunCancelled, "from.the.future",
		event.TypeInputHandled, event.TypeInputBlocked, event.TypeInputRejected, event.TypeRunPrepared, event.TypeRunSuspended,
		event.TypeToolBlocked, event.TypeApprovalRequested, event.TypeApprovalDecided,
		event.TypeSessionUpdated, event.TypeMessagesReplaced, "retry", "outcome", "edited", "expired", "next", "withdrawn",
	}, func(kind event.Type) bool { return s.kinds[kind] > 0 })
}

// noHooks is the set of a worker that asks nobody.
var noHooks = hooks.Hooks{}.Set()

func (w *walk) compare() {
	for _, r := range w.state.Runs {
		got, err := w.log.Load(context.Background(), looptest.Tenant, w.id, r.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		want := w.state
		want.Runs = nil
		waits := func(q loop.Run) bool {
			return slices.ContainsFunc(w.state.Enqueued, func(m hooks.Message) bool { return m.ID == q.MessageID })
		}
		if !waits(r) {
			want.Runs = []loop.Run{r}
		}
		for _, q := range w.state.Runs {
			switch {
			case !waits(q):
			case q.ID == r.ID:
				want.Runs = append(want.Runs, r)
			default:
				want.Runs = append(want.Runs, loop.Run{ID: q.ID, Status: q.Status, MessageID: q.MessageID})
			}
		}
		if !reflect.DeepEqual(got, want) {
			w.t.Errorf("run %s after %v\n got %+v\nwant %+v", r.ID, looptest.Types(w.events), got, want)
		}
	}
}
