package loop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

func fail(t *testing.T, b *looptest.Bench, j loop.Job, reason string) error {
	t.Helper()
	return b.Commands.FailRun(t.Context(), loop.FailRun{
		TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, Reason: reason, Actor: looptest.Tester,
	})
}

// failedNow fails the run of j by force, in one append, and checks what anybody
// would see of it.
func failedNow(t *testing.T, b *looptest.Bench, j loop.Job) ([]event.Event, loop.State) {
	t.Helper()
	log := b.Log.(*looptest.Log)
	appends, ends := 0, 0
	log.FailAppends(func(loop.Append) error { appends++; return nil })
	b.Commands.Hooks.OnRunEnd = func(_ context.Context, e hooks.RunEnd) {
		if ends++; e.Status != "failed" || e.Reason != "forced" {
			t.Errorf("the hook is told of %+v", e)
		}
	}
	if err := fail(t, b, j, "it hangs"); err != nil {
		t.Fatal(err)
	}
	if appends != 1 || ends != 1 {
		t.Errorf("%d appends, the end was told %d times; want one each", appends, ends)
	}
	run := b.Run(t, j)
	if run.Status != loop.RunFailed || run.Reason != "forced" || run.Error != "the run was ended by force: it hangs" || run.WorkerID != "" {
		t.Errorf("run %+v; want it failed by force", run)
	}
	if err := fail(t, b, j, "again"); !errors.Is(err, loop.ErrRunEnded) {
		t.Errorf("a second time gives %v; want that it has ended", err)
	}
	log.FailAppends(nil)
	return checked(t, b, j.SessionID)
}

func TestFailRunByForce(t *testing.T) {
	t.Parallel()
	t.Run("Queued", func(t *testing.T) {
		t.Parallel()
		b := looptest.NewBench(looptest.NewLog(), says("no"))
		j := b.Start(t, b.Session(t), "hi")
		failedNow(t, b, j)
		if run := b.Advance(t, j); run.Status != loop.RunFailed {
			t.Errorf("its job makes it %s", run.Status)
		}
		goesOn(t, b, j.SessionID)
	})
	t.Run("Enqueued", func(t *testing.T) {
		t.Parallel()
		b := looptest.NewBench(looptest.NewLog(), says("no"))
		first := b.Start(t, b.Session(t), "hi")
		j := b.Say(t, first.SessionID, "and then?", event.PolicyEnqueue)
		failedNow(t, b, j)
		if run := b.Advance(t, first); run.Status != loop.RunCompleted {
			t.Errorf("the active run is %s", run.Status)
		}
		goesOn(t, b, j.SessionID)
	})
	t.Run("OnADeadWorker", func(t *testing.T) {
		t.Parallel()
		b := looptest.NewBench(looptest.NewLog(), says("no"))
		j := b.Start(t, b.Session(t), "hi")
		claimed(t, b, j, "w", 1)
		before := b.Run(t, j)
		events, s := failedNow(t, b, j)
		if got := only[event.RunReleased](t, events); got.Cause != event.ReleaseForced || got.WorkerID != "w" || got.Epoch != before.Epoch+1 {
			t.Errorf("released %+v", got)
		}
		zombie := loop.Append{
			ID: looptest.NewID(), TenantID: looptest.Tenant, SessionID: j.SessionID, Expected: s.LastSeq, Epoch: before.Epoch,
			Events: []event.Event{fact(t, 1, event.TurnStarted{})},
		}
		if _, err := b.Log.Append(t.Context(), zombie); !errors.Is(err, loop.ErrLeaseLost) {
			t.Errorf("what the worker still says gives %v; want that it is refused", err)
		}
		if release(t, b, j, "w") {
			t.Error("the sweeper released it once more")
		}
		goesOn(t, b, j.SessionID)
	})
	t.Run("OnALiveWorkerInATool", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := looptest.NewBench(looptest.NewLog(), calls("obeys"), blocks("obeys", nil))
			j := b.Start(t, b.Session(t), "hi")
			w := work(t, b, j)
			synctest.Wait()
			_, s := failedNow(t, b, j)
			if err := w.wait(t); !errors.Is(err, loop.ErrLeaseLost) {
				t.Errorf("the worker returned %v; want that its lease is lost", err)
			}
			if got := results(s); len(got) != 1 || got[0].Reason != hooks.ReasonOutcomeUnknown {
				t.Errorf("results %+v; want outcome unknown", got)
			}
			if _, after := checked(t, b, j.SessionID); after.LastSeq != s.LastSeq {
				t.Error("the worker wrote something after the end")
			}
			goesOn(t, b, j.SessionID)
		})
	})
	t.Run("WaitingForAPerson", func(t *testing.T) {
		t.Parallel()
		b := looptest.NewBench(looptest.NewLog(), calls("look"), looptest.Says("look", "seen"))
		permit(b, loop.Permission{Tools: "look", Mode: loop.PermissionAsk})
		j := b.Start(t, b.Session(t), "hi")
		if run := b.Advance(t, j); run.Status != loop.RunWaiting {
			t.Fatalf("the run is %s; want waiting", run.Status)
		}
		events, s := failedNow(t, b, j)
		answer := only[event.ApprovalDecided](t, events)
		if answer.Decision != event.DecisionCancelled || answer.Reason != "forced" {
			t.Errorf("the approval got %+v", answer)
		}
		if got := results(s); len(got) != 1 || got[0].Reason != hooks.ReasonCancelled {
			t.Errorf("results %+v; want that it was not run", got)
		}
		_, err := b.Commands.DecideApproval(t.Context(), loop.DecideApproval{
			TenantID: looptest.Tenant, ApprovalID: answer.ApprovalID, Approve: true, Actor: looptest.Tester,
		})
		if !errors.Is(err, loop.ErrDecided) {
			t.Errorf("a late answer gives %v", err)
		}
		goesOn(t, b, j.SessionID)
	})
}

// TestFailRunByForceLetsTheNextBegin: a session does not hang on a run that hung.
func TestFailRunByForceLetsTheNextBegin(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	j := b.Start(t, b.Session(t), "first")
	claimed(t, b, j, "w", 1)
	next, err := b.Commands.StartRun(t.Context(), loop.StartRun{
		TenantID: looptest.Tenant, SessionID: j.SessionID, Text: "second", Policy: event.PolicyEnqueue, Actor: looptest.Tester,
	})
	if err != nil || !next.Enqueued {
		t.Fatalf("%+v, %v; want it enqueued", next, err)
	}
	failedNow(t, b, j)
	if run := b.Advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: next.RunID, Ticket: 1}); run.Status != loop.RunCompleted {
		t.Errorf("the next run is %s; want completed", run.Status)
	}
}

func TestFailRunByForceWantsAReason(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("no"))
	j := b.Start(t, b.Session(t), "hi")
	var invalid *loop.InvalidError
	if err := fail(t, b, j, " "); !errors.As(err, &invalid) || invalid.Field != "reason" {
		t.Errorf("got %v", err)
	}
	j.RunID = looptest.NewID()
	if err := fail(t, b, j, "x"); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("a run that is none gives %v", err)
	}
}
