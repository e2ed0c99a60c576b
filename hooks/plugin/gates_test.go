package plugin_test

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

func p[T any](v T) *T { return &v }

var ref = hooks.RunRef{TenantID: "t", SessionID: "s", RunID: "r", Agent: "demo"}

var said = []hooks.Message{{ID: "m", Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: "hi"}}}}

// passes asks a typed hook through a plugin, which has to be handed in and to be
// understood.
func passes[In hooks.Input[In, Out], Out hooks.Result](t *testing.T, c wire.Codec[In, Out], set func(*hooks.Hooks, hooks.Func[In, Out]), in In, out Out) {
	t.Helper()
	var (
		h        hooks.Hooks
		seen     In
		decision string
	)
	set(&h, func(ctx context.Context, in In) (Out, error) {
		seen, decision = in, hooks.DecisionID(ctx)
		return out, nil
	})
	plug := told(t, plugin.Config{ID: "x", Hooks: h})
	q := c.Ask(in)
	q.DecisionId = "d"
	a, err := plug.Evaluate(t.Context(), q)
	if err != nil {
		t.Errorf("%s: %v", c.Gate, err)
		return
	}
	got, err := c.Answered(a)
	if err != nil || !reflect.DeepEqual(got, out) || !reflect.DeepEqual(seen, in) || decision != "d" {
		t.Errorf("%s: saw %+v of decision %q and answered %+v, %v\nwant %+v and %+v", c.Gate, seen, decision, got, err, in, out)
	}
	// There is no hook at any other gate.
	other := proto.Message(wire.BeforeInput.Ask(hooks.BeforeInput{}))
	if c.Gate == hooks.GateBeforeInput {
		other = wire.BeforeExecute.Ask(hooks.BeforeExecute{})
	}
	if _, err := plug.Evaluate(t.Context(), other.(*pluginv1.EvaluateRequest)); status.Code(err) != codes.Unimplemented {
		t.Errorf("%s: asked at another gate: %v", c.Gate, err)
	}
}

