package loop_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
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

// outside is the world in which a tool takes effect: it counts for itself, by
// the idempotency key.
type outside struct {
	mu       sync.Mutex
	entered  []loop.ToolInput
	effects  map[string]int
	hangs    bool // the first attempt never returns
	cutShort bool // it does not even take effect
}

func (o *outside) tool(name string) looptest.Tool {
	return looptest.Tool{Name: name, Run: func(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
		o.mu.Lock()
		o.entered = append(o.entered, in)
		hang := o.hangs && in.Attempt == 1
		if o.effects == nil {
			o.effects = map[string]int{}
		}
		if !hang || !o.cutShort {
			o.effects[in.CallID]++
		}
		o.mu.Unlock()
		if hang {
			<-ctx.Done()
			return loop.ToolOutput{}, ctx.Err()
		}
		return loop.ToolOutput{Content: fmt.Sprintf("%s in attempt %d", name, in.Attempt)}, nil
	}}
}

func (o *outside) attempts() (keys map[string][]int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	keys = map[string][]int{}
	for _, in := range o.entered {
		keys[in.CallID] = append(keys[in.CallID], in.Attempt)
	}
	return keys
}

func policy(b *looptest.Bench, p loop.UnknownPolicy) {
	a := b.Engine.Agents["demo"]
	a.OnUnknown = p
	b.Engine.Agents["demo"] = a
}

// interrupted is a run whose worker died in the middle of pay, with a free
// call beside it that had ended. It is to be called in a bubble.
func interrupted(t *testing.T, p loop.UnknownPolicy, o *outside) (*looptest.Bench, loop.Job) {
	t.Helper()
	b := paying(t, p, o)
	j := b.Start(t, b.Session(t), "hi")
	return b, killedIn(t, b, j)
}

// paying has a tool that takes effect outside, whose first attempt hangs.
func paying(t *testing.T, p loop.UnknownPolicy, o *outside) *looptest.Bench {
	o.hangs = true
	b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay", "free")), o.tool("pay"), looptest.Says("free", "free ran"))
	policy(b, p)
	return b
}

// killedIn kills the first worker of j once nothing moves any more.
func killedIn(t *testing.T, b *looptest.Bench, j loop.Job) loop.Job {
	t.Helper()
	w := work(t, b, j)
	synctest.Wait()
	w.kill()
	_ = w.wait(t)
	return buried(t, b, j, w.id)
}

func answerOutcome(t testing.TB, b *looptest.Bench, id string, d event.ApprovalDecision) error {
	t.Helper()
	_, err := b.Commands.DecideApproval(t.Context(), loop.DecideApproval{
		TenantID: looptest.Tenant, ApprovalID: id, Outcome: d, Reason: "I looked", Actor: looptest.Tester,
	})
	return err
}

const (
	toldUnknown   = "outcome_unknown outcome unknown: the tool was started and then interrupted before it answered. It may have taken effect. It was not run again."
	toldConfirmed = "confirmed The tool was interrupted, and a person confirmed that it has run. Its output is unknown. It was not run again."
)

func TestPolicyReportTellsTheModel(t *testing.T) {
	t.Parallel()
	for _, p := range []loop.UnknownPolicy{"", loop.UnknownReport} {
		synctest.Test(t, func(t *testing.T) {
			var o outside
			b, j := interrupted(t, p, &o)
			run := b.Advance(t, j)
			_, s := checked(t, b, j.SessionID)
			if got := told(s); run.Status != loop.RunCompleted || !slices.Equal(got, []string{toldUnknown, "free ran"}) || len(o.entered) != 1 {
				t.Errorf("%q: %s, told %q, entered %v", p, run.Status, got, o.attempts())
			}
		})
	}
}

func TestPolicyFailEndsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o outside
		b, j := interrupted(t, loop.UnknownFail, &o)
		run := b.Advance(t, j)
		key := o.entered[0].CallID
		if run.Status != loop.RunFailed || run.Reason != string(event.FailOutcomeUnknown) || !strings.Contains(run.Error, "whether pay has taken effect") || !strings.Contains(run.Error, key) {
			t.Errorf("%s %s %q", run.Status, run.Reason, run.Error)
		}
		_, s := checked(t, b, j.SessionID)
		if got := told(s); !slices.Equal(got, []string{toldUnknown, "free ran"}) {
			t.Errorf("told %q", got)
		}
		// Who takes it up knows that: nothing is run again.
		if run := b.Advance(t, retaken(t, b, j)); run.Status != loop.RunCompleted || len(o.entered) != 1 {
			t.Errorf("taken up again: %s %q, entered %v", run.Status, run.Error, o.attempts())
		}
		checked(t, b, j.SessionID)
	})
}

