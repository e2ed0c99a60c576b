package loop_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// askingRun is a run whose answer has four calls, p1 and p2 of which need a
// person.
type askingRun struct {
	*looptest.Bench
	counted
	requests
	job loop.Job
}

func newAskingRun(t *testing.T, h hooks.Hooks) *askingRun {
	a := &askingRun{}
	a.Bench = looptest.NewBench(looptest.NewLog(), strict(t, a.model(calls("p1", "f1", "p2", "f2"))), a.tool("p1"), a.tool("f1"), a.tool("p2"), a.tool("f2"))
	permit(a.Bench, loop.Permission{Tools: "p*", Mode: loop.PermissionAsk})
	a.Use(h)
	a.job = a.Start(t, a.Session(t), "hi")
	return a
}

// waits checks that the run waits for n people and nobody holds it.
func (a *askingRun) waits(t *testing.T, n int) {
	t.Helper()
	run := a.Run(t, a.job)
	if run.Status != loop.RunWaiting || run.WorkerID != "" || len(openApprovals(t, a.Bench, a.job)) != n {
		t.Errorf("run %s held by %q, open approvals %v; want it waiting for %d", run.Status, run.WorkerID, openApprovals(t, a.Bench, a.job), n)
	}
	h, err := a.Log.Head(t.Context(), looptest.Tenant, a.job.SessionID)
	if err != nil || h.ActiveRunID != a.job.RunID {
		t.Errorf("head %+v, %v; want the run active", h, err)
	}
	before := len(a.Events(t, a.job.SessionID))
	a.Advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: a.job.SessionID, RunID: a.job.RunID, Ticket: run.Ticket})
	if after := len(a.Events(t, a.job.SessionID)); after != before {
		t.Errorf("a worker that came by wrote %d events", after-before)
	}
}

func TestSomeCallsNeedApprovalAndOthersDoNot(t *testing.T) {
	t.Parallel()
	const no = "denied This call was denied by a person: said false. It was not run."
	for name, c := range map[string]struct {
		order []int // of the open approvals, who is answered first
		yes   [2]bool
		want  []string
		ran   []string
	}{
		"no to the second, yes to the first": {[]int{1, 0}, [2]bool{true, false}, []string{"p1 ran", "f1 ran", no, "f2 ran"}, []string{"f1 {}", "f2 {}", "p1 {}"}},
		"yes to the first, no to the second": {[]int{0, 1}, [2]bool{true, false}, []string{"p1 ran", "f1 ran", no, "f2 ran"}, []string{"f1 {}", "f2 {}", "p1 {}"}},
		"yes to both":                        {[]int{1, 0}, [2]bool{true, true}, []string{"p1 ran", "f1 ran", "p2 ran", "f2 ran"}, []string{"f1 {}", "f2 {}", "p1 {}", "p2 {}"}},
		"no to both":                         {[]int{0, 1}, [2]bool{}, []string{no, "f1 ran", no, "f2 ran"}, []string{"f1 {}", "f2 {}"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAskingRun(t, hooks.Hooks{})
			a.Advance(t, a.job)
			a.waits(t, 2)
			if got := a.sorted(); !slices.Equal(got, []string{"f1 {}", "f2 {}"}) {
				t.Errorf("before any answer %q ran; want the free calls", got)
			}
			ids := openApprovals(t, a.Bench, a.job)
			events := a.Events(t, a.job.SessionID)
			if got := only[event.RunSuspended](t, events); got.Reason != "approval" || !slices.Equal(got.ApprovalIDs, ids) || events[len(events)-1].Type != event.TypeRunSuspended {
				t.Errorf("suspended %+v; want it for %v", got, ids)
			}
			jobs := len(a.Log.(*looptest.Log).Jobs())
			first := decide(t, a.Bench, ids[c.order[0]], c.yes[c.order[0]])
			if first.RunID != a.job.RunID || first.SessionID != a.job.SessionID || first.Repeated {
				t.Errorf("decided %+v", first)
			}
			a.waits(t, 1)
			if n := len(a.Log.(*looptest.Log).Jobs()); n != jobs || len(a.all) != 1 {
				t.Errorf("%d new jobs, %d model calls after one of two answers; want none", n-jobs, len(a.all))
			}
			decide(t, a.Bench, ids[c.order[1]], c.yes[c.order[1]])
			if run := a.Run(t, a.job); run.Status != loop.RunQueued || run.QueuedFor != "approval" {
				t.Errorf("run %+v; want it queued", run)
			}
			if run := a.Advance(t, next(t, a.Bench, a.job)); run.Status != loop.RunCompleted {
				t.Errorf("run %+v", run)
			}
			events, s := checked(t, a.Bench, a.job.SessionID)
			if got := told(s); !slices.Equal(got, c.want) {
				t.Errorf("results %q; want %q in call order", got, c.want)
			}
			if got := a.sorted(); !slices.Equal(got, c.ran) {
				t.Errorf("ran %q; want %q", got, c.ran)
			}
			if len(a.all) != 2 || len(a.all[1].Messages) != 6 {
				t.Errorf("%d model calls, the last with %q; want one with all four results", len(a.all), sent(a.all[len(a.all)-1]))
			}
			if got := only[event.RunResumed](t, events); got.Cause != event.ResumeApproval {
				t.Errorf("resumed %+v", got)
			}
		})
	}
}