func TestAHookIsAskedAtItsGateOverTheWire(t *testing.T) {
	t.Parallel()
	call := hooks.ToolCall{ID: "c", Name: "n", Arguments: `{"a":9007199254740993}`}
	why, notes := hooks.Reason{Code: "c", Text: "t", Rule: "r"}, map[string]string{"k": "v"}
	passes(t, wire.BeforeInput, func(h *hooks.Hooks, f hooks.BeforeInputFunc) { h.BeforeInput = f },
		hooks.BeforeInput{TenantID: "t", SessionID: "s", InputID: "i", Agent: "a", Text: "x"},
		hooks.BeforeInputResult{Action: hooks.ActionHandled, Reason: why, Annotations: notes, Reply: "no"})
	passes(t, wire.BeforeRunStart, func(h *hooks.Hooks, f hooks.BeforeRunStartFunc) { h.BeforeRunStart = f },
		hooks.BeforeRunStart{RunRef: ref, System: "be kind", Messages: said, Hidden: []hooks.HiddenMessage{{Role: "user", Text: "x"}}, Tools: []string{"a"}},
		hooks.BeforeRunStartResult{Action: hooks.ActionTransform, System: p(""), Append: []hooks.HiddenMessage{{Role: "system", Text: "y"}}, Tools: &[]string{}})
	passes(t, wire.TransformContext, func(h *hooks.Hooks, f hooks.TransformContextFunc) { h.TransformContext = f },
		hooks.TransformContext{RunRef: ref, Turn: 1, Attempt: 2, System: "s", Messages: said},
		hooks.TransformContextResult{Action: hooks.ActionTransform, Messages: &said})
	passes(t, wire.BeforeProviderHeaders, func(h *hooks.Hooks, f hooks.BeforeProviderHeadersFunc) { h.BeforeProviderHeaders = f },
		hooks.BeforeProviderHeaders{RunRef: ref, Turn: 1, Attempt: 2, Model: "m", Headers: []hooks.Header{{Name: "X-A", Value: "1"}}},
		hooks.BeforeProviderHeadersResult{Action: hooks.ActionTransform, Set: []hooks.Header{{Name: "X-B", Value: "2"}}, Remove: []string{"X-A"}})
	passes(t, wire.BeforeProviderRequest, func(h *hooks.Hooks, f hooks.BeforeProviderRequestFunc) { h.BeforeProviderRequest = f },
		hooks.BeforeProviderRequest{RunRef: ref, Turn: 1, Attempt: 2, Model: "m", Body: "{ }"},
		hooks.BeforeProviderRequestResult{Action: hooks.ActionTransform, Body: p(`{"n":9007199254740993}`)})
	passes(t, wire.AfterProviderResponse, func(h *hooks.Hooks, f hooks.AfterProviderResponseFunc) { h.AfterProviderResponse = f },
		hooks.AfterProviderResponse{RunRef: ref, Turn: 1, Attempt: 2, Model: "m", Status: 500, Headers: []hooks.Header{{Name: "X-A", Value: "1"}}},
		hooks.AfterProviderResponseResult{Action: hooks.ActionBlock, Reason: why, Annotations: notes})
	passes(t, wire.BeforeToolCall, func(h *hooks.Hooks, f hooks.BeforeToolCallFunc) { h.BeforeToolCall = f },
		hooks.BeforeToolCall{RunRef: ref, Turn: 1, Revision: 2, Call: call},
		hooks.BeforeToolCallResult{Action: hooks.ActionTransform, Arguments: p("{}")})
	passes(t, wire.BeforeExecute, func(h *hooks.Hooks, f hooks.BeforeExecuteFunc) { h.BeforeExecute = f },
		hooks.BeforeExecute{RunRef: ref, Turn: 1, Attempt: 2, Call: call},
		hooks.BeforeExecuteResult{Action: hooks.ActionContinue})
	passes(t, wire.AfterToolCall, func(h *hooks.Hooks, f hooks.AfterToolCallFunc) { h.AfterToolCall = f },
		hooks.AfterToolCall{RunRef: ref, Turn: 1, Attempt: 2, Call: call, Content: "42", IsError: true},
		hooks.AfterToolCallResult{Action: hooks.ActionTransform, Content: p("43"), IsError: p(false)})
}

// event is what OnEvent sees and says at a gate.
func event[In hooks.Input[In, Out], Out hooks.Result](t *testing.T, c wire.Codec[In, Out], in In, wantRun string, wantTurn int, results map[*plugin.EventResult]Out) {
	t.Helper()
	for result, want := range results {
		var seen plugin.PluginEvent
		plug := told(t, plugin.Config{
			ID: "x", Events: []string{string(c.Gate)},
			OnEvent: func(_ context.Context, e plugin.PluginEvent) (plugin.EventResult, error) {
				seen = e
				return *result, nil
			},
		})
		got, err := answer(t, plug, c, in)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v is %+v, %v; want %+v", c.Gate, result, got, err, want)
		}
		payload, _ := json.Marshal(in)
		if seen.Type != string(c.Gate) || seen.Session != "s" || seen.Run != wantRun || seen.Turn != wantTurn || string(seen.Payload) != string(payload) {
			t.Errorf("%s: saw %+v", c.Gate, seen)
		}
	}
}

type results[Out any] = map[*plugin.EventResult]Out

func changing(payload string) *plugin.EventResult {
	return &plugin.EventResult{Payload: json.RawMessage(payload)}
}

