package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
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

func TestARunIsTakenUpAndEnds(t *testing.T) {
	t.Parallel()
	p := setup(t, storetest.New(t), callsTool("look"), looptest.Says("look", "seen"))
	w := p.work(t)
	j := p.Start(t, p.Session(t), "hello")
	checkEnd(t, p, j)
	if got := payload[event.RunStarted](t, p, j.SessionID).WorkerID; got != w.ID() {
		t.Errorf("claimed by %q, want the worker's id %q", got, w.ID())
	}
}

// TestAFailedRunIsTakenUpAgain: its next job comes with the append that queues
// it.
func TestAFailedRunIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	p := setup(t, storetest.New(t), looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		if asked.Add(1) <= 2 {
			yield(looptest.Text("do"), nil)
			yield(stream.Chunk{}, &loop.ModelError{Message: "no"})
			return
		}
		looptest.Answers(looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)))(ctx, req, yield)
	}))
	p.work(t)
	j := p.Start(t, p.Session(t), "hello")
	for n := range 3 {
		r := p.await(t, j, func(r loop.Run) bool { return r.Status.Terminal() && r.Retries == n })
		if n == 2 {
			if r.Status != loop.RunCompleted || len(r.Turns) != 3 {
				t.Errorf("run %+v; want it completed", r)
			}
			break
		}
		if _, err := p.Commands.RetryRun(t.Context(), loop.RetryRun{TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, Actor: looptest.Tester}); err != nil {
			t.Fatalf("retry of %+v: %v", r, err)
		}
	}
	if got := payload[event.RunResumed](t, p, j.SessionID).Cause; got != event.ResumeRetry {
		t.Errorf("resumed for %s", got)
	}
}

// TestSweepersLeaveHealthyRunsAlone: two workers look for dead ones all the
// time while many runs pass.
func TestSweepersLeaveHealthyRunsAlone(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	p := setup(t, db, callsTool("look"), looptest.Says("look", "seen"))
	for range 2 {
		q := *p
		q.leases = store.NewLeases(p.store)
		q.work(t, func(c *worker.Config) { c.Sweep = 10 * time.Millisecond })
	}
	var jobs []loop.Job
	for range 60 {
		jobs = append(jobs, p.Start(t, p.Session(t), "hello"))
	}
	for _, j := range jobs {
		checkEnd(t, p, j)
		if r := p.Run(t, j); r.Ticket != 1 || r.Epoch != 1 {
			t.Errorf("ticket %d, epoch %d: the run was touched", r.Ticket, r.Epoch)
		}
	}
}

func TestLifecycleErrors(t *testing.T) {
	t.Parallel()
	p := setup(t, storetest.New(t), callsTool("look"), looptest.Says("look", "seen"))
	if _, err := worker.New(worker.Config{}); err == nil {
		t.Error("a worker without anything was made")
	}
	hasty := p.config()
	hasty.Lease = hasty.Heartbeat
	if _, err := worker.New(hasty); err == nil {
		t.Error("a lease of one heartbeat was accepted")
	}

	never := p.make(t)
	stop(t, never)
	stop(t, never)
	if err := never.Start(t.Context()); err == nil {
		t.Error("a worker that was stopped started")
	}

	w := p.work(t)
	if w.ID() == "" {
		t.Error("a worker that has started has no id")
	}
	if err := w.Start(t.Context()); err == nil {
		t.Error("a worker started twice")
	}
	stop(t, w)
	if id := w.ID(); id != "" {
		t.Errorf("a worker that has stopped has the id %q", id)
	}
	stop(t, w)
}

