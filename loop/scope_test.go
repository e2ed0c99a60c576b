package loop_test

import (
	"context"
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// always is a hook about some things that has one answer.
func always[In hooks.Input[In, Out], Out hooks.Result](out Out, about hooks.Scope, opts ...hooks.Option) hooks.Func[In, Out] {
	answer := func(context.Context, In) (Out, error) { return out, nil }
	return hooks.Named("guard", "1", answer, append(opts, hooks.Only(about))...)
}

// TestHooksAboutSomethingElseLeaveNoRow, and where no hook of a gate is about
// what happens there, the run goes on as without any.
func TestHooksAboutSomethingElseLeaveNoRow(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]hooks.Option{nil, {hooks.Pure()}} {
		var c counted
		b := looptest.NewBench(looptest.NewLog(), &looptest.Provider{Plays: strict(t, calls("one", "two"))}, c.tool("one"), c.tool("two"))
		nobody, two := hooks.Scope{Agents: []string{"nobody"}}, hooks.Scope{Tools: []string{"tw?"}}
		const no, yes = hooks.ActionBlock, hooks.ActionContinue
		b.Use(hooks.Hooks{
			BeforeInput:           always[hooks.BeforeInput](hooks.BeforeInputResult{Action: no}, nobody, opts...),
			BeforeRunStart:        always[hooks.BeforeRunStart](hooks.BeforeRunStartResult{Action: no}, nobody, opts...),
			TransformContext:      always[hooks.TransformContext](hooks.TransformContextResult{Action: no}, nobody, opts...),
			BeforeProviderHeaders: always[hooks.BeforeProviderHeaders](hooks.BeforeProviderHeadersResult{Action: no}, nobody, opts...),
			BeforeProviderRequest: always[hooks.BeforeProviderRequest](hooks.BeforeProviderRequestResult{Action: no}, nobody, opts...),
			AfterProviderResponse: always[hooks.AfterProviderResponse](hooks.AfterProviderResponseResult{Action: no}, nobody, opts...),
			BeforeToolCall:        always[hooks.BeforeToolCall](hooks.BeforeToolCallResult{Action: yes}, two, opts...),
			BeforeExecute:         always[hooks.BeforeExecute](hooks.BeforeExecuteResult{Action: no}, two, opts...),
			AfterToolCall:         always[hooks.AfterToolCall](hooks.AfterToolCallResult{Action: hooks.ActionWithhold}, two, opts...),
		})
		j := b.Start(t, b.Session(t), "hi")
		if run := b.Advance(t, j); run.Status != loop.RunCompleted {
			t.Errorf("run %+v", run)
		}
		_, s := checked(t, b, j.SessionID)
		if got := told(s); len(got) != 2 || got[0] != "one ran" || !slices.Equal(c.sorted(), []string{"one {}"}) {
			t.Errorf("results %q, ran %q", got, c.sorted())
		}
		if got, want := rows(ledger(b, j.SessionID)), []string{"BeforeToolCall guard continue", "BeforeExecute guard block"}; !slices.Equal(got, want) {
			t.Errorf("ledger %q; want %q", got, want)
		}
	}
}

// TestHooksAboutSomethingElseCostNoAppend, pure or not: what is not asked needs no
// durable facts.
func TestHooksAboutSomethingElseCostNoAppend(t *testing.T) {
	t.Parallel()
	want := lookedUp(t, nil, noGate).steps(t)
	g := lookedUp(t, nil, noGate)
	nobody, other := hooks.Scope{Agents: []string{"nobody"}}, hooks.Scope{Tools: []string{"other_*"}}
	const no = hooks.ActionBlock
	g.Use(hooks.Hooks{
		BeforeInput:           always[hooks.BeforeInput](hooks.BeforeInputResult{Action: no}, nobody),
		BeforeRunStart:        always[hooks.BeforeRunStart](hooks.BeforeRunStartResult{Action: no}, nobody),
		TransformContext:      always[hooks.TransformContext](hooks.TransformContextResult{Action: no}, nobody),
		BeforeProviderHeaders: always[hooks.BeforeProviderHeaders](hooks.BeforeProviderHeadersResult{Action: no}, nobody),
		BeforeProviderRequest: always[hooks.BeforeProviderRequest](hooks.BeforeProviderRequestResult{Action: no}, nobody),
		BeforeToolCall:        always[hooks.BeforeToolCall](hooks.BeforeToolCallResult{Action: no}, other),
		BeforeExecute:         always[hooks.BeforeExecute](hooks.BeforeExecuteResult{Action: no}, other),
		AfterToolCall:         always[hooks.AfterToolCall](hooks.AfterToolCallResult{Action: hooks.ActionWithhold}, other),
	})
	if got := g.steps(t); !slices.Equal(got, want) {
		t.Errorf("appends %q; want %q", got, want)
	}
}
