package loop_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestFailingHookOpensNothing: a hook that gives no answer is a no, at every
// gate and however it fails, and the ledger says how.
func TestFailingHookOpensNothing(t *testing.T) {
	t.Parallel()
	failures := map[hooks.Outcome]func(ctx context.Context) error{
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
	for how, fail := range failures {
		outcome := hooks.Outcome(strings.TrimSuffix(string(how), ", deaf"))
		sets := map[hooks.Gate]hooks.Hooks{
			hooks.GateBeforeInput: {BeforeInput: hooks.Named("h", "1", func(ctx context.Context, _ hooks.BeforeInput) (hooks.BeforeInputResult, error) {
				return hooks.BeforeInputResult{}, fail(ctx)
			})},
			hooks.GateBeforeRunStart: {BeforeRunStart: hooks.Named("h", "1", func(ctx context.Context, _ hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
				return hooks.BeforeRunStartResult{}, fail(ctx)
			})},
			hooks.GateTransformContext: {TransformContext: hooks.Named("h", "1", func(ctx context.Context, _ hooks.TransformContext) (hooks.TransformContextResult, error) {
				return hooks.TransformContextResult{}, fail(ctx)
			})},
			hooks.GateBeforeToolCall: {BeforeToolCall: hooks.Named("h", "1", func(ctx context.Context, _ hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
				return hooks.BeforeToolCallResult{}, fail(ctx)
			})},
			hooks.GateBeforeExecute: {BeforeExecute: hooks.Named("h", "1", func(ctx context.Context, _ hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
				return hooks.BeforeExecuteResult{}, fail(ctx)
			})},
			hooks.GateAfterToolCall: {AfterToolCall: hooks.Named("h", "1", func(ctx context.Context, _ hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
				return hooks.AfterToolCallResult{}, fail(ctx)
			})},
		}
		for gate, set := range sets {
			t.Run(string(gate)+"/"+string(how), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { failsClosed(t, gate, outcome, set) })
			})
		}
	}
}

func failsClosed(t *testing.T, gate hooks.Gate, outcome hooks.Outcome, set hooks.Hooks) {
	var c counted
	var r requests
	b := looptest.NewBench(looptest.NewLog(), strict(t, r.model(calls("charge"))), c.tool("charge"))
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
	blockedRun := gate == hooks.GateBeforeRunStart || gate == hooks.GateTransformContext
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
		hooks.GateBeforeProviderHeaders, hooks.GateBeforeProviderRequest, hooks.GateAfterProviderResponse:
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
