package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	guards "github.com/seed-2ca4966b/agentd/hooks/guard"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// slotOf is a slot of a limit of two calls in an hour, for a new call.
func slotOf(sessionID, runID string) guards.Slot {
	return guards.Slot{
		RunRef: hooks.RunRef{TenantID: looptest.Tenant, SessionID: sessionID, RunID: runID, Agent: "demo"},
		CallID: looptest.NewID(), Guard: "g", Per: guards.PerTenant, Calls: 2, Window: time.Hour,
	}
}

func take(t *testing.T, s *store.Store, slot guards.Slot) guards.Taken {
	t.Helper()
	got, err := s.TakeSlot(limit(t), slot)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestSlotsAreFreeAgainOneByOne: a window of an hour is any hour, and a call
// keeps its place however often it asks, in whatever process.
func TestSlotsAreFreeAgainOneByOne(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s, other := startStore(t, db, store.Options{Queue: jobs{}}), startStore(t, db, store.Options{Queue: jobs{}})
	id, run := started(t, s)
	noon := time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC) // within it Berlin's clocks go forward
	at := func(minutes int) { db.SetClock(t, noon.Add(time.Duration(minutes)*time.Minute)) }
	first, second, third, fourth := slotOf(id, run), slotOf(id, run), slotOf(id, run), slotOf(id, run)
	for _, step := range []struct {
		minute int
		by     *store.Store
		slot   guards.Slot
		ok     bool
		used   int
		free   int // minutes; 0 for what is not looked at
	}{
		{0, s, first, true, 1, 0},
		{10, other, first, true, 1, 0},
		{20, s, second, true, 2, 0},
		{21, other, third, false, 2, 60},
		{22, other, first, true, 2, 0},
		{59, s, third, false, 2, 60},
		{60, s, third, true, 2, 0},
		{61, s, fourth, false, 2, 80},
		{80, s, first, true, 2, 0}, // it has long run: this is another time
		{81, s, fourth, false, 2, 120},
		{200, s, fourth, true, 1, 0},
	} {
		at(step.minute)
		got := take(t, step.by, step.slot)
		if got.OK != step.ok || got.Used != step.used || !got.Now.Equal(noon.Add(time.Duration(step.minute)*time.Minute)) {
			t.Errorf("at %d: %+v; want ok %v, used %d", step.minute, got, step.ok, step.used)
		}
		if want := noon.Add(time.Duration(step.free) * time.Minute); !step.ok && !got.FreeAt.Equal(want) {
			t.Errorf("at %d: free at %s; want %s", step.minute, got.FreeAt, want)
		}
	}
	var left int
	if err := db.Pool.QueryRow(limit(t), `SELECT count(*) FROM agentd.guard_slots`).Scan(&left); err != nil || left != 1 {
		t.Errorf("%d rows are left, %v; want the one that counts", left, err)
	}
}

// TestSlotsOfEachAreTheirOwn: tools, runs, sessions, users, agents, limits.
func TestSlotsOfEachAreTheirOwn(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, run := started(t, s)
	otherID, otherRun := started(t, s)
	one := func(per guards.Per, change func(*guards.Slot)) guards.Slot {
		slot := slotOf(id, run)
		slot.Per, slot.Calls = per, 1
		if change != nil {
			change(&slot)
		}
		return slot
	}
	elsewhere := func(l *guards.Slot) { l.SessionID, l.RunID = otherID, otherRun }
	for i, c := range []struct {
		slot guards.Slot
		ok   bool
	}{
		{one(guards.PerRun, nil), true},
		{one(guards.PerRun, nil), false},
		{one(guards.PerRun, elsewhere), true},
		{one(guards.PerSession, nil), true},
		{one(guards.PerSession, nil), false},
		{one(guards.PerSession, elsewhere), true},
		{one(guards.PerUser, nil), true},
		{one(guards.PerUser, elsewhere), false}, // the same one has started both
		{one(guards.PerAgent, nil), true},
		{one(guards.PerAgent, elsewhere), false},
		{one(guards.PerAgent, func(l *guards.Slot) { l.Agent = "other" }), true},
		{one(guards.PerTenant, nil), true},
		{one(guards.PerTenant, elsewhere), false},
		{one(guards.PerTenant, func(l *guards.Slot) { l.Tool = "a" }), true},
		{one(guards.PerTenant, func(l *guards.Slot) { l.Tool = "b" }), true},
		{one(guards.PerTenant, func(l *guards.Slot) { l.Tool = "b" }), false},
		{one(guards.PerTenant, func(l *guards.Slot) { l.Guard = "another" }), true},
		{one(guards.PerTenant, func(l *guards.Slot) { l.Calls = 2 }), true}, // the limit was raised
	} {
		if got := take(t, s, c.slot); got.OK != c.ok {
			t.Errorf("%d, per %s: %+v; want %v", i, c.slot.Per, got, c.ok)
		}
	}
	forever := one(guards.PerRun, func(l *guards.Slot) { l.Guard, l.Window = "forever", 0 })
	if got := take(t, s, forever); !got.OK {
		t.Errorf("without a window: %+v", got)
	}
	forever.CallID = looptest.NewID()
	db.ShiftClock(t, 10*365*24*time.Hour)
	if got := take(t, s, forever); got.OK || !got.FreeAt.IsZero() || got.Used != 1 {
		t.Errorf("ten years later: %+v; want none, and none ever", got)
	}
}

