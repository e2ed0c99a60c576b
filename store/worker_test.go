package store_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

const (
	lease = 3 * time.Second
	stale = 1500 * time.Millisecond
)

// workers is a database with its clock in the test's hands. Nothing in it runs
// by itself.
type workers struct {
	*storetest.DB
	t   *testing.T
	now time.Time
}

func newWorkers(t *testing.T) *workers {
	t.Helper()
	w := &workers{DB: storetest.New(t), t: t, now: time.Now()}
	w.pass(0)
	return w
}

func (w *workers) pass(d time.Duration) {
	w.t.Helper()
	w.now = w.now.Add(d)
	w.SetClock(w.t, w.now)
}

// one is a worker and its process's table of workers.
type one struct {
	*store.Leases
	id string
}

func (w *workers) join() one {
	w.t.Helper()
	o := one{store.NewLeases(store.New(w.Pool, store.Options{})), looptest.NewID()}
	w.t.Cleanup(o.Close)
	if _, err := o.Join(w.t.Context(), loop.Joining{ID: o.id, Version: "v1", Host: "here"}, lease); err != nil {
		w.t.Fatal(err)
	}
	return o
}

func (w *workers) beat(o one) bool {
	w.t.Helper()
	alive, _, err := o.Beat(w.t.Context(), o.id, lease)
	if err != nil {
		w.t.Fatal(err)
	}
	return alive
}

func (w *workers) declare(o one) []string {
	w.t.Helper()
	dead, err := o.DeclareDead(w.t.Context(), o.id, lease, stale)
	if err != nil {
		w.t.Fatal(err)
	}
	return dead
}

// wantDead checks whom o declares dead now.
func (w *workers) wantDead(o one, want ...string) {
	w.t.Helper()
	if got := w.declare(o); !slices.Equal(got, want) {
		w.t.Errorf("declared dead: %v, want %v", got, want)
	}
}

// hangUp ends a worker's connection as the death of its process does, and
// returns when the server knows.
func (w *workers) hangUp(o one) {
	w.t.Helper()
	o.Close()
	w.waitFor("the lock is free", `SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory'
		AND (classid::bigint << 32 | objid::bigint) = ('x' || right(replace($1::text, '-', ''), 16))::bit(64)::bigint)`, o.id)
}

func (w *workers) waitFor(what, query string, args ...any) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), soon)
	defer cancel()
	for ok := false; !ok; {
		if err := w.Pool.QueryRow(ctx, query, args...).Scan(&ok); err != nil {
			w.t.Fatalf("%s: %v", what, err)
		}
	}
}

func (w *workers) exec(query string, args ...any) {
	w.t.Helper()
	if _, err := w.Pool.Exec(w.t.Context(), query, args...); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
}

func (w *workers) holds(query string, args ...any) bool {
	w.t.Helper()
	var ok bool
	if err := w.Pool.QueryRow(w.t.Context(), query, args...).Scan(&ok); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
	return ok
}

func TestAWorkerWhoseLeaseHasRunOutIsDeclaredDeadOnce(t *testing.T) {
	t.Parallel()
	w := newWorkers(t)
	a, b, c := w.join(), w.join(), w.join()
	w.pass(lease - time.Second)
	w.beat(b)
	w.beat(c)
	w.wantDead(b)
	w.pass(time.Second + time.Millisecond)
	w.beat(b)
	w.beat(c)
	var mu sync.Mutex
	var dead []string
	var all sync.WaitGroup
	for range 4 {
		for _, by := range []one{b, c} {
			all.Go(func() {
				got := w.declare(by)
				mu.Lock()
				defer mu.Unlock()
				dead = append(dead, got...)
			})
		}
	}
	all.Wait()
	if !slices.Equal(dead, []string{a.id}) {
		t.Errorf("declared dead: %v, want %s once", dead, a.id)
	}
	if w.beat(a) {
		t.Error("a dead worker revived")
	}
	if !w.holds(`SELECT dead_at IS NOT NULL AND declared_by IN ($2, $3) AND version = 'v1' FROM agentd.workers WHERE id = $1`, a.id, b.id, c.id) {
		t.Error("the row does not say who declared it")
	}
}