func (p *process) make(t *testing.T) *worker.Worker {
	t.Helper()
	w, err := worker.New(p.config())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestStartNeedsTheDatabase(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	p := setup(t, db, callsTool("look"), looptest.Says("look", "seen"))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.make(t).Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("start in a context that has ended says %v", err)
	}

	long := p.config()
	long.NewID = func() string { return strings.Repeat("x", 101) }
	w, err := worker.New(long)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "make queue client") {
		t.Errorf("start with an id that River refuses says %v", err)
	}

	closed, err := pgxpool.New(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	cfg := p.config()
	cfg.Pool = closed
	if w, err = worker.New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "start queue client") {
		t.Errorf("start without a pool says %v", err)
	}
	if n := scalar[int](t, db, `SELECT count(*) FROM agentd.workers WHERE stopped_at IS NULL`); n != 0 {
		t.Errorf("%d workers that did not start are left in the table", n)
	}
	stop(t, w)
}

// TestStartGivesUpWithItsContext: the pool never has a connection.
func TestStartGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	p := setup(t, db, callsTool("look"), looptest.Says("look", "seen"))
	cfg := p.config()
	cfg.Pool = exhausted(t, db)
	w, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	t.Cleanup(cancel)
	if err := w.Start(ctx); err == nil {
		t.Error("start without a connection succeeded")
	}
	stop(t, w)
}

// exhausted returns a pool whose only connection is taken.
func exhausted(t *testing.T, db *storetest.DB) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	return pool
}

func TestHeartbeatsGoOnWhenThePoolIsExhausted(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 6
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	p, err := open(t.Context(), pool, callsTool("look"), looptest.Says("look", "seen"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.store.Stop(context.Background()) })
	w := p.work(t, short)
	id := w.ID()
	j := p.Start(t, p.Session(t), "hello")
	checkEnd(t, p, j)
	for range cfg.MaxConns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
	}
	since := scalar[time.Time](t, db, `SELECT agentd.clock()`)
	eventually(t, "a lease later, the lease still runs", func() bool {
		return scalar[bool](t, db, `SELECT heartbeat_at > $2::timestamptz + interval '2100 ms' AND alive_until > agentd.clock()
			FROM agentd.workers WHERE id = $1`, id, since)
	})
	if w.ID() != id {
		t.Errorf("the worker has become %q", w.ID())
	}
}

// deaf is a log whose watchers hear of nothing but what a heartbeat brings.
type deaf struct {
	loop.Log
	*store.Leases
	poke chan int64
}

func (d deaf) Watch(string) (signals <-chan int64, stop func()) { return d.poke, func() {} }

func (d deaf) Wake(...string) {
	select {
	case d.poke <- 0:
	default:
	}
}

func TestAHeartbeatBringsACancel(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	p := setup(t, db, callsTool("hold"), looptest.Tool{Name: "hold", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
		return loop.ToolOutput{}, g.pass(ctx)
	}})
	d := deaf{p.store, p.leases, make(chan int64, 1)}
	p.Engine.Log = d
	p.work(t, func(c *worker.Config) { c.Leases = d })
	j := p.Start(t, p.Session(t), "hello")
	g.await(t)
	err := p.Commands.CancelRun(t.Context(), loop.CancelRun{TenantID: j.TenantID, SessionID: j.SessionID, RunID: j.RunID, Actor: looptest.Tester})
	if err != nil {
		t.Fatal(err)
	}
	if r := p.await(t, j, ended); r.Status != loop.RunCancelled {
		t.Errorf("run is %s, want cancelled", r.Status)
	}
}

// TestStopDoesNotWaitForRunsThatNeverReturn: an engine that hears nothing is a
// bug, and must not keep the process from ending. Its lease has to run out.
func TestStopDoesNotWaitForRunsThatNeverReturn(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	p := setup(t, db, callsTool("look"), looptest.Says("look", "seen"))
	g := newGate()
	w := p.work(t, func(c *worker.Config) {
		c.Engine = engineFunc(func(context.Context, loop.Job, loop.Holder) error { return g.pass(context.Background()) })
	})
	id := w.ID()
	p.Start(t, p.Session(t), "hello")
	g.await(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("stop says %v, want that its context ended", err)
	}
	if !scalar[bool](t, db, `SELECT stopped_at IS NULL FROM agentd.workers WHERE id = $1`, id) {
		t.Error("the worker says that it has stopped, and its engine has not")
	}
	close(g.open)
	stop(t, w)
}
