package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/worker"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// checkEnd looks at what every test here wants of the end.
func checkEnd(t *testing.T, p *process, j loop.Job) {
	t.Helper()
	if r := p.await(t, j, ended); r.Status != loop.RunCompleted {
		t.Errorf("run is %s (%s %s), want completed", r.Status, r.Reason, r.Error)
	}
	if n := p.count(t, j.SessionID, event.TypeRunCompleted); n != 1 {
		t.Errorf("%d terminal events, want 1", n)
	}
}

func TestARunOfAKilledProcessIsTakenOver(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	entered := atomic.Int64{}
	hold := looptest.Tool{Name: "hold", Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
		entered.Add(1)
		return loop.ToolOutput{}, nil
	}}
	p := setup(t, db, callsTool("hold"), hold)
	victim := startChild(t, db.URL)
	j := p.Start(t, p.Session(t), "hello")
	victim.says(t, "entered")
	// It waits with its first declaration until it was connected for a lease.
	w := p.work(t, short)
	victim.kill()
	began := time.Now()
	checkEnd(t, p, j)
	t.Logf("over %s after the kill", time.Since(began))
	if n := entered.Load(); n != 0 {
		t.Errorf("the tool was entered again %d times, and is not declared idempotent", n)
	}
	if got := payload[event.ToolResult](t, p, j.SessionID).Reason; got != hooks.ReasonOutcomeUnknown {
		t.Errorf("the tool's result says %q, want %q", got, hooks.ReasonOutcomeUnknown)
	}
	if got := payload[event.RunReleased](t, p, j.SessionID); got.Cause != event.ReleaseWorkerDead || got.WorkerID != victim.id {
		t.Errorf("released %+v, want for the death of %s", got, victim.id)
	}
	if got := payload[event.RunResumed](t, p, j.SessionID); got.Cause != event.ResumeTakeover || got.WorkerID != w.ID() {
		t.Errorf("resumed %+v, want as a take-over by %s", got, w.ID())
	}
	if by := scalar[string](t, db, `SELECT declared_by::text FROM agentd.workers WHERE id = $1`, victim.id); by != w.ID() {
		t.Errorf("declared dead by %q, want %q", by, w.ID())
	}
}

func TestStopHandsRunsBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// finish lets the tool return when the stop has begun.
		finish bool
		grace  time.Duration
		calls  int64
	}{
		{"AfterTheirStep", true, limit, 1},
		{"InTheMiddleOfAStepThatTakesTooLong", false, time.Millisecond, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			g := newGate()
			var calls atomic.Int64
			tool := looptest.Tool{Name: "hold", Idempotent: true, Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
				calls.Add(1)
				return loop.ToolOutput{Content: "held"}, g.pass(ctx)
			}}
			p := setup(t, db, callsTool("hold"), tool)
			first := p.work(t, func(c *worker.Config) { c.Grace = test.grace })
			id := first.ID()
			j := p.Start(t, p.Session(t), "hello")
			g.await(t)
			stopped := make(chan struct{})
			go func() { defer close(stopped); stop(t, first) }()
			if test.finish {
				eventually(t, "stop has begun", func() bool { return first.ID() == "" })
				close(g.open)
			}
			<-stopped
			if got := payload[event.RunReleased](t, p, j.SessionID); got.Cause != event.ReleaseShutdown || got.WorkerID != id {
				t.Fatalf("released %+v, want for the shutdown of %s", got, id)
			}
			if r := p.Run(t, j); r.Status != loop.RunQueued {
				t.Fatalf("run is %s after the stop, want queued", r.Status)
			}
			if !scalar[bool](t, db, `SELECT stopped_at IS NOT NULL AND dead_at IS NULL FROM agentd.workers WHERE id = $1`, id) {
				t.Error("the worker's row does not say that it stopped by itself")
			}
			if !test.finish {
				close(g.open)
			}
			p.work(t)
			checkEnd(t, p, j)
			if got := calls.Load(); got != test.calls {
				t.Errorf("the tool was entered %d times, want %d", got, test.calls)
			}
			if r := p.Run(t, j); r.Takeovers != 0 {
				t.Errorf("%d take-overs are counted, a shutdown is none", r.Takeovers)
			}
		})
	}
}

// TestAStopWithoutTimeLeavesRunsToOthersAtOnce: the lease is longer than the
// test waits, so only the worker's own word can free the run.
func TestAStopWithoutTimeLeavesRunsToOthersAtOnce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	p := setup(t, db, callsTool("hold"), looptest.Tool{Name: "hold", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
		return loop.ToolOutput{}, g.pass(ctx)
	}})
	first := p.work(t)
	j := p.Start(t, p.Session(t), "hello")
	g.await(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := first.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("stop says %v, want that its context ended", err)
	}
	// It was cut off, or just managed to hand the run back.
	if r := p.Run(t, j); r.Status != loop.RunRunning && r.Status != loop.RunQueued {
		t.Fatalf("run is %s, want running or queued", r.Status)
	}
	p.work(t)
	checkEnd(t, p, j)
}