// TestAnswerWhileTheFreeCallsRun: nobody has to wait for the suspension.
func TestAnswerWhileTheFreeCallsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c counted
		b := looptest.NewBench(looptest.NewLog(), strict(t, calls("slow", "pay")), afterTime("slow", time.Second, "slow ran"), c.tool("pay"))
		permit(b, loop.Permission{Tools: "pay", Mode: loop.PermissionAsk})
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		synctest.Wait()
		decide(t, b, openApprovals(t, b, j)[0], true)
		if err := w.wait(t); err != nil {
			t.Fatal(err)
		}
		events, s := checked(t, b, j.SessionID)
		if r, _ := s.Run(j.RunID); r.Status != loop.RunCompleted || !slices.Equal(told(s), []string{"slow ran", "pay ran"}) || slices.Contains(looptest.Types(events), event.TypeRunSuspended) {
			t.Errorf("run %+v, results %q, log %v", r, told(s), looptest.Types(events))
		}
	})
}

// TestAnswerInFrontOfTheSuspension: it comes between the plan to suspend and the
// append.
func TestAnswerInFrontOfTheSuspension(t *testing.T) {
	t.Parallel()
	a := newAskingRun(t, hooks.Hooks{})
	var once sync.Once
	hooked(a.Bench, func(ap loop.Append) {
		if has(ap, event.TypeRunSuspended) {
			once.Do(func() {
				for _, id := range openApprovals(t, a.Bench, a.job) {
					decide(t, a.Bench, id, true)
				}
			})
		}
	})
	if run := a.Advance(t, a.job); run.Status != loop.RunCompleted {
		t.Errorf("run %+v; want it to go on", run)
	}
	checked(t, a.Bench, a.job.SessionID)
	if got := a.sorted(); len(got) != 4 {
		t.Errorf("ran %q", got)
	}
}

// TestApprovalsOutliveEverything: days later another process with another
// memory goes on.
func TestApprovalsOutliveEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAskingRun(t, hooks.Hooks{})
		a.Advance(t, a.job)
		ids := openApprovals(t, a.Bench, a.job)
		second := looptest.NewBench(a.Log, a.Engine.Agents["demo"].Model)
		second.Engine.Agents = a.Engine.Agents
		pause(t.Context(), 72*time.Hour)
		if got := openApprovals(t, second, a.job); !slices.Equal(got, ids) {
			t.Errorf("open approvals %v; want %v", got, ids)
		}
		decide(t, second, ids[0], true)
		pause(t.Context(), 72*time.Hour)
		decide(t, second, ids[1], true)
		if run := second.Advance(t, next(t, second, a.job)); run.Status != loop.RunCompleted || len(a.sorted()) != 4 {
			t.Errorf("run %+v, ran %q", run, a.sorted())
		}
		checked(t, second, a.job.SessionID)
	})
}