// TestPolicyFailRunsNothingElse: a call that was not begun has a result that
// says so, and one that waited for people no question any more.
func TestPolicyFailRunsNothingElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := outside{hangs: true}
		b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay", "ask")), o.tool("pay"), o.tool("ask"))
		permit(b, loop.Permission{Tools: "ask", Mode: loop.PermissionAsk})
		policy(b, loop.UnknownFail)
		j := killedIn(t, b, b.Start(t, b.Session(t), "hi"))
		run := b.Advance(t, j)
		events, s := checked(t, b, j.SessionID)
		if got := told(s); run.Reason != string(event.FailOutcomeUnknown) || !slices.Equal(got, []string{toldUnknown, "not_run This call was not run: the run ended first."}) {
			t.Errorf("%s, told %q", run.Reason, got)
		}
		if d := only[event.ApprovalDecided](t, events); d.Decision != event.DecisionCancelled || d.Reason != string(event.FailOutcomeUnknown) {
			t.Errorf("decided %+v", d)
		}
	})
}

// TestPolicyAsk: the run waits, and goes on as the person says.
func TestPolicyAsk(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer   event.ApprovalDecision
		told     string
		attempts []int
		effects  int
	}{
		"it happened":       {event.DecisionHappened, toldConfirmed, []int{1}, 1},
		"it did not happen": {event.DecisionDidNotHappen, "pay in attempt 2", []int{1, 2}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := outside{cutShort: c.answer == event.DecisionDidNotHappen}
				b, j := interrupted(t, loop.UnknownAsk, &o)
				run := b.Advance(t, j)
				open := openApprovals(t, b, j)
				if run.Status != loop.RunWaiting || run.WorkerID != "" || len(open) != 1 {
					t.Fatalf("run %s held by %q, open %v", run.Status, run.WorkerID, open)
				}
				key := o.entered[0].CallID
				asked := only[event.ApprovalRequested](t, b.Events(t, j.SessionID))
				if asked.Kind != event.ApprovalOfOutcome || asked.By != "on_unknown" || asked.CallID != key || asked.Arguments != "{}" || !strings.Contains(asked.Reason, key) {
					t.Errorf("asked %+v", asked)
				}
				if err := answerOutcome(t, b, open[0], c.answer); err != nil {
					t.Fatal(err)
				}
				if run := b.Advance(t, next(t, b, j)); run.Status != loop.RunCompleted {
					t.Errorf("run %s %q", run.Status, run.Error)
				}
				_, s := checked(t, b, j.SessionID)
				if got := told(s); !slices.Equal(got, []string{c.told, "free ran"}) || results(s)[0].IsError {
					t.Errorf("told %q, %+v", got, results(s)[0])
				}
				if got := o.attempts(); !reflect.DeepEqual(got, map[string][]int{key: c.attempts}) || o.effects[key] != c.effects {
					t.Errorf("entered %v, effects %v; want %s with %v", got, o.effects, key, c.attempts)
				}
			})
		})
	}
}

