package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// settled waits until no transaction of the cluster, of other tests too, is open that
// began before the last emission was stored.
func settled(t *testing.T, db *storetest.DB) {
	t.Helper()
	awaitRow(t, db, `SELECT 'yes' FROM agentd.emission_order HAVING max(xid) < pg_snapshot_xmin(pg_current_snapshot())`)
}

// TestTheDocumentedConsumerCountsEachEmissionOnce: however often it is run.
func TestTheDocumentedConsumerCountsEachEmissionOnce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tellObserved(t, db)
	_, part, _ := between(t, document(t, "docs", "observers.md"), "consumer")
	list := statements(part)
	if len(list) != 4 {
		t.Fatalf("%d statements", len(list))
	}
	execute(t, db, strings.Join(list[:3], ";"))
	counted := func() int { return scalar[int](t, db, `SELECT coalesce(sum(tokens), 0) FROM tokens_by_tenant`) }
	const want = len("the answer is [n]") + len("the answer is ") // an emission goes with its chunk, and that of the number is not accepted
	settled(t, db)
	for range 2 {
		execute(t, db, list[3])
		if got := counted(); got != want {
			t.Errorf("%d tokens, want %d", got, want)
		}
	}
	tellObserved(t, db)
	settled(t, db)
	execute(t, db, list[3])
	if got := counted(); got != 2*want {
		t.Errorf("%d tokens, want %d", got, 2*want)
	}
	execute(t, db, `DROP TABLE emissions_seen, tokens_by_tenant`)
}

// TestAConsumerOfOneSessionComesBackAtEveryPlace: with the last id that it has
// received it misses no emission and is given none twice.
func TestAConsumerOfOneSessionComesBackAtEveryPlace(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tellObserved(t, db)
	id := scalar[string](t, db, `SELECT session_id::text FROM agentd.emissions LIMIT 1`)
	log := stored(t, db, id)
	emitted := slices.DeleteFunc(slices.Clone(log), func(f fact) bool { return f.Type != event.TypeEmission })
	if len(emitted) != 3 {
		t.Fatalf("%d emissions", len(emitted))
	}
	s := newStack(t, db)
	s.observe(t, hooks.Hooks{})
	cursor := int64(0)
	for i := range emitted {
		live := s.listen(t, id, "?channel=metrics", cursor)
		got := live.facts(t, 1)
		sameStory(t, fmt.Sprintf("connection %d", i+1), got, emitted[i:i+1])
		cursor = got[0].Seq
	}
	if res, err := s.openSSE(t.Context(), id, "?types=emission&until=idle", cursor); err != nil || res.StatusCode != http.StatusNoContent {
		t.Errorf("behind the last one: %v, %v; want 204", res, err)
	} else if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
}
