package loop_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestACallThatWasApprovedAndInterruptedIsAskedAboutAgain: what it runs with is
// what was approved, and both answers can be repeated.
func TestACallThatWasApprovedAndInterruptedIsAskedAboutAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := outside{hangs: true, cutShort: true}
		b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay")), o.tool("pay"))
		permit(b, loop.Permission{Tools: "pay", Mode: loop.PermissionAsk})
		policy(b, loop.UnknownAsk)
		j := b.Start(t, b.Session(t), "hi")
		b.Advance(t, j)
		first := openApprovals(t, b, j)[0]
		decide(t, b, first, true)
		b.Advance(t, killedIn(t, b, next(t, b, j)))
		second := openApprovals(t, b, j)[0]
		if out := decide(t, b, first, true); !out.Repeated || second == first {
			t.Errorf("the first answer again: %+v; the second question is %s", out, second)
		}
		if err := answerOutcome(t, b, first, event.DecisionHappened); !errors.Is(err, loop.ErrInvalid) {
			t.Errorf("an outcome for the first question: %v", err)
		}
		if err := answerOutcome(t, b, second, event.DecisionDidNotHappen); err != nil {
			t.Fatal(err)
		}
		if run := b.Advance(t, next(t, b, j)); run.Status != loop.RunCompleted || len(o.entered) != 2 || o.effects[o.entered[0].CallID] != 1 {
			t.Errorf("run %s %q, entered %v", run.Status, run.Error, o.attempts())
		}
		if err := answerOutcome(t, b, second, event.DecisionDidNotHappen); err != nil {
			t.Errorf("the second answer again: %v", err)
		}
		var decided *loop.DecidedError
		if err := answerOutcome(t, b, second, event.DecisionHappened); !errors.As(err, &decided) || decided.Decision != event.DecisionDidNotHappen {
			t.Errorf("another second answer: %v", err)
		}
		checked(t, b, j.SessionID)
	})
}

// TestACancelBeforeACallThatDidNotHappenRunsAgain: the result says what is
// known.
func TestACancelBeforeACallThatDidNotHappenRunsAgain(t *testing.T) {
	t.Parallel()
	for answer, want := range map[event.ApprovalDecision]string{
		event.DecisionDidNotHappen: "cancelled This call was not run: it was interrupted, and a person said that it had not taken effect; then the run ended.",
		event.DecisionHappened:     toldConfirmed,
	} {
		synctest.Test(t, func(t *testing.T) {
			var o outside
			b, j := interrupted(t, loop.UnknownAsk, &o)
			b.Advance(t, j)
			if err := answerOutcome(t, b, openApprovals(t, b, j)[0], answer); err != nil {
				t.Fatal(err)
			}
			if err := cancel(t, b, j); err != nil {
				t.Fatal(err)
			}
			_, s := checked(t, b, j.SessionID)
			if got := told(s); !slices.Equal(got, []string{want, "free ran"}) || len(o.entered) != 1 {
				t.Errorf("%s: told %q, entered %v", answer, got, o.attempts())
			}
		})
	}
}

// TestManySayWhatHappenedAtOnce: one answer stands, and the call runs again at
// most once.
func TestManySayWhatHappenedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o outside
		b, j := interrupted(t, loop.UnknownAsk, &o)
		b.Advance(t, j)
		id := openApprovals(t, b, j)[0]
		var all sync.WaitGroup
		errs := make([]error, 40)
		for i := range errs {
			all.Go(func() {
				outcome := event.DecisionHappened
				if i%2 == 0 {
					outcome = event.DecisionDidNotHappen
				}
				_, errs[i] = b.Commands.DecideApproval(t.Context(), loop.DecideApproval{
					TenantID: looptest.Tenant, ApprovalID: id, Outcome: outcome, Actor: event.Actor{Kind: event.ActorPrincipal, ID: fmt.Sprint("person-", i)},
				})
			})
		}
		all.Wait()
		won := 0
		for _, err := range errs {
			switch {
			case err == nil:
				won++
			case !errors.Is(err, loop.ErrDecided):
				t.Errorf("%v; want that somebody else has answered", err)
			}
		}
		b.Advance(t, next(t, b, j))
		events, _ := checked(t, b, j.SessionID)
		stored := only[event.ApprovalDecided](t, events)
		again := map[event.ApprovalDecision]int{event.DecisionHappened: 1, event.DecisionDidNotHappen: 2}[stored.Decision]
		if won != 1 || len(o.entered) != again {
			t.Errorf("%d answers stand, %s, and it was entered %v", won, stored.Decision, o.attempts())
		}
	})
}