func TestNobodyIsDeclaredDeadByAWorkerThatWasNotConnectedForALease(t *testing.T) {
	t.Parallel()
	w := newWorkers(t)
	a, b := w.join(), w.join()

	t.Log("an outage: every connection breaks, and every lease runs out")
	for _, o := range []one{a, b} {
		w.hangUp(o)
	}
	w.pass(2 * lease)
	w.wantDead(b)
	if !w.beat(b) {
		t.Fatal("a worker that nobody declared dead is dead")
	}
	w.wantDead(b)
	for range 2 {
		w.pass(lease / 3)
		w.beat(b)
		w.wantDead(b)
	}

	t.Log("now it was connected for a whole lease, and the other one did not come back")
	w.pass(lease / 3)
	w.beat(b)
	w.wantDead(b, a.id)

	t.Log("a worker that is dead, or has stopped, declares nobody")
	c := w.join()
	w.pass(2 * lease)
	w.wantDead(a)
	if err := b.Leave(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	w.wantDead(b)
	d := w.join()
	for range 3 {
		w.pass(lease / 3)
		w.beat(d)
	}
	w.wantDead(d, c.id)
}

// TestAHeartbeatAfterTheLeaseStartsAnew: the machine that everything runs on was
// suspended, so no connection broke.
func TestAHeartbeatAfterTheLeaseStartsAnew(t *testing.T) {
	t.Parallel()
	w := newWorkers(t)
	a, b := w.join(), w.join()
	w.pass(10 * lease)
	w.wantDead(b)
	if !w.beat(b) {
		t.Fatal("the worker is dead")
	}
	w.wantDead(b)
	if !w.beat(a) {
		t.Error("the other worker got no time to come back")
	}
}

func TestAFreeLockMakesDeathFaster(t *testing.T) {
	t.Parallel()
	w := newWorkers(t)
	killed, reconnects, b := w.join(), w.join(), w.join()
	for range 3 {
		w.pass(time.Second)
		for _, o := range []one{killed, reconnects, b} {
			w.beat(o)
		}
	}
	w.hangUp(killed)
	w.hangUp(reconnects)
	w.wantDead(b) // it sees the locks free for the first time
	w.pass(stale - 100*time.Millisecond)
	w.beat(b)
	w.wantDead(b) // a live worker would not have missed a heartbeat yet
	w.beat(reconnects)
	w.pass(200 * time.Millisecond)
	w.beat(b)
	w.wantDead(b, killed.id)
	w.pass(stale)
	w.beat(b)
	w.wantDead(b) // the lock was taken again
	if !w.holds(`SELECT alive_until > dead_at FROM agentd.workers WHERE id = $1`, killed.id) {
		t.Error("the lease had run out anyway")
	}
}

// TestAGhostsLockIsTakenOver: the server finds out late that the old connection
// of a worker is gone.
func TestAGhostsLockIsTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorkers(t)
	a := w.join()
	ghost := one{store.NewLeases(store.New(w.Pool, store.Options{})), a.id}
	t.Cleanup(ghost.Close)
	if !w.beat(ghost) { // the same worker on another connection
		t.Fatal("the worker is dead")
	}
	w.hangUp(a)
	w.beat(ghost)
	b := w.join()
	w.pass(lease)
	w.beat(ghost)
	w.beat(b)
	w.wantDead(b)
	w.pass(stale + time.Millisecond)
	w.beat(b)
	w.wantDead(b)
}

func TestAHeartbeatConnectsAgain(t *testing.T) {
	t.Parallel()
	w := newWorkers(t)
	a := w.join()
	w.pass(time.Second)
	w.exec(`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'agentd heartbeat' AND datname = current_database()`)
	if _, _, err := a.Beat(t.Context(), a.id, lease); err == nil {
		t.Fatal("a heartbeat on a broken connection arrived")
	}
	if !w.beat(a) {
		t.Fatal("the worker is dead")
	}
	if !w.holds(`SELECT connected_since = heartbeat_at AND alive_until = heartbeat_at + interval '3 s' FROM agentd.workers WHERE id = $1`, a.id) {
		t.Error("the row does not say that the worker has just connected")
	}
}

func TestAWorkerThatIsGoneIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorkers(t)
	a, b := w.join(), w.join()
	if err := a.Leave(t.Context(), a.id); err != nil {
		t.Fatal(err)
	}
	if w.beat(a) {
		t.Error("a worker that has stopped is alive")
	}
	for _, step := range []struct {
		pass time.Duration
		left bool
	}{{23 * time.Hour, true}, {2 * time.Hour, false}} {
		w.pass(step.pass)
		if err := b.Forget(t.Context(), 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		if got := w.holds(`SELECT EXISTS (SELECT FROM agentd.workers WHERE id = $1)`, a.id); got != step.left {
			t.Errorf("%s after its end the row is there: %v, want %v", step.pass, got, step.left)
		}
	}
	if !w.holds(`SELECT EXISTS (SELECT FROM agentd.workers WHERE id = $1)`, b.id) {
		t.Error("a worker that is not known to be gone was forgotten")
	}
}

func TestWakeSignalsWatchers(t *testing.T) {
	t.Parallel()
	w := newWorkers(t)
	st := store.New(w.Pool, store.Options{})
	watched := looptest.NewID()
	signals, stop := st.Watch(watched)
	t.Cleanup(stop)
	store.NewLeases(st).Wake(looptest.NewID(), watched)
	select {
	case <-signals:
	default:
		t.Error("the watcher was not woken")
	}
}

func TestErrorsOfTheTableOfWorkers(t *testing.T) {
	t.Parallel()
	w := newWorkers(t)
	a := w.join()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"Join":        first(a.Join(ctx, loop.Joining{ID: looptest.NewID()}, lease)),
		"JoinTwice":   first(a.Join(t.Context(), loop.Joining{ID: a.id}, lease)),
		"Beat":        second(a.Beat(ctx, a.id, lease)),
		"BeatNoID":    second(a.Beat(t.Context(), "no id", lease)),
		"Leave":       a.Leave(ctx, a.id),
		"Forget":      a.Forget(ctx, time.Hour),
		"DeclareDead": first(a.DeclareDead(ctx, a.id, lease, stale)),
		"Orphans":     first(a.Orphans(ctx, time.Second, 1)),
		"Held":        first(a.Held(ctx, a.id, nil)),
		"Due":         first(a.Due(ctx, nil, 1)),
		"Expired":     first(a.Expired(ctx, 1)),
		"Lost":        first(a.Lost(ctx, time.Second, nil, 1)),
		"Fetched":     first(a.Fetched(ctx, a.id, nil)),
	} {
		if err == nil {
			t.Errorf("%s did not fail", name)
		}
	}
}

func first[T any](_ T, err error) error { return err }

func second(_ bool, _ loop.Orders, err error) error { return err }
