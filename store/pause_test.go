package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// pausesOf lists what touches a tenant, "" for all.
func pausesOf(t *testing.T, s *store.Store, tenantID string) (out []string) {
	t.Helper()
	list, err := s.ListPauses(t.Context(), tenantID)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.Since.IsZero() {
			t.Errorf("%+v has no time", p)
		}
		out = append(out, p.TenantID+"/"+p.Agent+" "+p.By.ID+": "+p.Reason)
	}
	return out
}

func TestPausesAreKeptUntilTheyAreResumed(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := store.New(db.Pool, store.Options{})
	exec(t, db, `INSERT INTO agentd.tenants (id, name) VALUES ('other', 'other')`)
	var since time.Time
	for _, p := range []loop.Pause{
		{Reason: "all", By: looptest.Tester},
		{TenantID: "other", Reason: "theirs", By: looptest.Tester},
		{TenantID: looptest.Tenant, Agent: "demo", Reason: "first", By: looptest.Tester},
		{TenantID: looptest.Tenant, Agent: "demo", Reason: "second\x00", By: event.System("cli")},
	} {
		got, err := s.Pause(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if p.Reason == "first" {
			since = got.Since
		} else if p.Agent != "" && !got.Since.Equal(since) {
			t.Errorf("pausing again moves the time from %s to %s", since, got.Since)
		}
	}
	mine := []string{"/ " + looptest.Tester.ID + ": all", looptest.Tenant + "/demo cli: second\uFFFD"}
	if got := pausesOf(t, s, looptest.Tenant); !slices.Equal(got, mine) {
		t.Errorf("pauses of the tenant: %q, want %q", got, mine)
	}
	if got := pausesOf(t, s, ""); len(got) != 3 {
		t.Errorf("all pauses: %q, want 3", got)
	}
	for _, step := range []struct {
		tenant, agent string
		was           bool
	}{{looptest.Tenant, "", false}, {looptest.Tenant, "demo", true}, {looptest.Tenant, "demo", false}, {"", "", true}, {"\x00", "", false}} {
		if was, err := s.Resume(t.Context(), step.tenant, step.agent); err != nil || was != step.was {
			t.Errorf("resume %q/%q: %v, %v; want %v", step.tenant, step.agent, was, err, step.was)
		}
	}
	if got := pausesOf(t, s, looptest.Tenant); len(got) != 0 {
		t.Errorf("left for the tenant: %q", got)
	}
}

func TestPausesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := store.New(db.Pool, store.Options{})
	for _, c := range []struct {
		pause loop.Pause
		want  error
	}{
		{loop.Pause{TenantID: "nobody"}, loop.ErrNotFound},
		{loop.Pause{TenantID: "\x00"}, loop.ErrNotFound},
		{loop.Pause{Agent: "demo"}, loop.ErrInvalid},
		{loop.Pause{TenantID: looptest.Tenant, Agent: "\xff"}, loop.ErrInvalid},
	} {
		if _, err := s.Pause(t.Context(), c.pause); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.pause, err, c.want)
		}
	}
	if list, err := s.ListPauses(t.Context(), "\x00"); err != nil || list != nil {
		t.Errorf("pauses of no tenant: %v, %v", list, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"Pause":      first(s.Pause(ctx, loop.Pause{})),
		"Resume":     first(s.Resume(ctx, "", "")),
		"ListPauses": first(s.ListPauses(ctx, "")),
		"Workers":    first(s.Workers(ctx)),
		"Drain":      first(s.Drain(ctx, "", looptest.Tester)),
		"Stuck":      first(s.Stuck(ctx, 1)),
	} {
		if err == nil {
			t.Errorf("%s did not fail", name)
		}
	}
}

