package worker_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/worker"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

var (
	_ worker.Leases   = (*store.Leases)(nil)
	_ worker.Engine   = (*loop.Engine)(nil)
	_ worker.Commands = (*loop.Commands)(nil)
	_ store.Queue     = (*worker.Queue)(nil)
)

// limit is how long a test waits for what has to come.
const limit = 30 * time.Second

// process is what one process of agentd has, but for the worker.
type process struct {
	*looptest.Bench
	pool   *pgxpool.Pool
	store  *store.Store
	leases *store.Leases
}

// open makes a process on a database. Stop it before its pool is closed.
func open(ctx context.Context, pool *pgxpool.Pool, model loop.Model, tools ...loop.Tool) (*process, error) {
	queue := worker.NewQueue()
	st := store.New(pool, store.Options{Queue: queue})
	if err := st.Start(ctx); err != nil {
		return nil, err
	}
	return &process{
		Bench: looptest.NewBench(st, model, tools...), pool: pool, store: st, leases: store.NewLeases(st),
	}, nil
}

func setup(t *testing.T, db *storetest.DB, model loop.Model, tools ...loop.Tool) *process {
	t.Helper()
	p, err := open(t.Context(), db.Pool, model, tools...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.store.Stop(context.Background()); err != nil {
			t.Errorf("stop store: %v", err)
		}
	})
	return p
}

// config looks often, so that tests need not wait for long, and has a lease that
// does not run out in a test, however busy the machine is.
func (p *process) config() worker.Config {
	return worker.Config{
		Pool: p.pool, Engine: p.Engine, Commands: p.Commands, Leases: p.leases, NewID: looptest.NewID,
		Heartbeat: 100 * time.Millisecond, Lease: 10 * limit, Sweep: 50 * time.Millisecond,
	}
}

// short is an option for tests in which a lease runs out.
func short(c *worker.Config) { c.Lease = 2 * time.Second }

// work starts a worker that is stopped when the test ends.
func (p *process) work(t *testing.T, options ...func(*worker.Config)) *worker.Worker {
	t.Helper()
	cfg := p.config()
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	for _, o := range options {
		o(&cfg)
	}
	w, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatalf("start worker: %v", err)
	}
	t.Cleanup(func() { stop(t, w) })
	return w
}

func stop(t *testing.T, w *worker.Worker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := w.Stop(ctx); err != nil {
		t.Errorf("stop worker: %v", err)
	}
}

// await returns the run of j as soon as it is as wanted.
func (p *process) await(t *testing.T, j loop.Job, wanted func(loop.Run) bool) loop.Run {
	t.Helper()
	wake, unwatch := p.store.Watch(j.SessionID)
	defer unwatch()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		r := p.Run(t, j)
		if wanted(r) {
			return r
		}
		select {
		case <-wake:
		case <-deadline.C:
			t.Fatalf("not within %s; the run is %s and its log is %v", limit, r.Status, looptest.Types(p.Events(t, j.SessionID)))
		}
	}
}

func ended(r loop.Run) bool { return r.Status.Terminal() }

// count returns how many events of a type the session has.
func (p *process) count(t *testing.T, sessionID string, kind event.Type) int {
	t.Helper()
	n := 0
	for _, e := range p.Events(t, sessionID) {
		if e.Type == kind {
			n++
		}
	}
	return n
}

// payload returns the typed payload of the session's last event of type P.
func payload[P event.Payload](t *testing.T, p *process, sessionID string) P {
	t.Helper()
	var out P
	found := false
	for _, e := range p.Events(t, sessionID) {
		x, err := event.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		if x, ok := x.(P); ok {
			out, found = x, true
		}
	}
	if !found {
		t.Fatalf("no %s in the log", out.EventType())
	}
	return out
}

// eventually polls for what nobody signals.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// scalar returns the one value that a query gives.
func scalar[T any](t *testing.T, db *storetest.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := db.Pool.QueryRow(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func run(t *testing.T, db *storetest.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Pool.Exec(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// gate blocks what passes it until it is opened, and says when something has
// come to it.
type gate struct{ reached, open chan struct{} }

func newGate() gate { return gate{make(chan struct{}, 100), make(chan struct{})} }

func (g gate) pass(ctx context.Context) error {
	g.reached <- struct{}{}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) await(t *testing.T) {
	t.Helper()
	select {
	case <-g.reached:
	case <-time.After(limit):
		t.Fatal("nothing came to the gate")
	}
}

// callsTool asks for one tool and then answers.
func callsTool(name string) loop.Model {
	return looptest.Answers(
		looptest.Answer(looptest.ToolCall("c1", name, `{}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	)
}
