package worker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/worker"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// silent is a table of workers to which no heartbeat gets through.
type silent struct {
	*store.Leases
	cut *atomic.Bool
}

func (s silent) Beat(ctx context.Context, workerID string, lease time.Duration) (bool, loop.Orders, error) {
	if s.cut.Load() {
		return false, loop.Orders{}, errors.New("cut off")
	}
	return s.Leases.Beat(ctx, workerID, lease)
}

// TestACancelDoesNotWaitForTheLeaseOfAWorkerThatCannotHear: the lease of this
// one lasts for longer than the test, and others end the run.
func TestACancelDoesNotWaitForTheLeaseOfAWorkerThatCannotHear(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	p := setup(t, db, callsTool("hold"), looptest.Tool{Name: "hold", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
		return loop.ToolOutput{Content: "held"}, g.pass(context.WithoutCancel(ctx))
	}})
	p.Engine.Log = deaf{p.store, p.leases, make(chan int64, 1)}
	cut := &atomic.Bool{}
	p.work(t, func(c *worker.Config) { c.Leases = silent{p.leases, cut} })
	j, healthy := p.Start(t, p.Session(t), "hello"), p.Start(t, p.Session(t), "hello")
	g.await(t)
	g.await(t)
	cut.Store(true)
	// A heartbeat that was under way has arrived by now.
	last := scalar[time.Time](t, db, `SELECT heartbeat_at FROM agentd.workers`)
	eventually(t, "no heartbeat arrives", func() bool {
		was := last
		last = scalar[time.Time](t, db, `SELECT heartbeat_at FROM agentd.workers WHERE agentd.clock() > heartbeat_at + interval '300 milliseconds' UNION ALL SELECT 'epoch' LIMIT 1`)
		return was.Equal(last)
	})
	other := setup(t, db, nil)
	other.work(t)
	if err := other.Commands.CancelRun(t.Context(), loop.CancelRun{TenantID: j.TenantID, SessionID: j.SessionID, RunID: j.RunID, Actor: looptest.Tester}); err != nil {
		t.Fatal(err)
	}
	if r := other.await(t, j, ended); r.Status != loop.RunCancelled {
		t.Errorf("run is %s, want cancelled", r.Status)
	}
	if res := payload[event.ToolResult](t, other, j.SessionID); res.Reason != hooks.ReasonOutcomeUnknown {
		t.Errorf("the result is %+v, want its outcome unknown", res)
	}
	if r := other.Run(t, healthy); r.Status != loop.RunRunning {
		t.Errorf("a run that nobody cancelled is %s", r.Status)
	}
	seq := len(other.Events(t, j.SessionID))
	close(g.open)
	if r := other.await(t, healthy, ended); r.Status != loop.RunCompleted {
		t.Errorf("a run that nobody cancelled is %s", r.Status)
	}
	if n := len(other.Events(t, j.SessionID)); n != seq {
		t.Errorf("%d events were written behind the end", n-seq)
	}
}