// TestSlotsOfALimitAreNeverMoreThanItHas: two processes, a hundred calls at
// once, and others who do not notice.
func TestSlotsOfALimitAreNeverMoreThanItHas(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	exec(t, db, `INSERT INTO agentd.tenants (id, name) VALUES ('other', 'Other')`)
	stores := []*store.Store{startStore(t, db, store.Options{Queue: jobs{}}), startStore(t, db, store.Options{Queue: jobs{}})}
	id, run := started(t, stores[0])
	other, err := (&loop.Commands{Log: stores[0], Agents: []string{"demo"}, NewID: looptest.NewID, Now: time.Now}).CreateSession(
		t.Context(), loop.CreateSession{TenantID: "other", Actor: looptest.Tester})
	if err != nil {
		t.Fatal(err)
	}
	const calls, places = 100, 10
	var wg sync.WaitGroup
	var mu sync.Mutex
	passed := map[string]int{}
	ctx := limit(t)
	for i := range calls {
		wg.Go(func() {
			slot := slotOf(id, run)
			if i%10 == 9 {
				slot.TenantID, slot.SessionID = "other", other.SessionID
			}
			slot.Calls = places
			got, err := stores[i%2].TakeSlot(ctx, slot)
			if err != nil {
				t.Errorf("take: %v", err)
			}
			if again, err := stores[(i+1)%2].TakeSlot(ctx, slot); err != nil || again.OK && !got.OK || got.OK && !again.OK {
				t.Errorf("asked again: %+v, %v after %+v", again, err, got)
			}
			mu.Lock()
			defer mu.Unlock()
			if got.OK {
				passed[slot.TenantID]++
			} else if got.Used != places {
				t.Errorf("refused with %+v", got)
			}
		})
	}
	wg.Wait()
	if passed[looptest.Tenant] != places || passed["other"] != calls/10 {
		t.Errorf("passed: %v; want %d, and all %d of the other tenant", passed, places, calls/10)
	}
}

