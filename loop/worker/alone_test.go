package worker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/worker"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// killing is a run over which three workers in a row have died.
func killing(t *testing.T, p *process) loop.Job {
	t.Helper()
	j := p.Start(t, p.Session(t), "hello")
	for range 3 {
		id := looptest.NewID()
		if err := p.Engine.Advance(dying(t.Context()), j, loop.Holder{WorkerID: id}); err == nil {
			t.Fatal("the worker lives")
		}
		if _, err := p.Commands.ReleaseDead(t.Context(), loop.Release{
			TenantID: j.TenantID, SessionID: j.SessionID, RunID: j.RunID, WorkerID: id, Now: time.Now(), Actor: looptest.Tester,
		}); err != nil {
			t.Fatal(err)
		}
		j.Ticket = p.Run(t, j).Ticket
	}
	return j
}

// TestRunsThatDiedTogetherAreTriedApart: on one worker, one after the other, and
// nobody else is kept out.
func TestRunsThatDiedTogetherAreTriedApart(t *testing.T) {
	t.Parallel()
	for name, leaves := range map[string]bool{"OneAfterTheOther": false, "UntilTheWorkerLeaves": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			var mu sync.Mutex
			inside, most := 0, 0
			g := newGate()
			p := setup(t, db, mortal(looptest.Model(func(ctx context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
				mu.Lock()
				inside++
				most = max(most, inside)
				mu.Unlock()
				err := g.pass(ctx)
				mu.Lock()
				inside--
				mu.Unlock()
				if err == nil && yield(looptest.Text("hi"), nil) {
					yield(looptest.Finish(stream.FinishStop), nil)
				}
			})))
			jobs := []loop.Job{killing(t, p), killing(t, p)}
			db.ShiftClock(t, time.Minute)
			w := p.work(t, func(c *worker.Config) { c.Grace = time.Millisecond })
			g.await(t)
			eventually(t, "the worker has fetched both", func() bool {
				return scalar[int](t, db, `SELECT count(*) FROM agentd.river_job WHERE state = 'running'`) == 2
			})
			healthy := p.Start(t, p.Session(t), "hello")
			g.await(t)
			if n := scalar[int](t, db, `SELECT count(*) FROM agentd.runs WHERE status = 'running' AND takeovers > 0`); n != 1 {
				t.Errorf("%d suspect runs are running, want one", n)
			}
			if leaves {
				stop(t, w)
				shutdowns := 0
				for _, j := range jobs {
					if r := p.Run(t, j); r.Status != loop.RunQueued || r.Takeovers != 3 {
						t.Errorf("run is %s with %d deaths, want it queued with 3", r.Status, r.Takeovers)
					}
					if payload[event.RunReleased](t, p, j.SessionID).Cause == event.ReleaseShutdown {
						shutdowns++
					}
				}
				if shutdowns != 2 {
					t.Errorf("%d of them are handed back, want both", shutdowns)
				}
				p.work(t)
			}
			close(g.open)
			for _, j := range append(jobs, healthy) {
				checkEnd(t, p, j)
			}
			if most > 2 {
				t.Errorf("%d runs were in their step at the same time, want one of those that died and the other one", most)
			}
		})
	}
}
