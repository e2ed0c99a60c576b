package store_test

import (
	"bufio"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/proctest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestCommitterFourProcessesOnTheSameSessionsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	before := deadlocks(t, db)
	var stores []*store.Store
	for range 4 {
		stores = append(stores, startStore(t, db, store.Options{}))
	}
	ids := make([]string, 12)
	for i := range ids {
		ids[i] = newSession(t, stores[0])
	}
	var wg sync.WaitGroup
	for _, s := range stores {
		for range 8 {
			wg.Go(func() {
				for range 15 {
					id := ids[rand.N(len(ids))]
					h := headOf(t, s, id)
					if _, err := s.Append(t.Context(), say(t, id, h.LastSeq)); err != nil && !errors.Is(err, loop.ErrConflict) {
						t.Errorf("append: %v", err)
					}
				}
			})
		}
	}
	wg.Wait()
	if n := deadlocks(t, db) - before; n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

func deadlocks(t *testing.T, db *storetest.DB) (n int64) {
	t.Helper()
	err := db.Pool.QueryRow(limit(t), `SELECT pg_stat_get_db_deadlocks(oid) FROM pg_database WHERE datname = current_database()`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCommitterLockedRowStallsNobodyElse(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	const lockTimeout = time.Second
	configure(t, db, store.RoleSettings{LockTimeout: lockTimeout})
	s := startStore(t, db, store.Options{})
	locked, free := newSession(t, s), newSession(t, s)
	tx, err := db.Pool.Begin(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(limit(t), `SELECT FROM agentd.sessions WHERE id = $1 FOR UPDATE`, locked); err != nil {
		t.Fatal(err)
	}
	waiting := begin(t, s, say(t, locked, 1))
	lockWaiters(t, db, 1)
	since := time.Now()
	seq := int64(1)
	for time.Since(since) < 2*lockTimeout || seq < 1+10 {
		seq = mustAppend(t, s, say(t, free, seq)).LastSeq
	}
	// One that waits with the locked row gets through once per lock timeout, which
	// no machine is too busy to be faster than.
	if took := time.Since(since); took > 6*lockTimeout {
		t.Errorf("%d appends beside the locked row took %s", seq-1, took)
	}
	select {
	case r := <-waiting:
		t.Errorf("append to the locked session: %+v; want it to wait", r)
	default:
	}
	if err := tx.Rollback(limit(t)); err != nil {
		t.Fatal(err)
	}
	if r := <-waiting; r.err != nil || r.got.LastSeq != 2 {
		t.Errorf("after the lock: %+v, %v; want seq 2", r.got, r.err)
	}
}

func TestCommitterGroupSkipsALockedRow(t *testing.T) {
	t.Parallel()
	db := storetest.New(t) // where nothing ends a wait for a lock
	g := newGate()
	s := startStore(t, db, store.Options{BeforeCommit: g.beforeCommit})
	door, locked, free := newSession(t, s), newSession(t, s), newSession(t, s)
	tx, err := db.Pool.Begin(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(limit(t), `SELECT FROM agentd.sessions WHERE id = $1 FOR UPDATE`, locked); err != nil {
		t.Fatal(err)
	}
	g.stopNext()
	first := begin(t, s, say(t, door, 1))
	<-g.held
	waiting, beside := begin(t, s, say(t, locked, 1)), begin(t, s, say(t, free, 1))
	until(t, "both wait", func(context.Context) (bool, error) { return store.Pending(s) == 2, nil })
	g.release()
	<-first
	if r := <-beside; r.err != nil {
		t.Errorf("beside the locked row: %v", r.err)
	}
	if err := tx.Rollback(limit(t)); err != nil {
		t.Fatal(err)
	}
	if r := <-waiting; r.err != nil {
		t.Errorf("the locked row: %v", r.err)
	}
}

func TestCommitterLockInAProjectionStallsNobodyForLong(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	configure(t, db, store.RoleSettings{LockTimeout: 100 * time.Millisecond})
	g := newGate()
	s := startStore(t, db, store.Options{Queue: jobs{}, BeforeCommit: g.beforeCommit})
	id, runID := started(t, s)
	door, free := newSession(t, s), newSession(t, s)
	tx, err := db.Pool.Begin(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(limit(t), `SELECT FROM agentd.runs FOR UPDATE`); err != nil { // as somebody with psql might
		t.Fatal(err)
	}
	g.stopNext()
	first := begin(t, s, say(t, door, 1))
	<-g.held
	waiting, beside := begin(t, s, takenOver(t, s, id, runID)), begin(t, s, say(t, free, 1))
	until(t, "both wait", func(context.Context) (bool, error) { return store.Pending(s) == 2, nil })
	g.release()
	<-first
	if r := <-beside; r.err != nil {
		t.Errorf("beside it: %v", r.err)
	}
	until(t, "it is aside", func(context.Context) (bool, error) { return store.Aside(s) == 1, nil })
	if err := tx.Rollback(limit(t)); err != nil {
		t.Fatal(err)
	}
	if r := <-waiting; r.err != nil {
		t.Errorf("the locked run: %v", r.err)
	}
}

func TestCommitterDeltasComeInOrder(t *testing.T) {
	t.Parallel()
	s := startStore(t, storetest.New(t), store.Options{Queue: jobs{}})
	id, runID := started(t, s)
	got := mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq,
		encode(t, id, runID, 1, event.TurnStarted{}), encode(t, id, runID, 1, event.ModelRequested{Attempt: 1})))
	for range 20 {
		a := appendOf(id, got.LastSeq, encode(t, id, runID, 1, event.AssistantDelta{Attempt: 1, Lane: "text", Text: "x"}))
		a.Deltas, a.Epoch = true, 1
		got = mustAppend(t, s, a)
	}
	state, err := s.Load(limit(t), looptest.Tenant, id, runID)
	if err != nil {
		t.Fatal(err)
	}
	if text := state.Runs[0].Turns[0].Shown.Blocks()[0].Text; len(text) != 20 {
		t.Errorf("the open answer is %q; want 20 letters", text)
	}
}

func configure(t *testing.T, db *storetest.DB, settings store.RoleSettings) {
	t.Helper()
	if err := store.ConfigureRole(limit(t), db.URL, settings); err != nil {
		t.Fatal(err)
	}
}

func TestCommitterWaitForALockEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	configure(t, db, store.RoleSettings{LockTimeout: 50 * time.Millisecond})
	s := startStore(t, db, store.Options{})
	ids := []string{newSession(t, s), newSession(t, s), newSession(t, s)}
	tx, err := db.Pool.Begin(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(limit(t), `SELECT FROM agentd.sessions FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, id := range ids { // more than may wait at once
		wg.Go(func() {
			if _, err := s.Append(ctx, say(t, id, 1)); !errors.Is(err, context.Canceled) {
				t.Errorf("append: %v; want context.Canceled", err)
			}
		})
	}
	lockWaiters(t, db, 2)
	cancel()
	wg.Wait()
	if err := tx.Rollback(limit(t)); err != nil {
		t.Fatal(err)
	}
	// Those that had begun to wait may still be written.
	until(t, "the session goes on", func(ctx context.Context) (bool, error) {
		_, err := s.Append(ctx, say(t, ids[0], headOf(t, s, ids[0]).LastSeq))
		if errors.Is(err, loop.ErrConflict) {
			return false, nil
		}
		return err == nil, err
	})
}

func TestCommitterRivalCreationInFlightDelaysOnlyItsTwin(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	configure(t, db, store.RoleSettings{LockTimeout: 100 * time.Millisecond})
	g := newGate()
	rival := startStore(t, db, store.Options{BeforeCommit: g.beforeCommit})
	s := startStore(t, db, store.Options{})
	free := newSession(t, s)
	create := func() loop.Append {
		id := looptest.NewID()
		return appendOf(id, 0, encode(t, id, "", 0, event.SessionCreated{TenantID: looptest.Tenant, ExternalID: "same"}))
	}
	g.stopNext()
	winner := begin(t, rival, create())
	<-g.held
	loser := begin(t, s, create())
	lockWaiters(t, db, 1)
	for seq := int64(1); seq < 20; seq++ {
		mustAppend(t, s, say(t, free, seq))
	}
	g.release()
	if r := <-winner; r.err != nil {
		t.Errorf("winner: %v", r.err)
	}
	if r := <-loser; !errors.Is(r.err, loop.ErrConflict) {
		t.Errorf("loser: %v; want ErrConflict", r.err)
	}
}

func TestCommitterSuspendedProcessHoldsNobodyForLong(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	const idle = 300 * time.Millisecond
	configure(t, db, store.RoleSettings{LockTimeout: 100 * time.Millisecond, IdleInTransaction: idle})
	s := startStore(t, db, store.Options{})
	id := newSession(t, s)
	child := suspended(t, db, id)
	// Without the limit it would wait for ever.
	if got := mustAppend(t, s, say(t, id, 1)); got.LastSeq != 2 {
		t.Errorf("last seq %d; want 2", got.LastSeq)
	}
	// When it wakes up, its transaction is gone.
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Errorf("the suspended process: %v; want it to find that it was too late", err)
	}
	if h := headOf(t, s, id); h.LastSeq != 2 {
		t.Errorf("last seq %d; want 2", h.LastSeq)
	}
}

// suspended starts a process that has an append to the session written and not
// committed, and stops it there.
func suspended(t *testing.T, db *storetest.DB, sessionID string) *osexec.Cmd {
	t.Helper()
	cmd := osexec.CommandContext(limit(t), os.Args[0], "-test.run=^TestSuspendedProcess$")
	cmd.Env = append(os.Environ(), "AGENTD_TEST_URL="+db.URL, "AGENTD_TEST_SESSION="+sessionID)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "written" {
			if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			return cmd
		}
	}
	t.Fatalf("the process ended: %v", cmd.Wait())
	return nil
}

// TestSuspendedProcess is the other process of the test above.
func TestSuspendedProcess(t *testing.T) {
	t.Parallel()
	url, sessionID := os.Getenv("AGENTD_TEST_URL"), os.Getenv("AGENTD_TEST_SESSION")
	if url == "" {
		t.Skip("runs only in a process of its own")
	}
	proctest.DieWithParent()
	g := newGate()
	s := startStoreAt(t, url, store.Options{BeforeCommit: g.beforeCommit})
	g.stopNext()
	answer := begin(t, s, say(t, sessionID, 1))
	<-g.held
	if _, err := os.Stdout.WriteString("written\n"); err != nil {
		t.Fatal(err)
	}
	// It is stopped here. What it does next, it does after SIGCONT, since the
	// parent has written by then.
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	until(t, "the parent has written", func(ctx context.Context) (is bool, err error) {
		err = pool.QueryRow(ctx, `SELECT last_seq = 2 FROM agentd.sessions WHERE id = $1`, sessionID).Scan(&is)
		return is, err
	})
	g.release()
	if r := <-answer; !errors.Is(r.err, loop.ErrConflict) {
		t.Errorf("append: %+v, %v; want ErrConflict", r.got, r.err)
	}
}