// TestManyDecideAtOnce: one answer stands, everybody else is told which.
func TestManyDecideAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		var c counted
		b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay")), c.tool("pay"))
		permit(b, loop.Permission{Tools: "*", Mode: loop.PermissionAsk})
		j := b.Start(t, b.Session(t), "hi")
		b.Advance(t, j)
		id := openApprovals(t, b, j)[0]
		command := func(i int) loop.DecideApproval {
			return loop.DecideApproval{
				TenantID: looptest.Tenant, ApprovalID: id, Approve: i%2 == 0, ArgumentsSHA256: digestOf("{}").SHA256,
				Actor: event.Actor{Kind: event.ActorPrincipal, ID: fmt.Sprintf("person-%d", i)},
			}
		}
		const people = 40
		var all sync.WaitGroup
		errs, outs := make([]error, people), make([]loop.Decided, people)
		for i := range people {
			all.Go(func() { outs[i], errs[i] = b.Commands.DecideApproval(t.Context(), command(i)) })
		}
		all.Wait()
		winner := -1
		for i, err := range errs {
			if err == nil {
				if winner >= 0 {
					t.Fatalf("both %d and %d won", winner, i)
				}
				winner = i
			}
		}
		if winner < 0 {
			t.Fatalf("nobody won: %v", errs)
		}
		events, _ := checked(t, b, j.SessionID)
		stored := only[event.ApprovalDecided](t, events)
		want := loop.DecidedError{Decision: stored.Decision, By: command(winner).Actor}
		for _, e := range events {
			if e.Type == event.TypeApprovalDecided {
				want.At = e.At
			}
		}
		for i, err := range errs {
			var decided *loop.DecidedError
			if i != winner && (!errors.As(err, &decided) || !errors.Is(err, loop.ErrDecided) || *decided != want || !strings.Contains(err.Error(), want.By.ID)) {
				t.Errorf("person %d: %v; want %v", i, err, &want)
			}
		}
		again, err := b.Commands.DecideApproval(t.Context(), command(winner))
		repeated := outs[winner]
		repeated.Repeated = true
		if err != nil || again != repeated || len(b.Events(t, j.SessionID)) != len(events) {
			t.Errorf("the winner's repeat: %+v, %v; want %+v and nothing stored", again, err, repeated)
		}
		b.Advance(t, next(t, b, j))
		if ran := len(c.sorted()); ran != 1 != (stored.Decision != event.DecisionApproved) || ran > 1 {
			t.Errorf("%s, and it ran %d times", stored.Decision, ran)
		}
		if again, err := b.Commands.DecideApproval(t.Context(), command(winner)); err != nil || again != repeated {
			t.Errorf("the winner's repeat after the end: %+v, %v", again, err)
		}
		checked(t, b, j.SessionID)
	}
}

func TestDecisionsThatAreRefused(t *testing.T) {
	t.Parallel()
	a := newAskingRun(t, hooks.Hooks{})
	a.Advance(t, a.job)
	id := openApprovals(t, a.Bench, a.job)[0]
	before := len(a.Events(t, a.job.SessionID))
	for name, c := range map[string]struct {
		cmd  loop.DecideApproval
		want error
	}{
		"other arguments":  {loop.DecideApproval{TenantID: looptest.Tenant, ApprovalID: id, ArgumentsSHA256: digestOf("{ }").SHA256}, loop.ErrInvalid},
		"another tenant's": {loop.DecideApproval{TenantID: "other", ApprovalID: id}, loop.ErrNotFound},
		"one that is none": {loop.DecideApproval{TenantID: looptest.Tenant, ApprovalID: looptest.NewID()}, loop.ErrNotFound},
		"no id":            {loop.DecideApproval{TenantID: looptest.Tenant}, loop.ErrNotFound},
		"a text for an id": {loop.DecideApproval{TenantID: looptest.Tenant, ApprovalID: "x"}, loop.ErrNotFound},
	} {
		c.cmd.Approve, c.cmd.Actor = true, looptest.Tester
		if out, err := a.Commands.DecideApproval(t.Context(), c.cmd); !errors.Is(err, c.want) || out != (loop.Decided{}) {
			t.Errorf("%s: %+v, %v; want %v", name, out, err, c.want)
		}
	}
	if n := len(a.Events(t, a.job.SessionID)); n != before {
		t.Errorf("%d events were stored", n-before)
	}
	a.Log.(*looptest.Log).FailAppends(func(loop.Append) error { return loop.ErrUnavailable })
	if _, err := a.Commands.DecideApproval(t.Context(), loop.DecideApproval{TenantID: looptest.Tenant, ApprovalID: id, Actor: looptest.Tester}); !errors.Is(err, loop.ErrUnavailable) {
		t.Errorf("%v; want ErrUnavailable", err)
	}
	a.Log.(*looptest.Log).FailAppends(nil)
	a.waits(t, 2)
}

