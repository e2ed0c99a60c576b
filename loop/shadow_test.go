package loop_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// tried are two shadows: one that says no, and one that fails.
func tried[In hooks.Input[In, Out], Out hooks.Result](no Out, opts ...hooks.Option) hooks.Func[In, Out] {
	opts = append(opts, hooks.Shadow())
	return hooks.Compose(
		hooks.Named("no", "1", func(context.Context, In) (Out, error) { return no, nil }, opts...),
		hooks.Named("fails", "1", func(context.Context, In) (Out, error) { return no, errors.New("boom") }, opts...))
}

// strictest are shadows at every gate that would let nothing through.
func strictest(opts ...hooks.Option) hooks.Hooks {
	return hooks.Hooks{
		BeforeInput:           tried[hooks.BeforeInput](hooks.BeforeInputResult{Action: hooks.ActionHandled, Reply: "closed"}, opts...),
		BeforeRunStart:        tried[hooks.BeforeRunStart](hooks.BeforeRunStartResult{Action: hooks.ActionTransform, Tools: &[]string{}}, opts...),
		TransformContext:      tried[hooks.TransformContext](hooks.TransformContextResult{Action: hooks.ActionTransform, Messages: &[]hooks.Message{}}, opts...),
		BeforeProviderHeaders: tried[hooks.BeforeProviderHeaders](hooks.BeforeProviderHeadersResult{Action: hooks.ActionBlock}, opts...),
		BeforeProviderRequest: tried[hooks.BeforeProviderRequest](hooks.BeforeProviderRequestResult{Action: hooks.ActionBlock}, opts...),
		AfterProviderResponse: tried[hooks.AfterProviderResponse](hooks.AfterProviderResponseResult{Action: hooks.ActionBlock}, opts...),
		BeforeToolCall:        tried[hooks.BeforeToolCall](hooks.BeforeToolCallResult{Action: hooks.ActionAsk}, opts...),
		BeforeExecute:         tried[hooks.BeforeExecute](hooks.BeforeExecuteResult{Action: hooks.ActionBlock}, opts...),
		AfterToolCall:         tried[hooks.AfterToolCall](hooks.AfterToolCallResult{Action: hooks.ActionWithhold}, opts...),
	}
}

// TestRunGoesOnAsWithoutShadows: each of them would have stopped it, and each
// has its row. Those that are not pure cost the commits that they would cost in
// force.
func TestRunGoesOnAsWithoutShadows(t *testing.T) {
	t.Parallel()
	run := func(h hooks.Hooks) ([]string, []string, []loop.LedgerRow) {
		g := lookedUp(t, nil, noGate)
		g.Use(h)
		steps := g.steps(t)
		_, s := checked(t, g.Bench, g.id)
		return steps, told(s), ledger(g.Bench, g.id)
	}
	steps, said, _ := run(hooks.Hooks{})
	pure, pureSaid, rows := run(strictest(hooks.Pure()))
	if !slices.Equal(pure, steps) || !slices.Equal(pureSaid, said) {
		t.Errorf("with shadows\n%s\n%q\nwithout%s\n%q", lines(pure), pureSaid, lines(steps), said)
	}
	gates := map[hooks.Gate]int{}
	for _, r := range rows {
		if !r.Shadow() || r.Effective || r.FailedOpen || r.Action == hooks.ActionContinue && r.Gate != hooks.GateAfterProviderResponse {
			t.Errorf("%+v", r.Decision)
		}
		gates[r.Gate]++
	}
	for _, g := range allGates {
		if gates[g] == 0 || gates[g]%2 != 0 {
			t.Errorf("%d rows at %s", gates[g], g)
		}
	}
	durable, durableSaid, _ := run(strictest())
	if len(durable) != len(steps)+4 || !slices.Equal(durableSaid, said) {
		t.Errorf("with shadows that are not pure%s\n%q", lines(durable), durableSaid)
	}
}

// TestPeopleAreAskedAsWithoutShadows: a shadow's ask sticks to nothing, and its
// terminate ends nothing.
func TestPeopleAreAskedAsWithoutShadows(t *testing.T) {
	t.Parallel()
	for _, action := range []hooks.Action{hooks.ActionAsk, hooks.ActionTerminate, hooks.ActionBlock} {
		b := looptest.NewBench(looptest.NewLog(), strict(t, calls("look")), looptest.Says("look", "seen"))
		b.Use(hooks.Hooks{BeforeToolCall: tried[hooks.BeforeToolCall](hooks.BeforeToolCallResult{Action: action})})
		j := b.Start(t, b.Session(t), "hi")
		if run := b.Advance(t, j); run.Status != loop.RunCompleted || run.Reason == "terminated_by_hook" {
			t.Errorf("%s: %+v", action, run)
		}
	}
}
