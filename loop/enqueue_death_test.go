package loop_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestADeathInEveryAppendLosesNoEnqueuedRun and begins none twice: whatever the
// worker was writing, and whether or not it was written.
func TestADeathInEveryAppendLosesNoEnqueuedRun(t *testing.T) {
	t.Parallel()
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprintf("written=%v", written), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				survives := 0
				for n := 1; survives == 0; n++ {
					k := newTalk(t, looptest.NewLog())
					id := k.Session(t)
					jobs := []loop.Job{k.Start(t, id, "one"), k.Say(t, id, "two", event.PolicyEnqueue), k.Say(t, id, "three", event.PolicyEnqueue)}
					deaths, left := 0, n
					ctx, die := context.WithCancel(t.Context())
					kill := func(loop.Append) error {
						if left--; left == 0 {
							deaths++
							die()
							return errDead
						}
						return nil
					}
					if written {
						k.log.LoseAcks(kill)
					} else {
						k.log.FailAppends(kill)
					}
					k.settle(ctx, t, id)
					die()
					if deaths == 0 {
						survives = n
					}
					k.log.LoseAcks(nil)
					k.log.FailAppends(nil)
					k.settle(t.Context(), t, id)
					_, s := checked(t, k.Bench, id)
					var order []string
					for _, r := range s.Runs {
						order = append(order, r.ID)
						if r.Status != loop.RunCompleted || r.Started != true {
							t.Errorf("dead in append %d: run %+v; want it completed", n, r)
						}
					}
					if want := []string{jobs[0].RunID, jobs[1].RunID, jobs[2].RunID}; !slices.Equal(order, want) || len(s.Enqueued) > 0 {
						t.Errorf("dead in append %d: runs %v; want %v", n, order, want)
					}
					begun := 0
					for _, e := range k.Events(t, id) {
						if e.Type == event.TypeRunStarted {
							begun++
						}
					}
					if begun != 3 {
						t.Errorf("dead in append %d: %d starts; want 3", n, begun)
					}
				}
				if survives < 10 {
					t.Errorf("only %d appends", survives)
				}
			})
		})
	}
}

// settle does what workers do until nothing is left to do, or ctx ends: each job
// is taken, and who died is buried.
func (k *talk) settle(ctx context.Context, t *testing.T, sessionID string) {
	t.Helper()
	for ctx.Err() == nil {
		var j loop.Job
		for _, have := range k.log.Jobs() {
			if have.SessionID == sessionID && k.Run(t, have).Ticket == have.Ticket && k.Run(t, have).Status == loop.RunQueued {
				j = have
			}
		}
		if j.RunID == "" {
			h, err := k.Log.Head(ctx, looptest.Tenant, sessionID)
			if err != nil || h.ActiveRunID == "" {
				return
			}
			run := k.Run(t, loop.Job{SessionID: sessionID, RunID: h.ActiveRunID})
			if run.Status != loop.RunRunning {
				t.Errorf("run %+v has no job", run)
				return
			}
			release(t, k.Bench, loop.Job{TenantID: looptest.Tenant, SessionID: sessionID, RunID: run.ID}, run.WorkerID)
			continue
		}
		_ = k.Engine.Advance(ctx, j, loop.Holder{WorkerID: looptest.NewID()})
	}
}