// TestDeadWorkerLeavesItsApprovalsOpen: it died between asking people and
// letting go of the run; answers that come meanwhile count.
func TestDeadWorkerLeavesItsApprovalsOpen(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var c counted
			b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay", "slow")), c.tool("pay"), blocks("slow", nil))
			permit(b, loop.Permission{Tools: "pay", Mode: loop.PermissionAsk})
			j := b.Start(t, b.Session(t), "hi")
			w := work(t, b, j)
			synctest.Wait()
			w.kill()
			_ = w.wait(t)
			j = buried(t, b, j, w.id)
			id := openApprovals(t, b, j)[0]
			jobs := len(b.Log.(*looptest.Log).Jobs())
			if answered {
				decide(t, b, id, true)
				if n := len(b.Log.(*looptest.Log).Jobs()); n != jobs {
					t.Errorf("%d new jobs for a run that is queued", n-jobs)
				}
			}
			run := b.Advance(t, j)
			if (run.Status == loop.RunWaiting) == answered {
				t.Errorf("answered %v: run %+v", answered, run)
			}
			if !answered {
				decide(t, b, id, true)
				b.Advance(t, next(t, b, j))
			}
			_, s := checked(t, b, j.SessionID)
			if got := told(s); got[0] != "pay ran" || len(c.sorted()) != 1 || results(s)[1].Reason != hooks.ReasonOutcomeUnknown {
				t.Errorf("results %q, ran %q", got, c.sorted())
			}
		})
	}
}

// TestApprovedToolThatIsGone: another worker does not have it.
func TestApprovedToolThatIsGone(t *testing.T) {
	t.Parallel()
	a := newAskingRun(t, hooks.Hooks{})
	a.Advance(t, a.job)
	for _, id := range openApprovals(t, a.Bench, a.job) {
		decide(t, a.Bench, id, true)
	}
	agent := a.Engine.Agents["demo"]
	agent.Tools = nil
	a.Engine.Agents["demo"] = agent
	if run := a.Advance(t, next(t, a.Bench, a.job)); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
	_, s := checked(t, a.Bench, a.job.SessionID)
	if got := results(s); got[0].Reason != hooks.ReasonUnknownTool || got[2].Reason != hooks.ReasonUnknownTool {
		t.Errorf("results %+v", got)
	}
}

// TestTurnStartIsToldOfATurnThatIsTakenUpAgain after people have answered, and
// the next turn is a new one.
func TestTurnStartIsToldOfATurnThatIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	var d diary
	a := newAskingRun(t, hooks.Hooks{})
	all := d.hooks(a.Bench)
	all.OnToolExecutionStart, all.OnTurnEnd = nil, nil
	a.Use(all)
	a.Advance(t, a.job)
	for _, id := range openApprovals(t, a.Bench, a.job) {
		decide(t, a.Bench, id, true)
	}
	a.Advance(t, next(t, a.Bench, a.job))
	checked(t, a.Bench, a.job.SessionID)
	want := []string{
		"run start after run.started", "turn 1.1 resumed=false after model.requested",
		"turn 1.1 resumed=true after run.resumed",
		"turn 2.1 resumed=false after model.requested", "run completed stop after run.completed",
	}
	if !slices.Equal(d.lines, want) {
		t.Errorf("notifications\n got %q\nwant %q", d.lines, want)
	}
}

// TestDeletedSessionHasNoApprovals: and a waiting run keeps its session from
// being deleted.
func TestDeletedSessionHasNoApprovals(t *testing.T) {
	t.Parallel()
	a := newAskingRun(t, hooks.Hooks{})
	a.Advance(t, a.job)
	id := openApprovals(t, a.Bench, a.job)[0]
	if err := a.Commands.DeleteSession(t.Context(), looptest.Tenant, a.job.SessionID, looptest.Tester); !errors.Is(err, loop.ErrBusy) {
		t.Errorf("delete: %v; want ErrBusy", err)
	}
	if _, err := say(t, a.Bench, a.job.SessionID, "hello?", ""); !errors.Is(err, loop.ErrBusy) {
		t.Errorf("another message: %v; want ErrBusy", err)
	}
	if err := cancel(t, a.Bench, a.job); err != nil {
		t.Fatal(err)
	}
	if err := a.Commands.DeleteSession(t.Context(), looptest.Tenant, a.job.SessionID, looptest.Tester); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Commands.DecideApproval(t.Context(), loop.DecideApproval{TenantID: looptest.Tenant, ApprovalID: id, Actor: looptest.Tester}); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("decide: %v; want ErrNotFound", err)
	}
}
