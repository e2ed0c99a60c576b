package hooks_test

import (
	"context"
	"errors"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// alone calls a chain as a hook would that has one inside.
func alone[In hooks.Input[In, Out], Out hooks.Result](t *testing.T, in In, outs ...Out) Out {
	t.Helper()
	var chain []hooks.Func[In, Out]
	for _, out := range outs {
		chain = append(chain, hooks.Named("x", "1", func(context.Context, In) (Out, error) { return out, nil }))
	}
	got, err := hooks.Compose(chain...)(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestChainCalledDirectlyGivesItsVerdict(t *testing.T) {
	t.Parallel()
	const transform = hooks.ActionTransform
	expect(t, "input", alone(t, hooks.BeforeInput{Text: "a"},
		hooks.BeforeInputResult{Action: transform, Text: p("b")}, hooks.BeforeInputResult{Action: transform, Text: p("c")}),
		hooks.BeforeInputResult{Action: transform, Text: p("c")})
	expect(t, "handled", alone(t, hooks.BeforeInput{}, hooks.BeforeInputResult{Action: hooks.ActionHandled, Reply: "r"}),
		hooks.BeforeInputResult{Action: hooks.ActionHandled, Reply: "r"})
	before := runStart()
	before.Hidden = []hooks.HiddenMessage{{Role: hooks.RoleUser, Text: "old"}}
	expect(t, "run start", alone(t, before,
		hooks.BeforeRunStartResult{Action: transform, System: p("s")},
		hooks.BeforeRunStartResult{Action: transform, Append: []hooks.HiddenMessage{{Role: hooks.RoleUser, Text: "new"}}}),
		hooks.BeforeRunStartResult{Action: transform, System: p("s"), Append: []hooks.HiddenMessage{{Role: hooks.RoleUser, Text: "new"}}, Tools: &[]string{"look", "find", "rm"}})
	expect(t, "context", alone(t, hooks.TransformContext{}, hooks.TransformContextResult{Action: transform, Messages: &[]hooks.Message{said("a")}}),
		hooks.TransformContextResult{Action: transform, Messages: &[]hooks.Message{said("a")}})
	expect(t, "headers", alone(t, headers(), setting(header{"X-A", "1"}, header{"X-Trace-Id", "t-2"}), headersResult{Action: transform, Remove: []string{"Accept"}}),
		headersResult{Action: transform, Set: []header{{"X-A", "1"}, {"X-Trace-Id", "t-2"}}, Remove: []string{"Accept"}})
	expect(t, "headers left alone", alone(t, headers(), headersResult{Action: hooks.ActionContinue}), headersResult{Action: hooks.ActionContinue})
	expect(t, "body", alone(t, request(`{}`), sending(`{"a":1}`), sending(`{"a":2}`)), sending(`{"a":2}`))
	expect(t, "body refused", alone(t, request(`{}`), sending(`{"a":1}`), requestResult{Action: hooks.ActionBlock}), requestResult{Action: hooks.ActionBlock})
	expect(t, "answer", alone(t, response(), hooks.AfterProviderResponseResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "c"}}),
		hooks.AfterProviderResponseResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "c"}})
	expect(t, "call", alone(t, zone("-"), callResult{Action: transform, Arguments: p("x")}, callResult{Action: hooks.ActionContinue}),
		callResult{Action: transform, Arguments: p("x")})
	expect(t, "execute", alone(t, hooks.BeforeExecute{}, hooks.BeforeExecuteResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "c"}}),
		hooks.BeforeExecuteResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "c"}})
	expect(t, "output", alone(t, hooks.AfterToolCall{Content: "a", IsError: true}, hooks.AfterToolCallResult{Action: transform, IsError: p(false)}),
		hooks.AfterToolCallResult{Action: transform, Content: p("a"), IsError: p(false)})
	expect(t, "withheld", alone(t, hooks.AfterToolCall{Content: "a"}, hooks.AfterToolCallResult{Action: hooks.ActionWithhold}),
		hooks.AfterToolCallResult{Action: hooks.ActionWithhold})
}

func TestChainCalledDirectlyFailsClosed(t *testing.T) {
	t.Parallel()
	broken := hooks.Named("x", "1", func(context.Context, call) (callResult, error) { panic("boom") })
	out, err := broken(t.Context(), zone("-"))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "answer", []any{out.Action, out.Reason.Code}, []any{hooks.ActionBlock, "hook.panic"})

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = broken(ctx, zone("-")); !errors.Is(err, context.Canceled) {
		t.Errorf("of a run that is over: %v", err)
	}
}

// TestChangeAndAskDoNotFitOneResult: a person would approve something else
// than what runs.
func TestChangeAndAskDoNotFitOneResult(t *testing.T) {
	t.Parallel()
	inner := hooks.Compose(hooks.Named("m", "1", rewrites("UTC")), hooks.Named("a", "1", says(callResult{Action: hooks.ActionAsk})))
	if _, err := inner(t.Context(), zone("-")); err == nil {
		t.Error("no error")
	}
	v, ds := ask(t, hooks.Named("outer", "1", inner), zone("-"))
	expect(t, "decisions", told(ds), []string{"1/1 mutate outer block error"})
	expect(t, "verdict", v.Action, hooks.ActionBlock)
}

// TestHookInsideAHookHasNoRow: the name at the gate counts, and a foreign func
// around a named one is a hook without a name.
func TestHookInsideAHookHasNoRow(t *testing.T) {
	t.Parallel()
	guard := hooks.Named("guard", "1", says(callResult{Action: hooks.ActionBlock}))
	around := func(ctx context.Context, in call) (callResult, error) { return guard(ctx, in) }
	_, ds := ask(t, hooks.Compose(hooks.Named("renamed", "1", hooks.Compose(hooks.Named("m", "1", rewrites("x")), hooks.Named("n", "1", continues()))), around), zone("-"))
	expect(t, "decisions", told(ds), []string{"1/2 mutate renamed transform", "2/2 mutate anonymous/2 block"})
}