// TestPolicyAskWhereNothingHasToBeAsked: an idempotent tool is run again, one
// that has returned is known to have run, and nobody is asked where there is
// nobody.
func TestPolicyAskWhereNothingHasToBeAsked(t *testing.T) {
	t.Parallel()
	t.Run("idempotent", func(t *testing.T) {
		t.Parallel()
		for _, p := range []loop.UnknownPolicy{loop.UnknownAsk, loop.UnknownFail} {
			synctest.Test(t, func(t *testing.T) {
				o := outside{hangs: true}
				again := o.tool("pay")
				again.Idempotent = true
				b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay")), again)
				policy(b, p)
				j := killedIn(t, b, b.Start(t, b.Session(t), "hi"))
				if run := b.Advance(t, j); run.Status != loop.RunCompleted || len(o.entered) != 2 {
					t.Errorf("%s: run %s %q, entered %v", p, run.Status, run.Error, o.attempts())
				}
				checked(t, b, j.SessionID)
			})
		}
	})
	t.Run("unattended", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var o outside
			b, j := interrupted(t, loop.UnknownAsk, &o)
			a := b.Engine.Agents["demo"]
			a.Unattended = true
			b.Engine.Agents["demo"] = a
			run := b.Advance(t, j)
			_, s := checked(t, b, j.SessionID)
			if got := told(s); run.Status != loop.RunCompleted || got[0] != toldUnknown || len(o.entered) != 1 {
				t.Errorf("run %s, told %q", run.Status, got)
			}
		})
	})
	t.Run("executed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			for _, p := range []loop.UnknownPolicy{loop.UnknownAsk, loop.UnknownFail} {
				var o outside
				b, j := interrupted(t, p, &o)
				worker := looptest.NewID()
				run := b.Run(t, j)
				call := run.Turns[0].Calls[0]
				write(t, b, j, 0, event.RunResumed{WorkerID: worker, Epoch: run.Epoch + 1, Ticket: run.Ticket, Cause: event.ResumeTakeover})
				write(t, b, j, 1, event.ToolExecuted{CallID: call.ID, Attempt: 1, Success: true})
				j = buried(t, b, j, worker)
				run = b.Advance(t, j)
				_, s := checked(t, b, j.SessionID)
				if run.Status != loop.RunCompleted || results(s)[0].Reason != hooks.ReasonOutputLost {
					t.Errorf("%s: run %s %q, told %q", p, run.Status, run.Error, told(s))
				}
			}
		})
	})
}

// TestARunTimeThatIsOverInAToolIsThatWithEveryPolicy: the reason is the time.
func TestARunTimeThatIsOverInAToolIsThatWithEveryPolicy(t *testing.T) {
	t.Parallel()
	for _, p := range []loop.UnknownPolicy{loop.UnknownReport, loop.UnknownAsk, loop.UnknownFail} {
		synctest.Test(t, func(t *testing.T) {
			o := outside{hangs: true}
			b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay")), o.tool("pay"))
			policy(b, p)
			limit(b, loop.Limits{RunTime: time.Minute})
			j := b.Start(t, b.Session(t), "hi")
			run := b.Advance(t, j)
			_, s := checked(t, b, j.SessionID)
			if got := told(s); run.Reason != string(event.FailTimeout) || !slices.Equal(got, []string{toldUnknown}) {
				t.Errorf("%s: %s %q, told %q", p, run.Reason, run.Error, got)
			}
		})
	}
}

// TestAnswersToAnOutcome: the question is answered as it was asked, once, and
// by nobody after a cancel.
func TestAnswersToAnOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o outside
		b, j := interrupted(t, loop.UnknownAsk, &o)
		b.Advance(t, j)
		id := openApprovals(t, b, j)[0]
		for _, cmd := range []loop.DecideApproval{{Approve: true}, {Approve: false}, {Outcome: "maybe"}, {Outcome: event.DecisionApproved}, {Outcome: event.DecisionHappened, ArgumentsSHA256: digestOf("{ }").SHA256}} {
			cmd.TenantID, cmd.ApprovalID, cmd.Actor = looptest.Tenant, id, looptest.Tester
			if out, err := b.Commands.DecideApproval(t.Context(), cmd); !errors.Is(err, loop.ErrInvalid) || out != (loop.Decided{}) {
				t.Errorf("%+v: %+v, %v", cmd, out, err)
			}
		}
		if err := cancel(t, b, j); err != nil {
			t.Fatal(err)
		}
		events, s := checked(t, b, j.SessionID)
		if got := told(s); !slices.Equal(got, []string{toldUnknown, "free ran"}) {
			t.Errorf("told %q; want that nobody knows", got)
		}
		if d := only[event.ApprovalDecided](t, events); d.Decision != event.DecisionCancelled {
			t.Errorf("decided %+v", d)
		}
		if err := answerOutcome(t, b, id, event.DecisionHappened); !errors.Is(err, loop.ErrDecided) {
			t.Errorf("an answer after the cancel: %v", err)
		}
	})
	a := newAskingRun(t, hooks.Hooks{})
	a.Advance(t, a.job)
	if err := answerOutcome(t, a.Bench, openApprovals(t, a.Bench, a.job)[0], event.DecisionHappened); !errors.Is(err, loop.ErrInvalid) {
		t.Errorf("an outcome for a call that wants to run: %v", err)
	}
	a.waits(t, 2)
}
