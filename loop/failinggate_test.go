package loop_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// failures are the ways in which a hook gives no answer.
var failures = map[hooks.Outcome]func(ctx context.Context) error{
	hooks.OutcomeError: func(context.Context) error { return errors.New("the cause is secret") },
	hooks.OutcomePanic: func(context.Context) error { panic("the cause is secret") },
	hooks.OutcomeTimeout: func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	},
	hooks.OutcomeMalformed: func(context.Context) error { return nil },
	"timeout, deaf": func(context.Context) error {
		pause(context.Background(), time.Minute)
		return nil
	},
}

// broken is a hook that fails.
func broken[In, Out any](fail func(context.Context) error) func(context.Context, In) (Out, error) {
	return func(ctx context.Context, _ In) (out Out, err error) { return out, fail(ctx) }
}

// failingAt are sets of one hook that fails closed.
func failingAt(fail func(context.Context) error) map[hooks.Gate]hooks.Hooks {
	return map[hooks.Gate]hooks.Hooks{
		hooks.GateBeforeInput:      {BeforeInput: hooks.Named("h", "1", broken[hooks.BeforeInput, hooks.BeforeInputResult](fail))},
		hooks.GateBeforeRunStart:   {BeforeRunStart: hooks.Named("h", "1", broken[hooks.BeforeRunStart, hooks.BeforeRunStartResult](fail))},
		hooks.GateTransformContext: {TransformContext: hooks.Named("h", "1", broken[hooks.TransformContext, hooks.TransformContextResult](fail))},
		hooks.GateBeforeProviderHeaders: {
			BeforeProviderHeaders: hooks.Named("h", "1", broken[hooks.BeforeProviderHeaders, hooks.BeforeProviderHeadersResult](fail)),
		},
		hooks.GateBeforeProviderRequest: {
			BeforeProviderRequest: hooks.Named("h", "1", broken[hooks.BeforeProviderRequest, hooks.BeforeProviderRequestResult](fail)),
		},
		hooks.GateAfterProviderResponse: {
			AfterProviderResponse: hooks.Named("h", "1", broken[hooks.AfterProviderResponse, hooks.AfterProviderResponseResult](fail), hooks.OnFailureClosed()),
		},
		hooks.GateBeforeToolCall: {BeforeToolCall: hooks.Named("h", "1", broken[hooks.BeforeToolCall, hooks.BeforeToolCallResult](fail))},
		hooks.GateBeforeExecute:  {BeforeExecute: hooks.Named("h", "1", broken[hooks.BeforeExecute, hooks.BeforeExecuteResult](fail))},
		hooks.GateAfterToolCall:  {AfterToolCall: hooks.Named("h", "1", broken[hooks.AfterToolCall, hooks.AfterToolCallResult](fail))},
	}
}

// TestFailingHookOpensNothing: a hook that gives no answer is a no, at every
// gate and however it fails, and the ledger says how.
func TestFailingHookOpensNothing(t *testing.T) {
	t.Parallel()
	for how, fail := range failures {
		outcome := hooks.Outcome(strings.TrimSuffix(string(how), ", deaf"))
		for gate, set := range failingAt(fail) {
			t.Run(string(gate)+"/"+string(how), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { failsClosed(t, gate, outcome, set) })
			})
		}
	}
}

