package loop_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

func TestCancelOfAWaitingRunClosesItsApprovals(t *testing.T) {
	t.Parallel()
	a := newAskingRun(t, hooks.Hooks{})
	a.Advance(t, a.job)
	ids := openApprovals(t, a.Bench, a.job)
	decide(t, a.Bench, ids[0], false)
	jobs := len(a.Log.(*looptest.Log).Jobs())
	if err := cancel(t, a.Bench, a.job); err != nil {
		t.Fatal(err)
	}
	events, s := checked(t, a.Bench, a.job.SessionID)
	r, _ := s.Run(a.job.RunID)
	if r.Status != loop.RunCancelled || r.Reason != "enough" || len(a.Log.(*looptest.Log).Jobs()) != jobs {
		t.Errorf("run %+v; want it cancelled at once, and no worker asked", r)
	}
	all := payloads[event.ApprovalDecided](t, events)
	if len(all) != 2 || all[0].Decision != event.DecisionDenied || all[1].Decision != event.DecisionCancelled || all[1].ApprovalID != ids[1] {
		t.Errorf("decided %+v", all)
	}
	want := []string{"denied This call was denied by a person: said false. It was not run.", "f1 ran", "cancelled This call was not run: the run was cancelled first.", "f2 ran"}
	if got := told(s); !slices.Equal(got, want) {
		t.Errorf("results %q; want %q", got, want)
	}
	var decided *loop.DecidedError
	_, err := a.Commands.DecideApproval(t.Context(), loop.DecideApproval{TenantID: looptest.Tenant, ApprovalID: ids[1], Approve: true, Actor: looptest.Tester})
	if !errors.As(err, &decided) || decided.Decision != event.DecisionCancelled {
		t.Errorf("an answer after the cancel: %v; want that it was cancelled", err)
	}
	goesOn(t, a.Bench, a.job.SessionID)
}

// TestDecideRacesCancel: there is never an open approval under an ended run, what
// was approved runs at most once and what was not never, and the session takes the
// next message.
func TestDecideRacesCancel(t *testing.T) {
	t.Parallel()
	outcomes := map[loop.RunStatus]int{}
	for range 100 {
		a := newAskingRun(t, hooks.Hooks{})
		a.Advance(t, a.job)
		ids := openApprovals(t, a.Bench, a.job)
		var all sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		all.Go(func() { // a worker that takes up whatever comes
			for {
				j, err := a.Log.(*looptest.Log).TakeJob(ctx)
				if err != nil {
					return
				}
				if err := a.Engine.Advance(ctx, j, loop.Holder{WorkerID: looptest.NewID()}); err != nil && ctx.Err() == nil {
					t.Errorf("advance: %v", err)
				}
			}
		})
		var people sync.WaitGroup
		for _, id := range ids {
			people.Go(func() {
				_, err := a.Commands.DecideApproval(t.Context(), loop.DecideApproval{TenantID: looptest.Tenant, ApprovalID: id, Approve: true, Actor: looptest.Tester})
				if err != nil && !errors.Is(err, loop.ErrDecided) {
					t.Errorf("decide: %v", err)
				}
			})
		}
		people.Go(func() {
			if err := cancel(t, a.Bench, a.job); err != nil && !errors.Is(err, loop.ErrRunEnded) {
				t.Errorf("cancel: %v", err)
			}
		})
		people.Wait()
		ended := terminal(t, a.Bench, a.job)
		stop()
		all.Wait()
		events, _ := checked(t, a.Bench, a.job.SessionID)
		names := map[string]string{}
		for _, p := range payloads[event.ApprovalRequested](t, events) {
			names[p.ApprovalID] = p.Name
		}
		for _, p := range payloads[event.ApprovalDecided](t, events) {
			if p.Decision != event.DecisionApproved && slices.Contains(a.sorted(), names[p.ApprovalID]+" {}") {
				t.Errorf("%s is %s and ran", names[p.ApprovalID], p.Decision)
			}
		}
		if open := openApprovals(t, a.Bench, a.job); len(open) != 0 {
			t.Fatalf("run %s has the open approvals %v", ended.Status, open)
		}
		if got := a.sorted(); len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Fatalf("ran %q", got)
		}
		outcomes[ended.Status]++
		goesOn(t, a.Bench, a.job.SessionID)
	}
	t.Logf("ended %v", outcomes)
}

// terminal waits until the run of j has ended.
func terminal(t *testing.T, b *looptest.Bench, j loop.Job) loop.Run {
	t.Helper()
	wake, stop := b.Log.Watch(j.SessionID)
	defer stop()
	deadline := time.After(20 * time.Second)
	for {
		if run := b.Run(t, j); run.Status.Terminal() {
			return run
		}
		select {
		case <-wake:
		case <-deadline:
			t.Fatalf("the run does not end: %+v", b.Run(t, j))
		}
	}
}