// pushed takes j's run to its end, whoever holds it and whatever it waits for,
// and answers what it asks.
func pushed(t *testing.T, b *looptest.Bench, j loop.Job, answer event.ApprovalDecision) loop.Run {
	t.Helper()
	for range 20 {
		run := b.Run(t, j)
		j.Ticket = run.Ticket
		switch run.Status {
		case loop.RunRunning:
			if _, err := b.Commands.ReleaseDead(t.Context(), loop.Release{
				TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, WorkerID: run.WorkerID, Now: time.Now(), Actor: looptest.Tester,
			}); err != nil {
				t.Fatal(err)
			}
		case loop.RunQueued:
			b.Advance(t, j)
		case loop.RunWaiting:
			if err := answerOutcome(t, b, openApprovals(t, b, j)[0], answer); err != nil {
				t.Fatal(err)
			}
		case loop.RunNone, loop.RunEnqueued, loop.RunCompleted, loop.RunFailed, loop.RunCancelled:
			return run
		}
	}
	t.Fatal("the run does not end")
	return loop.Run{}
}

// TestEveryPolicyFromEveryPrefix lets another worker go on with the log as it
// was after each append of a run whose worker died in a tool. What runs again
// is what the policy and the person say, under the same id and the next attempt.
func TestEveryPolicyFromEveryPrefix(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy loop.UnknownPolicy
		answer event.ApprovalDecision
		// status and result are those of a run whose tool was started and has no
		// outcome.
		status loop.RunStatus
		result string
		again  bool
	}{
		"report":                 {loop.UnknownReport, "", loop.RunCompleted, toldUnknown, false},
		"fail":                   {loop.UnknownFail, "", loop.RunFailed, toldUnknown, false},
		"ask, it happened":       {loop.UnknownAsk, event.DecisionHappened, loop.RunCompleted, toldConfirmed, false},
		"ask, it did not happen": {loop.UnknownAsk, event.DecisionDidNotHappen, loop.RunCompleted, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var appends []loop.Append
				var o outside
				b := paying(t, c.policy, &o)
				b.Log.(*looptest.Log).FailAppends(func(a loop.Append) error {
					appends = append(appends, a)
					return nil
				})
				j := b.Start(t, b.Session(t), "hi")
				killedIn(t, b, j)
				pushed(t, b, j, c.answer)
				checked(t, b, j.SessionID)
				if len(appends) < 7 {
					t.Fatalf("%d appends", len(appends))
				}
				for n := 2; n <= len(appends); n++ {
					fromPrefix(t, appends[:n], j, c.policy, c.answer, func(run loop.Run, s loop.State, unknown bool, o *outside) {
						got, attempts := told(s), o.attempts()
						switch {
						case unknown && run.Status != c.status, run.Status == loop.RunFailed && c.status != loop.RunFailed:
							t.Errorf("the run is %s: %q", run.Status, run.Error)
						case unknown && c.result != "" && (got[0] != c.result || len(attempts) > 0):
							t.Errorf("told %q, entered %v; want %q, and nothing run again", got, attempts, c.result)
						case unknown && c.again && (len(o.entered) != 1 || o.entered[0].Attempt < 2):
							t.Errorf("entered %v; want one more attempt", attempts)
						}
						if call := run.Turns[0].Calls[0]; len(o.entered) > 0 && !reflect.DeepEqual(attempts, map[string][]int{call.ID: {call.Attempt}}) {
							t.Errorf("entered %v; the call is %s with attempt %d", attempts, call.ID, call.Attempt)
						}
					})
					if t.Failed() {
						t.Fatalf("with the first %d of %d appends, which end with %s", n, len(appends), appends[n-1].Events[len(appends[n-1].Events)-1].Type)
					}
				}
			})
		})
	}
}

// fromPrefix goes on with a log of which that much was written. unknown says
// that pay was started there and nobody knew or said what became of it.
func fromPrefix(
	t *testing.T, appends []loop.Append, j loop.Job, p loop.UnknownPolicy, answer event.ApprovalDecision,
	check func(run loop.Run, s loop.State, unknown bool, o *outside),
) {
	t.Helper()
	var o outside
	b := paying(t, p, &o)
	o.hangs = false
	for _, a := range appends {
		if _, err := b.Log.Append(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	run := b.Run(t, j)
	turn, _ := run.Turn()
	unknown := len(turn.Calls) > 0 && turn.No == 1 && (turn.Calls[0].Status == loop.CallStarted || turn.Calls[0].Status == loop.CallAwaiting)
	run = pushed(t, b, j, answer)
	_, s := checked(t, b, j.SessionID)
	check(run, s, unknown, &o)
}