func TestTheSimpleFormSaysWhatTheTypedOneDoes(t *testing.T) {
	t.Parallel()
	const go_, transform, block = hooks.ActionContinue, hooks.ActionTransform, hooks.ActionBlock
	why := hooks.Reason{Text: "no"}
	event(t, wire.BeforeInput, hooks.BeforeInput{SessionID: "s", Text: "x"}, "", 0, results[hooks.BeforeInputResult]{
		{}:                          {Action: go_},
		{Block: true, Reason: "no"}: {Action: block, Reason: why},
		{Action: "handled", Payload: json.RawMessage(`{"reply":"hi"}`)}: {Action: hooks.ActionHandled, Reply: "hi"},
		changing(`{"text":"y"}`): {Action: transform, Text: p("y")},
		// What is refused is not changed.
		{Block: true, Payload: json.RawMessage(`{"text":"y"}`)}: {Action: block},
	})
	event(t, wire.BeforeRunStart, hooks.BeforeRunStart{RunRef: ref}, "r", 0, results[hooks.BeforeRunStartResult]{
		changing(`{"system":"","append":[{"role":"user","text":"x"}],"tools":[]}`): {
			Action: transform, System: p(""), Append: []hooks.HiddenMessage{{Role: "user", Text: "x"}}, Tools: &[]string{},
		},
	})
	event(t, wire.TransformContext, hooks.TransformContext{RunRef: ref, Turn: 3}, "r", 3, results[hooks.TransformContextResult]{
		changing(`{"messages":[]}`): {Action: transform, Messages: &[]hooks.Message{}},
	})
	event(t, wire.BeforeProviderHeaders, hooks.BeforeProviderHeaders{RunRef: ref, Turn: 3}, "r", 3, results[hooks.BeforeProviderHeadersResult]{
		changing(`{"set":[{"name":"X-A","value":"1"}],"remove":["X-B"]}`): {
			Action: transform, Set: []hooks.Header{{Name: "X-A", Value: "1"}}, Remove: []string{"X-B"},
		},
	})
	event(t, wire.BeforeProviderRequest, hooks.BeforeProviderRequest{RunRef: ref, Turn: 3}, "r", 3, results[hooks.BeforeProviderRequestResult]{
		changing(`{"body":"{}"}`): {Action: transform, Body: p("{}")},
	})
	event(t, wire.AfterProviderResponse, hooks.AfterProviderResponse{RunRef: ref, Turn: 3}, "r", 3, results[hooks.AfterProviderResponseResult]{
		{}: {Action: go_}, {Block: true}: {Action: block},
	})
	event(t, wire.BeforeToolCall, hooks.BeforeToolCall{RunRef: ref, Turn: 3}, "r", 3, results[hooks.BeforeToolCallResult]{
		{}:                                 {Action: go_},
		{Block: true, Terminate: true}:     {Action: block},
		{Terminate: true, Action: "ask"}:   {Action: hooks.ActionTerminate},
		{Action: "ask", Reason: "no"}:      {Action: hooks.ActionAsk, Reason: why},
		changing(`{"arguments":"{\"\"}"}`): {Action: transform, Arguments: p(`{""}`)},
		// An action that there is not is none.
		{Action: "perhaps"}: {},
	})
	event(t, wire.BeforeExecute, hooks.BeforeExecute{RunRef: ref, Turn: 3}, "r", 3, results[hooks.BeforeExecuteResult]{
		{}: {Action: go_}, {Block: true, Reason: "no"}: {Action: block, Reason: why},
	})
	event(t, wire.AfterToolCall, hooks.AfterToolCall{RunRef: ref, Turn: 3}, "r", 3, results[hooks.AfterToolCallResult]{
		{Block: true}: {Action: hooks.ActionWithhold},
		changing(`{"content":"","is_error":false}`): {Action: transform, Content: p(""), IsError: p(false)},
	})
}

func TestAPayloadThatTheGateDoesNotHaveIsAFailure(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{`{"text":"y"}`, `{"arguments":1}`, `{} {}`, `{`, `[]`} {
		plug := told(t, plugin.Config{ID: "x", Events: []string{"BeforeToolCall"}, OnEvent: func(context.Context, plugin.PluginEvent) (plugin.EventResult, error) {
			return plugin.EventResult{Payload: json.RawMessage(payload)}, nil
		}})
		if a, err := answer(t, plug, wire.BeforeToolCall, hooks.BeforeToolCall{}); err == nil {
			t.Errorf("%s is %+v", payload, a)
		}
	}
}

