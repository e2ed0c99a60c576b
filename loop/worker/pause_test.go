package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/worker"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// counted is a tool that counts how often it is entered, and waits at g.
func counted(n *atomic.Int64, g gate) looptest.Tool {
	return looptest.Tool{Name: "count", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
		n.Add(1)
		return loop.ToolOutput{Content: "counted"}, g.pass(ctx)
	}}
}

// pause pauses, and returns once every living worker has had a heartbeat since.
func (p *process) pause(t *testing.T, db *storetest.DB, what loop.Pause) {
	t.Helper()
	what.By = looptest.Tester
	if _, err := p.store.Pause(t.Context(), what); err != nil {
		t.Fatal(err)
	}
	at := scalar[string](t, db, `SELECT agentd.clock()::text`)
	eventually(t, "the workers have heard of the pause", func() bool {
		return scalar[bool](t, db, `
			SELECT coalesce(bool_and(heartbeat_at > $1::timestamptz + interval '150 milliseconds'), true) FROM agentd.workers
			WHERE dead_at IS NULL AND stopped_at IS NULL`, at)
	})
}

func (p *process) resume(t *testing.T, tenantID, agent string) {
	t.Helper()
	if was, err := p.store.Resume(t.Context(), tenantID, agent); err != nil || !was {
		t.Fatalf("resume: %v, %v", was, err)
	}
}

// spent waits until no job of River's is left that could be worked on.
func spent(t *testing.T, db *storetest.DB) {
	t.Helper()
	eventually(t, "all jobs are finished", func() bool {
		return scalar[int](t, db, `SELECT count(*) FROM agentd.river_job WHERE state <> 'completed'`) == 0
	})
}

func TestAPausedRunIsHandedBackAfterItsStepAndGoesOnWhenResumed(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]loop.Pause{
		"All": {}, "Tenant": {TenantID: looptest.Tenant}, "Agent": {TenantID: looptest.Tenant, Agent: "demo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			g := newGate()
			var entered atomic.Int64
			p := setup(t, db, callsTool("count"), counted(&entered, g))
			w := p.work(t)
			j := p.Start(t, p.Session(t), "hello")
			g.await(t)
			p.pause(t, db, what)
			queued := p.Start(t, p.Session(t), "hello")
			close(g.open)
			r := p.await(t, j, func(r loop.Run) bool { return r.Status != loop.RunRunning })
			if got := payload[event.RunReleased](t, p, j.SessionID); r.Status != loop.RunQueued || got.Cause != event.ReleasePause || got.WorkerID != w.ID() {
				t.Fatalf("run is %s, released %+v; want queued, for the pause", r.Status, got)
			}
			if n := p.count(t, j.SessionID, event.TypeToolResult); n != 1 {
				t.Errorf("%d results of the tool: the step was not finished", n)
			}
			spent(t, db)
			before := scalar[string](t, db, `SELECT (SELECT count(*) FROM agentd.events) || ' events, ' || (SELECT count(*) FROM agentd.river_job) || ' jobs'`)
			sweeps := scalar[string](t, db, `SELECT agentd.clock()::text`)
			eventually(t, "there were sweeps", func() bool {
				return scalar[bool](t, db, `SELECT min(heartbeat_at) > $1::timestamptz + interval '1 second' FROM agentd.workers`, sweeps)
			})
			after := scalar[string](t, db, `SELECT (SELECT count(*) FROM agentd.events) || ' events, ' || (SELECT count(*) FROM agentd.river_job) || ' jobs'`)
			if before != after {
				t.Errorf("%s have become %s while everything was paused", before, after)
			}
			if r := p.Run(t, queued); r.Status != loop.RunQueued || r.Started || entered.Load() != 1 {
				t.Errorf("the queued run is %s, the tool was entered %d times", r.Status, entered.Load())
			}
			p.resume(t, what.TenantID, what.Agent)
			checkEnd(t, p, j)
			checkEnd(t, p, queued)
			if n := entered.Load(); n != 2 {
				t.Errorf("the tool was entered %d times by 2 runs", n)
			}
			if got := payload[event.RunQueued](t, p, queued.SessionID); got.Cause != "resumed" {
				t.Errorf("queued again for %q", got.Cause)
			}
		})
	}
}

func TestAPauseTouchesNobodyElse(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	close(g.open)
	var entered atomic.Int64
	p := setup(t, db, callsTool("count"), counted(&entered, g))
	agent := p.Engine.Agents["demo"]
	agent.Name = "other"
	p.Engine.Agents["other"] = agent
	p.Commands.Agents = []string{"demo", "other"}
	p.work(t)
	p.pause(t, db, loop.Pause{TenantID: looptest.Tenant, Agent: "other"})
	paused, err := p.Commands.StartRun(t.Context(), loop.StartRun{
		TenantID: looptest.Tenant, SessionID: p.Session(t), Agent: "other", Text: "hello", Actor: looptest.Tester,
	})
	if err != nil {
		t.Fatal(err)
	}
	checkEnd(t, p, p.Start(t, p.Session(t), "hello"))
	if status := scalar[string](t, db, `SELECT status FROM agentd.runs WHERE id = $1`, paused.RunID); status != "queued" || entered.Load() != 1 {
		t.Errorf("the paused agent's run is %s, the tool was entered %d times", status, entered.Load())
	}
}