// TestFailingAnswerHookLetsTheAnswerThrough: the call is made and paid for. The
// ledger says so each time.
func TestFailingAnswerHookLetsTheAnswerThrough(t *testing.T) {
	t.Parallel()
	for how, fail := range failures {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := looptest.NewBench(looptest.NewLog(), &looptest.Provider{Plays: strict(t, calls("look"))}, looptest.Says("look", "seen"))
				b.Use(hooks.Hooks{AfterProviderResponse: broken[hooks.AfterProviderResponse, hooks.AfterProviderResponseResult](fail)})
				j := b.Start(t, b.Session(t), "hi")
				if run := b.Advance(t, j); run.Status != loop.RunCompleted || len(run.Turns) != 2 {
					t.Errorf("run %+v", run)
				}
				_, s := checked(t, b, j.SessionID)
				if m := s.Messages[len(s.Messages)-1]; m.Text() != "done" {
					t.Errorf("the answer is %+v", m)
				}
				rec := ledger(b, j.SessionID)
				if len(rec) != 2 {
					t.Fatalf("ledger %v", rows(rec))
				}
				outcome := hooks.Outcome(strings.TrimSuffix(string(how), ", deaf"))
				for i, r := range rec {
					if r.Gate != hooks.GateAfterProviderResponse || r.Turn != i+1 || r.Action != hooks.ActionContinue || !r.FailedOpen || !r.Effective ||
						r.Outcome != outcome || r.FailurePolicy != hooks.FailOpen || r.ReasonCode != "hook."+string(outcome) {
						t.Errorf("row %+v", r.Row)
					}
				}
				pause(t.Context(), 2*time.Minute) // the deaf ones come back
			})
		})
	}
}

func failsClosed(t *testing.T, gate hooks.Gate, outcome hooks.Outcome, set hooks.Hooks) {
	var c counted
	var r requests
	p := &looptest.Provider{Plays: strict(t, r.model(calls("charge")))}
	b := looptest.NewBench(looptest.NewLog(), p, c.tool("charge"))
	b.Use(set)
	id := b.Session(t)
	begin := time.Now()
	started, err := say(t, b, id, "hi", "")
	if errors.Is(err, loop.ErrBlocked) != (gate == hooks.GateBeforeInput) {
		t.Errorf("start: %v", err)
	}
	var run loop.Run
	if err == nil {
		run = b.Advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: started.RunID, Ticket: 1})
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
	events, s := checked(t, b, id)
	blockedRun := slices.Contains([]hooks.Gate{
		hooks.GateBeforeRunStart, hooks.GateTransformContext,
		hooks.GateBeforeProviderHeaders, hooks.GateBeforeProviderRequest, hooks.GateAfterProviderResponse,
	}, gate)
	if sent := len(p.Sent()) > 0; blockedRun && sent != (gate == hooks.GateAfterProviderResponse) {
		t.Errorf("sent %+v", p.Sent())
	}
	if (run.Reason == string(event.FailBlocked)) != blockedRun || blockedRun && len(r.all) != 0 {
		t.Errorf("run %+v, %d model calls", run, len(r.all))
	}
	if n := len(c.sorted()); n != 0 != (gate == hooks.GateAfterToolCall) {
		t.Errorf("the tool ran %d times", n)
	}
	switch gate {
	case hooks.GateBeforeToolCall, hooks.GateBeforeExecute:
		if got := results(s)[0]; got.Reason != hooks.ReasonBlocked || !strings.Contains(got.Content, "The check h gave no usable answer") {
			t.Errorf("result %+v; want it to say that the check failed", got)
		}
	case hooks.GateAfterToolCall:
		if got := results(s)[0]; got.Reason != hooks.ReasonWithheld || got.Content != hooks.WithheldText || got.IsError {
			t.Errorf("result %+v; want it withheld", got)
		}
	case hooks.GateBeforeInput, hooks.GateBeforeRunStart, hooks.GateTransformContext,
		hooks.GateBeforeProviderHeaders, hooks.GateBeforeProviderRequest, hooks.GateAfterProviderResponse, hooks.GateOnChunk, hooks.GateOnEnd:
	}
	rec := ledger(b, id)
	if len(rec) != 1 || rec[0].Gate != gate || rec[0].Outcome != outcome || rec[0].FailedOpen || rec[0].ReasonCode != "hook."+string(outcome) ||
		rec[0].Action != hooks.ActionBlock && rec[0].Action != hooks.ActionWithhold {
		t.Errorf("ledger %v %+v", rows(rec), rec)
	}
	for _, e := range events {
		if strings.Contains(string(e.Payload), "the cause is secret") {
			t.Errorf("event %d tells the cause: %s", e.Seq, e.Payload)
		}
	}
	pause(t.Context(), 2*time.Minute) // the deaf ones come back
	if n := b.Engine.Asker.Abandoned() + b.Commands.Asker.Abandoned(); n != 0 {
		t.Errorf("%d hooks still run", n)
	}
}