func TestMessagesHaveAMaximum(t *testing.T) {
	t.Parallel()
	plug := told(t, plugin.Config{ID: "x", Hooks: hooks.Hooks{
		BeforeToolCall: func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			return hooks.BeforeToolCallResult{Action: hooks.ActionTransform, Arguments: p(strings.Repeat("x", 2<<20))}, nil
		},
		TransformContext: func(_ context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
			return hooks.TransformContextResult{Action: hooks.ActionTransform, Messages: &[]hooks.Message{{ID: strings.Repeat("x", in.Turn)}}}, nil
		},
	}})
	limit := func(g hooks.Gate) grpc.CallOption { return grpc.MaxCallRecvMsgSize(wire.MaxAnswer(g)) }
	ask := func(turn int) error {
		_, err := plug.Evaluate(t.Context(), wire.TransformContext.Ask(hooks.TransformContext{Turn: turn}), limit(hooks.GateTransformContext))
		return err
	}
	if err := ask(8 << 20); err != nil {
		t.Errorf("8 MiB of messages: %v", err)
	}
	if _, err := plug.Evaluate(t.Context(), wire.BeforeToolCall.Ask(hooks.BeforeToolCall{}), limit(hooks.GateBeforeToolCall)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("2 MiB of arguments: %v", err)
	}
	limit = func(hooks.Gate) grpc.CallOption { return grpc.MaxCallRecvMsgSize(1 << 30) }
	if err := ask(9 << 20); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("9 MiB of messages: %v", err)
	}
	q := wire.TransformContext.Ask(hooks.TransformContext{System: strings.Repeat("x", 16<<20)})
	if _, err := plug.Evaluate(t.Context(), q); err != nil {
		t.Errorf("a question of 16 MiB: %v", err)
	}
	q = wire.TransformContext.Ask(hooks.TransformContext{System: strings.Repeat("x", wire.MaxRequest)})
	if _, err := plug.Evaluate(t.Context(), q); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a question that is too long: %v", err)
	}
}

func TestAHookThatFailsSaysHow(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	plug := told(t, plugin.Config{ID: "x", Hooks: hooks.Hooks{
		BeforeExecute: func(ctx context.Context, in hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
			switch in.Turn {
			case 1:
				return hooks.BeforeExecuteResult{}, &hooks.Failure{Outcome: hooks.OutcomeUnavailable, Code: "no_list"}
			case 2:
				<-stuck // whatever ctx says
			case 3:
				<-ctx.Done()
				return hooks.BeforeExecuteResult{}, ctx.Err()
			}
			return hooks.BeforeExecuteResult{}, status.Error(codes.Unavailable, "elsewhere")
		},
	}})
	for turn, want := range map[int]hooks.Outcome{1: hooks.OutcomeUnavailable, 2: hooks.OutcomeTimeout, 3: "", 4: hooks.OutcomeError} {
		q := wire.BeforeExecute.Ask(hooks.BeforeExecute{Turn: turn})
		q.DeadlineMs = time.Minute.Milliseconds()
		if turn == 2 || turn == 3 {
			q.DeadlineMs = 1
		}
		a, err := plug.Evaluate(t.Context(), q)
		if err != nil {
			t.Fatal(turn, err)
		}
		_, err = wire.BeforeExecute.Answered(a)
		f, ok := err.(*hooks.Failure) //nolint:errorlint // it is one
		if !ok || want != "" && f.Outcome != want {
			t.Errorf("%d: %v, want %s", turn, err, want)
		}
	}
	if r, err := plug.Drain(t.Context(), &pluginv1.DrainRequest{DeadlineMs: 1}); err != nil || r.GetAbandoned() != 1 {
		t.Errorf("drained: %v, %v", r, err)
	}
}