func TestAWorkerThatIsCutOffLosesItsRuns(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	pool, line := throughLine(t, db.URL)
	g := newGate()
	cutOff, err := open(t.Context(), pool, callsTool("hold"), looptest.Tool{Name: "hold", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
		return loop.ToolOutput{Content: "too late"}, g.pass(ctx)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cutOff.store.Stop(context.Background()) })
	other := setup(t, db, callsTool("hold"), looptest.Says("hold", "never"))
	// It is cut off for longer than a lease and would go on for ever.
	loser := cutOff.work(t, short, func(c *worker.Config) { c.Outage = 10 * limit })
	id := loser.ID()
	j := other.Start(t, other.Session(t), "hello")
	g.await(t)
	line.Cut()
	other.work(t, short)
	checkEnd(t, other, j)
	head := len(other.Events(t, j.SessionID))
	line.Mend()
	eventually(t, "the loser begins anew", func() bool { return loser.ID() != "" && loser.ID() != id })
	if got := len(other.Events(t, j.SessionID)); got != head {
		t.Errorf("%d events were written after the end", got-head)
	}
}

func TestAnOutageKillsNobody(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	const workers = 3
	var lines []*storetest.Line
	var all []*worker.Worker
	var p *process
	for range workers {
		pool, line := throughLine(t, db.URL)
		q, err := open(t.Context(), pool, callsTool("look"), looptest.Says("look", "seen"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = q.store.Stop(context.Background()) })
		all, lines, p = append(all, q.work(t, short, func(c *worker.Config) { c.Outage = limit })), append(lines, line), q
	}
	var ids []string
	for _, w := range all {
		ids = append(ids, w.ID())
	}
	for _, l := range lines {
		l.Cut()
	}
	eventually(t, "every lease has run out", func() bool {
		return scalar[bool](t, db, `SELECT bool_and(alive_until < agentd.clock()) FROM agentd.workers`)
	})
	for _, l := range lines {
		l.Mend()
	}
	eventually(t, "every worker may declare others dead again", func() bool {
		return scalar[bool](t, db, `SELECT bool_and(connected_since < agentd.clock() - interval '2500 ms') FROM agentd.workers`)
	})
	if n := scalar[int](t, db, `SELECT count(*) FROM agentd.workers WHERE dead_at IS NOT NULL OR stopped_at IS NOT NULL`); n != 0 {
		t.Errorf("%d workers were given up", n)
	}
	for i, w := range all {
		if w.ID() != ids[i] {
			t.Errorf("worker %s has become %q", ids[i], w.ID())
		}
	}
	checkEnd(t, p, p.Start(t, p.Session(t), "hello"))
}

// behindProxy is a process whose line to the database can be cut, with a worker
// that holds a run of which the tool waits at the gate.
type behindProxy struct {
	*process
	line   *storetest.Line
	worker *worker.Worker
	id     string // of the worker
	gate   gate
	heard  *listener
	job    loop.Job
}

func setupBehindProxy(t *testing.T, db *storetest.DB, observer *process) *behindProxy {
	t.Helper()
	pool, line := throughLine(t, db.URL)
	g := newGate()
	p, err := open(t.Context(), pool, callsTool("hold"), looptest.Tool{Name: "hold", Idempotent: true, Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
		return loop.ToolOutput{}, g.pass(ctx)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.store.Stop(context.Background()) })
	heard := newListener(t)
	w := p.work(t, short, func(c *worker.Config) { c.Logger = slog.New(heard) })
	j := observer.Start(t, observer.Session(t), "hello")
	g.await(t)
	return &behindProxy{process: p, line: line, worker: w, id: w.ID(), gate: g, heard: heard, job: j}
}

// TestAWorkerSurvivesAnOutageThatIsLongerThanItsLease: it gives up its run
// while it cannot reach the database, and takes it up again afterwards.
func TestAWorkerSurvivesAnOutageThatIsLongerThanItsLease(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	observer := setup(t, db, callsTool("hold"))
	p := setupBehindProxy(t, db, observer)
	p.line.Cut()
	p.heard.await(t, "worker cannot begin anew yet")
	if id := p.worker.ID(); id != "" {
		t.Errorf("the worker takes jobs as %q", id)
	}
	close(p.gate.open)
	p.line.Mend()
	checkEnd(t, observer, p.job)
	if got := p.worker.ID(); got == "" || got == p.id {
		t.Errorf("worker is %q, want a fresh id", got)
	}
	if !scalar[bool](t, db, `SELECT stopped_at IS NOT NULL AND dead_at IS NULL FROM agentd.workers WHERE id = $1`, p.id) {
		t.Error("the lost worker's row does not say that it stopped")
	}
}

func TestAStopDuringAnOutage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, after string }{
		{"BeforeTheWorkerGivesUp", "heartbeat does not arrive"},
		{"WhileItTriesToBeginAnew", "worker cannot begin anew yet"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			observer := setup(t, db, callsTool("hold"), looptest.Says("hold", "held"))
			p := setupBehindProxy(t, db, observer)
			p.line.Cut()
			p.heard.await(t, test.after)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := p.worker.Stop(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("stop: %v", err)
			}
			p.line.Mend()
			observer.work(t, short)
			checkEnd(t, observer, p.job)
			if !scalar[bool](t, db, `SELECT dead_at IS NOT NULL FROM agentd.workers WHERE id = $1`, p.id) {
				t.Error("the worker could tell nobody, and yet it was not declared dead")
			}
		})
	}
}