// TestSlotsAreTakenByOneAfterTheOther: while one is about to take the last, another
// that has come meanwhile waits, and then sees that it is taken.
func TestSlotsAreTakenByOneAfterTheOther(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	stores := []*store.Store{startStore(t, db, store.Options{Queue: jobs{}}), startStore(t, db, store.Options{Queue: jobs{}})}
	id, run := started(t, stores[0])
	exec(t, db, `CREATE FUNCTION agentd.stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NEW; END $$`)
	exec(t, db, `CREATE TRIGGER stop BEFORE INSERT ON agentd.guard_slots FOR EACH ROW EXECUTE FUNCTION agentd.stop()`)
	gate, err := db.Pool.Begin(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = gate.Rollback(context.Background()) })
	if _, err := gate.Exec(limit(t), `SELECT pg_advisory_xact_lock(4711)`); err != nil {
		t.Fatal(err)
	}
	ctx := limit(t)
	var wg sync.WaitGroup
	var passed atomic.Int32
	for _, s := range stores {
		wg.Go(func() {
			slot := slotOf(id, run)
			slot.Calls = 1
			got, err := s.TakeSlot(ctx, slot)
			if err != nil {
				t.Errorf("take: %v", err)
			}
			if got.OK {
				passed.Add(1)
			}
		})
	}
	for waiting := 0; waiting < 2; {
		err := db.Pool.QueryRow(ctx, `
			SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := gate.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if passed.Load() != 1 {
		t.Errorf("%d have the one place", passed.Load())
	}
}

func TestSlotsLeaveWithTheirSession(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id := oneRun(t, s)
	slot := slotOf(id, looptest.NewID())
	slot.Window = 0
	take(t, s, slot)
	exec(t, db, `SELECT agentd.purge_session('`+id+`', 'test')`)
	var left int
	if err := db.Pool.QueryRow(limit(t), `SELECT count(*) FROM agentd.guard_slots`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows are left, %v", left, err)
	}
	// Whoever asks for a call of it is told that there is no such session.
	if got, err := s.TakeSlot(limit(t), slot); !errors.Is(err, loop.ErrNotFound) || got.OK {
		t.Errorf("of a session that is gone: %+v, %v", got, err)
	}
}

// TestSlotsThatTheDatabaseLosesAreNotTaken: it has come back between the
// commit and the moment from which it is durable.
func TestSlotsThatTheDatabaseLosesAreNotTaken(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, run := started(t, s)
	exec(t, db, `CREATE FUNCTION agentd.lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM agentd.guard_slots; RETURN NULL; END $$`)
	exec(t, db, `CREATE TRIGGER lose AFTER INSERT ON agentd.guard_slots EXECUTE FUNCTION agentd.lose()`)
	if got, err := s.TakeSlot(limit(t), slotOf(id, run)); err == nil || got.OK {
		t.Errorf("of a slot that is gone: %+v, %v", got, err)
	}
}

func TestSlotsThatCannotBeCountedAreNotTaken(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, run := started(t, s)
	for what, change := range map[string]func(*guards.Slot){
		"no session":        func(l *guards.Slot) { l.SessionID = "" },
		"no call":           func(l *guards.Slot) { l.CallID = "c" },
		"a strange tenant":  func(l *guards.Slot) { l.TenantID = "\x00" },
		"a foreign tenant":  func(l *guards.Slot) { l.TenantID = "other" },
		"a strange tool":    func(l *guards.Slot) { l.Tool = "\xff" },
		"no run of a user":  func(l *guards.Slot) { l.Per, l.RunID = guards.PerUser, "r" },
		"a run of nobody":   func(l *guards.Slot) { l.Per, l.RunID = guards.PerUser, looptest.NewID() },
		"another's run":     func(l *guards.Slot) { l.Per, l.TenantID = guards.PerUser, "other" },
		"an unheard-of per": func(l *guards.Slot) { l.Per = "planet" },
	} {
		slot := slotOf(id, run)
		change(&slot)
		if got, err := s.TakeSlot(limit(t), slot); err == nil || got.OK {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, per := range []guards.Per{guards.PerTenant, guards.PerUser} {
		slot := slotOf(id, run)
		slot.Per = per
		if got, err := s.TakeSlot(ctx, slot); !errors.Is(err, context.Canceled) || got.OK {
			t.Errorf("without a database, per %s: %+v, %v", per, got, err)
		}
	}
}

// TestSlotsCostTheSameHoweverManyThereAre: it is bounded by the limit and not by
// the table.
func TestSlotsCostTheSameHoweverManyThereAre(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, run := started(t, s)
	exec(t, db, fmt.Sprintf(`
		INSERT INTO agentd.guard_slots (session_id, call_id, guard, tenant_id, counted_for, taken_at, expires_at)
		SELECT '%s', gen_random_uuid(), 'g', 'default', CASE n %% 2 WHEN 0 THEN 'tenant default' ELSE 'tenant ' || n END,
			agentd.clock() - interval '1 minute', agentd.clock() + interval '1 hour'
		FROM generate_series(1, 20000) AS n`, id))
	slot := slotOf(id, run)
	slot.Calls = 5
	// The index of the limit goes down by a level or two, and so it is for the
	// call and for its session; the rest is a page or two of the places.
	if pages := pagesOf(t, db, store.TakeSlotSQL, slot.TenantID, slot.Guard, "tenant default", id, slot.CallID, slot.Calls, slot.Window); pages > 40 {
		t.Errorf("it read %d pages", pages)
	}
	if got := take(t, s, slot); got.OK || got.Used != 5 {
		t.Errorf("of a limit that is full: %+v", got)
	}
}

// pagesOf is how many pages a statement reads, whatever the plan was made for.
func pagesOf(t *testing.T, db *storetest.DB, sql string, args ...any) int {
	t.Helper()
	tx, err := db.Pool.Begin(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(limit(t), store.PlanByIndex); err != nil {
		t.Fatal(err)
	}
	rows, _ := tx.Query(limit(t), `EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) `+sql, args...)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	t.Log(strings.Join(plan, "\n"))
	pages := -1
	for _, line := range plan {
		if _, after, ok := strings.Cut(line, "Buffers: shared hit="); ok && pages < 0 {
			if _, err := fmt.Sscan(strings.Fields(after)[0], &pages); err != nil {
				t.Fatal(err)
			}
		}
	}
	if pages < 0 {
		t.Fatalf("no buffers in %s", plan)
	}
	return pages
}