// TestWorkersAreToldOfPausesAndDrains: with the row that they make, and with
// each heartbeat.
func TestWorkersAreToldOfPausesAndDrains(t *testing.T) {
	t.Parallel()
	w := newWorkers(t)
	s := store.New(w.Pool, store.Options{})
	a, b := w.join(), w.join()
	if _, err := s.Pause(t.Context(), loop.Pause{TenantID: looptest.Tenant, Agent: "demo", By: looptest.Tester}); err != nil {
		t.Fatal(err)
	}
	asked, err := s.Drain(t.Context(), a.id, looptest.Tester)
	if err != nil || len(asked) != 1 || asked[0].ID != a.id || asked[0].Host != "here" || asked[0].Version != "v1" || asked[0].DrainedBy == "" {
		t.Fatalf("asked %+v, %v", asked, err)
	}
	for o, drain := range map[one]bool{a: true, b: false} {
		alive, orders, err := o.Beat(t.Context(), o.id, lease)
		if _, paused := orders.Pauses.Of(looptest.Tenant, "demo"); err != nil || !alive || !paused || orders.Drain != drain {
			t.Errorf("told %+v, %v; want the pause, drain %v", orders, err, drain)
		}
	}
	for _, former := range []one{a, b} {
		l := store.NewLeases(store.New(w.Pool, store.Options{}))
		t.Cleanup(l.Close)
		orders, err := l.Join(t.Context(), loop.Joining{ID: looptest.NewID(), Former: former.id}, lease)
		if err != nil || orders.Drain != (former == a) || len(orders.Pauses) != 1 {
			t.Errorf("in place of %s it is told %+v, %v", former.id, orders, err)
		}
	}
	if list, err := s.Workers(t.Context()); err != nil || len(list) != 4 {
		t.Errorf("workers %+v, %v; want 4", list, err)
	}
	w.pass(2 * lease)
	if asked, err := s.Drain(t.Context(), a.id, looptest.Tester); err != nil || len(asked) != 0 {
		t.Errorf("a worker without a lease: %+v, %v", asked, err)
	}
	if _, err := s.Drain(t.Context(), "none", looptest.Tester); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("no id: %v", err)
	}
}

// TestPausedRunsAreNeitherDueNorLost: nobody makes jobs for them.
func TestPausedRunsAreNeitherDueNorLost(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	queued(t, db, s) // by a queue that loses it
	id, runID := started(t, s)
	past := time.Now().Add(-time.Second)
	mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq, encode(t, id, runID, 0,
		event.RunReleased{Cause: event.ReleaseBackoff, WorkerID: looptest.NewID(), Epoch: 2, Ticket: 2, NotBefore: &past})))
	l := store.NewLeases(s)
	var known loop.Pauses
	look := func() (due, lost int) {
		t.Helper()
		d, err := l.Due(t.Context(), known, 10)
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.Lost(t.Context(), 0, known, 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(d), len(f)
	}
	if due, lost := look(); due != 1 || lost != 1 {
		t.Fatalf("%d due, %d lost; want one each", due, lost)
	}
	for _, p := range []loop.Pause{{}, {TenantID: looptest.Tenant}} {
		if _, err := s.Pause(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if due, lost := look(); due != 0 || lost != 0 {
			t.Errorf("%d due, %d lost while %+v holds", due, lost, p)
		}
		if _, err := s.Resume(t.Context(), p.TenantID, p.Agent); err != nil {
			t.Fatal(err)
		}
	}
	// Who has not heard of the end of a pause leaves them to others.
	known = loop.Pauses{{TenantID: "other"}, {TenantID: looptest.Tenant, Agent: "demo"}}
	if _, lost := look(); lost != 0 {
		t.Errorf("%d lost, of an agent that is paused as far as is known", lost)
	}
	known = loop.Pauses{{}}
	if due, lost := look(); due != 0 || lost != 0 {
		t.Errorf("%d due, %d lost, all paused as far as is known", due, lost)
	}
	known = loop.Pauses{{TenantID: "other"}, {TenantID: looptest.Tenant, Agent: "other"}}
	if due, lost := look(); due != 1 || lost != 1 {
		t.Errorf("%d due, %d lost after the pauses", due, lost)
	}
}
