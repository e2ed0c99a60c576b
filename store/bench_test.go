package store_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

const soon = 30 * time.Second // a limit that only a broken test reaches

// jobs is a queue that keeps nothing.
type jobs struct{}

func (jobs) InsertTx(context.Context, pgx.Tx, []loop.Job) error { return nil }

// startStore returns a started store on a pool of its own, as another process
// would have.
func startStore(t *testing.T, db *storetest.DB, opts store.Options) *store.Store {
	t.Helper()
	return startStoreAt(t, db.URL, opts)
}

func startStoreAt(t *testing.T, url string, opts store.Options) *store.Store {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatalf("database URL: %v", err)
	}
	store.Guard(config, store.Limits{Acquire: soon, Answer: soon})
	return startStoreOn(t, config, opts)
}

// startStoreOn is startStore with a pool that the test has configured.
func startStoreOn(t *testing.T, config *pgxpool.Config, opts store.Options) *store.Store {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatalf("open pool: %v", err)
	}
	s := store.New(pool, opts)
	if err := s.Start(t.Context()); err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		pool.Close()
	})
	return s
}

func limit(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	return ctx
}

// newSession creates a session with one event.
func newSession(t *testing.T, log loop.Log) string {
	t.Helper()
	return looptest.NewBench(log, nil).Session(t)
}

// encode returns an event of the session.
func encode(t *testing.T, sessionID, runID string, turn int, p event.Payload) event.Event {
	t.Helper()
	e, err := event.New(event.Scope{SessionID: sessionID, RunID: runID, Turn: turn, At: time.Now(), Actor: looptest.Tester}, p)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// say is an append of one message.
func say(t *testing.T, sessionID string, expected int64) loop.Append {
	t.Helper()
	return appendOf(sessionID, expected, encode(t, sessionID, "", 0, event.MessageCreated{
		MessageID: looptest.NewID(), Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: "hi"}},
	}))
}

func appendOf(sessionID string, expected int64, events ...event.Event) loop.Append {
	return loop.Append{ID: looptest.NewID(), TenantID: looptest.Tenant, SessionID: sessionID, Expected: expected, Events: events}
}

func mustAppend(t *testing.T, log loop.Log, a loop.Append) loop.Appended {
	t.Helper()
	got, err := log.Append(limit(t), a)
	if err != nil {
		t.Fatalf("append at %d: %v", a.Expected, err)
	}
	return got
}

func headOf(t *testing.T, log loop.Log, sessionID string) loop.Head {
	t.Helper()
	h, err := log.Head(limit(t), looptest.Tenant, sessionID)
	if err != nil {
		t.Fatalf("head: %v", err)
	}
	return h
}

// result is the outcome of an append that runs beside the test.
type result struct {
	got loop.Appended
	err error
}

// begin appends beside the test, which receives the one result.
func begin(t *testing.T, log loop.Log, a loop.Append) <-chan result {
	t.Helper()
	ctx := limit(t)
	out := make(chan result, 1)
	var running sync.WaitGroup
	running.Go(func() {
		got, err := log.Append(ctx, a)
		out <- result{got, err}
	})
	t.Cleanup(running.Wait) // before the store stops; a failed test's ends with ctx
	return out
}

// gate is a BeforeCommit that stops the commits that a test asks it to.
type gate struct {
	commits atomic.Int64
	hold    atomic.Bool
	held    chan struct{} // a value for each commit that was stopped
	open    chan struct{} // a value lets one go
}

func newGate() *gate {
	return &gate{held: make(chan struct{}, 16), open: make(chan struct{}, 16)}
}

// beforeCommit stops at most one commit for each time that hold is set.
func (g *gate) beforeCommit(ctx context.Context) {
	g.commits.Add(1)
	if !g.hold.CompareAndSwap(true, false) {
		return
	}
	g.held <- struct{}{}
	select {
	case <-g.open:
	case <-ctx.Done():
	}
}

// stopNext makes the next commit wait.
func (g *gate) stopNext() { g.hold.Store(true) }

func (g *gate) release() { g.open <- struct{}{} }

// lockWaiters waits until n sessions of the database wait for a lock.
func lockWaiters(t *testing.T, db *storetest.DB, n int) {
	t.Helper()
	until(t, "a session waits for a lock", func(ctx context.Context) (bool, error) {
		var waiting int
		err := db.Pool.QueryRow(ctx, `
			SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return waiting >= n, err
	})
}

// until polls for what nothing signals.
func until(t *testing.T, what string, holds func(context.Context) (bool, error)) {
	t.Helper()
	ctx := limit(t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := holds(ctx)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: did not happen", what)
		}
	}
}