func TestAPausedRunMayBeCancelledAndAnswered(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	p := setup(t, db, callsTool("pay"), looptest.Says("pay", "paid"))
	agent := p.Engine.Agents["demo"]
	agent.Permissions = []loop.Permission{{Tools: "pay", Mode: loop.PermissionAsk}}
	p.Engine.Agents["demo"] = agent
	p.work(t)
	waiting := p.Start(t, p.Session(t), "hello")
	p.await(t, waiting, func(r loop.Run) bool { return r.Status == loop.RunWaiting })
	p.pause(t, db, loop.Pause{})
	_, err := p.Commands.DecideApproval(t.Context(), loop.DecideApproval{
		TenantID: looptest.Tenant, ApprovalID: scalar[string](t, db, `SELECT id::text FROM agentd.approvals`), Approve: true, Actor: looptest.Tester,
	})
	if err != nil {
		t.Fatal(err)
	}
	unwanted := p.Start(t, p.Session(t), "hello")
	err = p.Commands.CancelRun(t.Context(), loop.CancelRun{TenantID: looptest.Tenant, SessionID: unwanted.SessionID, RunID: unwanted.RunID, Actor: looptest.Tester})
	if err != nil {
		t.Fatal(err)
	}
	spent(t, db)
	if r := p.Run(t, waiting); r.Status != loop.RunQueued || r.QueuedFor != "approval" {
		t.Errorf("the answered run is %s for %q, want queued for the approval", r.Status, r.QueuedFor)
	}
	p.resume(t, "", "")
	checkEnd(t, p, waiting)
	if r := p.Run(t, unwanted); r.Status != loop.RunCancelled {
		t.Errorf("the cancelled run is %s", r.Status)
	}
}

// TestAPauseOutlivesItsWorkers: who held the jobs back is gone, and so is who
// heard of the pause.
func TestAPauseOutlivesItsWorkers(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	close(g.open)
	var entered atomic.Int64
	p := setup(t, db, callsTool("count"), counted(&entered, g))
	p.pause(t, db, loop.Pause{})
	first := p.work(t)
	jobs := []loop.Job{p.Start(t, p.Session(t), "a"), p.Start(t, p.Session(t), "b")}
	spent(t, db)
	stop(t, first)
	p.work(t)
	jobs = append(jobs, p.Start(t, p.Session(t), "c"))
	spent(t, db)
	if n := entered.Load(); n != 0 {
		t.Fatalf("the tool was entered %d times in a pause", n)
	}
	p.resume(t, "", "")
	for _, j := range jobs {
		checkEnd(t, p, j)
	}
	if n := entered.Load(); n != 3 {
		t.Errorf("the tool was entered %d times by 3 runs", n)
	}
}

func TestADrainedWorkerHandsBackAndTakesNoMore(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	var entered atomic.Int64
	p := setup(t, db, callsTool("count"), counted(&entered, g))
	w := p.work(t, func(c *worker.Config) { c.Grace = limit })
	id := w.ID()
	j := p.Start(t, p.Session(t), "hello")
	g.await(t)
	if w.Draining() {
		t.Fatal("it is drained before anybody asked")
	}
	if asked, err := p.store.Drain(t.Context(), id, looptest.Tester); err != nil || len(asked) != 1 || asked[0].Runs != 1 {
		t.Fatalf("asked %+v, %v", asked, err)
	}
	eventually(t, "the drain has begun", w.Draining)
	close(g.open)
	<-w.Drained()
	if got := payload[event.RunReleased](t, p, j.SessionID); got.Cause != event.ReleaseShutdown || got.WorkerID != id {
		t.Errorf("released %+v", got)
	}
	if !scalar[bool](t, db, `SELECT stopped_at IS NOT NULL FROM agentd.workers WHERE id = $1`, id) || w.ID() != "" {
		t.Errorf("the worker is %q, and its row does not say that it stopped", w.ID())
	}
	if r := p.Run(t, j); r.Status != loop.RunQueued {
		t.Errorf("run is %s, want queued", r.Status)
	}
	q, err := open(t.Context(), db.Pool, callsTool("count"), counted(&entered, g))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.store.Stop(context.Background()) })
	q.work(t)
	checkEnd(t, p, j)
	if n := entered.Load(); n != 1 {
		t.Errorf("the tool was entered %d times", n)
	}
	stop(t, w)
}

// TestADrainHoldsForTheWorkerThatComesInPlace: what stood in the row of a worker
// that was declared dead holds for the process.
func TestADrainHoldsForTheWorkerThatComesInPlace(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	p := setup(t, db, callsTool("count"), looptest.Says("count", "1"))
	w := p.work(t)
	run(t, db, `UPDATE agentd.workers SET dead_at = agentd.clock(), declared_by = id,
		drain_requested_at = agentd.clock(), drain_requested_by = 'x'`)
	select {
	case <-w.Drained():
	case <-time.After(limit):
		t.Fatal("the process takes runs again")
	}
	if n := scalar[int](t, db, `SELECT count(*) FROM agentd.workers WHERE dead_at IS NULL AND stopped_at IS NOT NULL`); n != 1 {
		t.Errorf("%d workers stopped by themselves, want the one that came in place", n)
	}
}
