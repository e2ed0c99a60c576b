package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// forgetful is the log of a version that ends runs and begins none behind them.
type forgetful struct{ loop.Log }

func (l forgetful) Append(ctx context.Context, a loop.Append) (loop.Appended, error) {
	for i, e := range a.Events {
		if p, err := event.Decode(e); err == nil && i > 0 && p == any(event.RunQueued{Ticket: 1, Cause: event.QueuedNext}) {
			a.Events, a.Jobs = a.Events[:i], nil
			break
		}
	}
	return l.Log.Append(ctx, a)
}

// TestASweepBeginsARunThatWasPassedOver: until then the view says so, and a
// broken run is passed over by nobody either.
func TestASweepBeginsARunThatWasPassedOver(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]bool{"Whole": false, "Broken": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var options []storetest.Option
			if broken {
				options = append(options, storetest.Unverified)
			}
			db := storetest.New(t, options...)
			p := setup(t, db, looptest.Answers(looptest.Answer(looptest.Text("hi"), looptest.Finish(stream.FinishStop))))
			old := looptest.NewBench(forgetful{p.store}, nil)
			id := p.Session(t)
			first := p.Start(t, id, "one")
			second, third := p.Say(t, id, "two", event.PolicyEnqueue), p.Say(t, id, "three", event.PolicyEnqueue)
			if err := old.Commands.CancelRun(t.Context(), loop.CancelRun{TenantID: looptest.Tenant, SessionID: id, RunID: first.RunID, Actor: looptest.Tester}); err != nil {
				t.Fatal(err)
			}
			var seq int64
			if broken {
				seq = corrupt(t, db, second, event.TypeRunCreated, `"x"`)
				corrupt(t, db, third, event.TypeRunCreated, `"x"`)
			}
			db.ShiftClock(t, time.Minute)
			if n := scalar[int](t, db, `SELECT count(*) FROM agentd.stuck WHERE reason = 'not_promoted' AND run_id = ANY ($1)`, []string{second.RunID, third.RunID}); n != 2 {
				t.Errorf("%d runs are stuck, want 2", n)
			}
			p.work(t)
			if broken {
				checkBadState(t, db, second, seq)
				eventually(t, "the third run has ended", func() bool {
					status, _, _ := stored(t, db, third)
					return status == "failed"
				})
			} else {
				p.await(t, second, ended)
				if r := p.await(t, third, ended); r.Status != loop.RunCompleted || p.Run(t, second).Status != loop.RunCompleted {
					t.Errorf("the runs are %s and %s, want completed", p.Run(t, second).Status, r.Status)
				}
			}
			if n := scalar[int](t, db, `SELECT count(*) FROM agentd.stuck`); n != 0 {
				t.Errorf("%d runs are stuck, want none", n)
			}
		})
	}
}
