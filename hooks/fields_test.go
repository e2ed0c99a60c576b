package hooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks"
)

var ref = hooks.RunRef{TenantID: "t", SessionID: "s", RunID: "r", Agent: "demo"}

func said(text string) hooks.Message {
	return hooks.Message{ID: text, Role: hooks.RoleUser, Parts: []hooks.Part{
		{Type: hooks.PartText, Text: text},
		{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: "c", Arguments: text}},
		{Type: hooks.PartToolResult, ToolResult: &hooks.ToolResult{CallID: "c", Content: text}},
	}}
}

func runStart() hooks.BeforeRunStart {
	return hooks.BeforeRunStart{
		RunRef: ref, System: "be kind", Messages: []hooks.Message{said("hi")},
		Hidden: []hooks.HiddenMessage{}, Tools: []string{"look", "find", "rm"},
	}
}

// changed asks one hook, and returns the verdict and its only decision.
func changed[In hooks.Input[In, Out], Out hooks.Result](t *testing.T, in In, out Out, opts ...hooks.Option) (hooks.Verdict[In], hooks.Decision) {
	t.Helper()
	f := hooks.Named("x", "1", func(context.Context, In) (Out, error) { return out, nil }, opts...)
	v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, f, hooks.Position{}, in, nil)
	if err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	return v, ds[0]
}

func TestEachGateChangesItsFieldsAndSaysWhich(t *testing.T) {
	t.Parallel()
	in, inRow := changed(t, hooks.BeforeInput{TenantID: "t", Text: "a"}, hooks.BeforeInputResult{Action: hooks.ActionTransform, Text: p("")})
	expect(t, "input", []any{in.Value, inRow.FieldsChanged, inRow.Payload.Patch},
		[]any{hooks.BeforeInput{TenantID: "t"}, []string{"text"}, `[{"op":"replace","path":"/text","value":""}]`})

	start, startRow := changed(t, runStart(), hooks.BeforeRunStartResult{
		Action: hooks.ActionTransform, System: p("be brief"), Tools: &[]string{"find", "look", "find"},
		Append: []hooks.HiddenMessage{{Role: hooks.RoleSystem, Text: "one"}, {Role: hooks.RoleUser, Text: "two"}},
	})
	want := runStart()
	want.System, want.Tools = "be brief", []string{"look", "find"}
	want.Hidden = []hooks.HiddenMessage{{Role: hooks.RoleSystem, Text: "one"}, {Role: hooks.RoleUser, Text: "two"}}
	expect(t, "run start", []any{start.Value, startRow.FieldsChanged, startRow.Payload.Patch}, []any{
		want, []string{"system", "hidden", "tools"}, `[{"op":"replace","path":"/system","value":"be brief"},` +
			`{"op":"add","path":"/hidden/-","value":{"role":"system","text":"one"}},{"op":"add","path":"/hidden/-","value":{"role":"user","text":"two"}},` +
			`{"op":"replace","path":"/tools","value":["look","find"]}]`,
	})

	none, noneRow := changed(t, runStart(), hooks.BeforeRunStartResult{Action: hooks.ActionTransform, Tools: &[]string{}})
	expect(t, "no tools", []any{len(none.Value.Tools), noneRow.Payload.Patch}, []any{0, `[{"op":"replace","path":"/tools","value":[]}]`})

	model, modelRow := changed(t, hooks.TransformContext{RunRef: ref, Messages: []hooks.Message{said("hi")}},
		hooks.TransformContextResult{Action: hooks.ActionTransform, Messages: &[]hooks.Message{}})
	expect(t, "context", []any{len(model.Value.Messages), modelRow.FieldsChanged, modelRow.Payload.Patch},
		[]any{0, []string{"messages"}, `[{"op":"remove","path":"/messages/0"}]`})

	head, headRow := changed(t, headers(), headersResult{Action: hooks.ActionTransform, Set: []header{{"X-A", "1"}}, Remove: []string{"Accept", "Content-Type", "X-Trace-Id"}})
	expect(t, "headers", []any{head.Value.Headers, headRow.FieldsChanged, headRow.Gate}, []any{[]header{{"X-A", "1"}}, []string{"headers"}, hooks.GateBeforeProviderHeaders})

	body, bodyRow := changed(t, request(`{"n":1}`), sending(`{"n":2}`))
	expect(t, "body", []any{body.Value, bodyRow.FieldsChanged, bodyRow.Payload.Patch, bodyRow.Gate},
		[]any{request(`{"n":2}`), []string{"body"}, `[{"op":"replace","path":"/body/n","value":2}]`, hooks.GateBeforeProviderRequest})

	answer, answerRow := changed(t, response(), hooks.AfterProviderResponseResult{Action: hooks.ActionBlock})
	expect(t, "answer", []any{answer.Action, len(answerRow.FieldsChanged), answerRow.Gate}, []any{hooks.ActionBlock, 0, hooks.GateAfterProviderResponse})

	_, callRow := changed(t, zone("-"), callResult{Action: hooks.ActionTransform, Arguments: p("<UTC>"), Annotations: map[string]string{"b": "2", "a": "<1>"}})
	expect(t, "call", []any{callRow.FieldsChanged, callRow.Payload.Patch, callRow.Payload.Annotations},
		[]any{[]string{"arguments"}, `[{"op":"replace","path":"/call/arguments","value":"<UTC>"}]`, `{"a":"<1>","b":"2"}`})

	exec, execRow := changed(t, hooks.BeforeExecute{RunRef: ref}, hooks.BeforeExecuteResult{Action: hooks.ActionBlock})
	expect(t, "execute", []any{exec.Action, len(execRow.FieldsChanged), execRow.Gate}, []any{hooks.ActionBlock, 0, hooks.GateBeforeExecute})

	out, outRow := changed(t, hooks.AfterToolCall{Content: "42", IsError: true}, hooks.AfterToolCallResult{Action: hooks.ActionTransform, Content: p(""), IsError: p(false)})
	expect(t, "output", []any{out.Value, outRow.FieldsChanged, outRow.Payload.Patch}, []any{
		hooks.AfterToolCall{}, []string{"content", "is_error"},
		`[{"op":"replace","path":"/content","value":""},{"op":"replace","path":"/is_error","value":false}]`,
	})
}

func TestRunStartCanOnlyNarrowToolsAndAppendAllowedRoles(t *testing.T) {
	t.Parallel()
	for _, out := range []hooks.BeforeRunStartResult{
		{Action: hooks.ActionTransform, System: p("x"), Tools: &[]string{"look", "sudo"}},
		{Action: hooks.ActionTransform, System: p("x"), Append: []hooks.HiddenMessage{{Role: hooks.RoleTool}}},
		{Action: hooks.ActionTransform, System: p("x"), Append: []hooks.HiddenMessage{{Role: hooks.RoleAssistant}}},
	} {
		v, row := changed(t, runStart(), out)
		expect(t, "outcome", []any{v.Action, row.Outcome}, []any{hooks.ActionBlock, hooks.OutcomeUnappliable})
		expect(t, "value", v.Value, runStart())
	}
}

func TestRedactingHookStoresPathsAndDigests(t *testing.T) {
	t.Parallel()
	_, d := changed(t, zone("key-test-0123"), callResult{Action: hooks.ActionTransform, Arguments: p("[hidden]")}, hooks.Redacting())
	// The digest is that of the JSON text "[hidden]", quotes included.
	expect(t, "patch", d.Payload.Patch,
		`[{"op":"replace","path":"/call/arguments","sha256":"a97ae687941257455e111625463f70082d55c9daaaf671e7c8365a6faa22fba4","bytes":10}]`)
	_, d = changed(t, hooks.TransformContext{Messages: []hooks.Message{said("a"), said("b")}},
		hooks.TransformContextResult{Action: hooks.ActionTransform, Messages: &[]hooks.Message{said("b")}}, hooks.Redacting())
	expect(t, "patch", d.Payload.Patch, `[{"op":"remove","path":"/messages/0"}]`)
}

func TestMessagesHaveALargerReplyLimit(t *testing.T) {
	t.Parallel()
	messages := func(n int) hooks.TransformContextResult {
		return hooks.TransformContextResult{Action: hooks.ActionTransform, Messages: &[]hooks.Message{{Parts: []hooks.Part{{Text: strings.Repeat("x", n)}}}}}
	}
	if _, d := changed(t, hooks.TransformContext{}, messages(7<<20)); d.Outcome != hooks.OutcomeOK {
		t.Errorf("7 MiB of messages: %s", d.Outcome)
	}
	if _, d := changed(t, hooks.TransformContext{}, messages(8<<20)); d.Outcome != hooks.OutcomeOversize {
		t.Errorf("over 8 MiB of messages: %s", d.Outcome)
	}
	many := make([]hooks.Message, 1<<18+1)
	if _, d := changed(t, hooks.TransformContext{}, hooks.TransformContextResult{Action: hooks.ActionTransform, Messages: &many}); d.Outcome != hooks.OutcomeOversize {
		t.Errorf("a quarter of a million empty messages: %s", d.Outcome)
	}
	tools, appended := make([]string, 1<<15+1), make([]hooks.HiddenMessage, 1<<15+1)
	for _, out := range []hooks.BeforeRunStartResult{{Action: hooks.ActionTransform, Tools: &tools}, {Action: hooks.ActionTransform, Append: appended}} {
		if _, d := changed(t, hooks.BeforeRunStart{}, out); d.Outcome != hooks.OutcomeOversize {
			t.Errorf("a list of many empty texts: %s", d.Outcome)
		}
	}
}

// scribble overwrites all that can be reached through messages.
func scribble(messages []hooks.Message) {
	for i := range messages {
		for j := range messages[i].Parts {
			part := &messages[i].Parts[j]
			part.Text = "scribbled"
			if part.ToolCall != nil {
				part.ToolCall.Arguments = "scribbled"
				part.ToolResult = &hooks.ToolResult{}
			}
			if part.ToolResult != nil {
				part.ToolResult.Content = "scribbled"
			}
		}
		messages[i] = said("scribbled")
	}
}

func TestScribblingHookChangesNothing(t *testing.T) {
	t.Parallel()
	// It also keeps what it answered, and scribbles on that later.
	var kept []*hooks.Message
	var annotations map[string]string
	model := func(ctx context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
		given := in.Messages
		answer := []hooks.Message{said("mine")}
		kept = append(kept, &answer[0])
		annotations = map[string]string{"a": "mine"}
		scribble(given)
		return hooks.TransformContextResult{Action: hooks.ActionTransform, Messages: &answer, Annotations: annotations}, nil
	}
	in := hooks.TransformContext{Messages: []hooks.Message{said("hi"), said("ho")}}
	v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, model, hooks.Position{}, in, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range kept {
		scribble([]hooks.Message{*m})
	}
	annotations["a"] = "scribbled"
	expect(t, "what was asked about", in.Messages, []hooks.Message{said("hi"), said("ho")})
	expect(t, "what the loop goes on with", v.Value.Messages, []hooks.Message{said("mine")})
	expect(t, "annotations", ds[0].Payload.Annotations, `{"a":"mine"}`)

	start := func(_ context.Context, in hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
		scribble(in.Messages)
		in.Tools[0], in.Hidden[0].Text = "sudo", "scribbled"
		return hooks.BeforeRunStartResult{Action: hooks.ActionTransform, Append: []hooks.HiddenMessage{{Role: hooks.RoleUser}}}, nil
	}
	before := runStart()
	before.Hidden = append(make([]hooks.HiddenMessage, 0, 8), hooks.HiddenMessage{Role: hooks.RoleUser, Text: "first"})
	after, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, hooks.Compose(start, hooks.Named("again", "1", start)), hooks.Position{}, before, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := runStart()
	want.Hidden = []hooks.HiddenMessage{{Role: hooks.RoleUser, Text: "first"}}
	expect(t, "what was asked about", before, want)
	expect(t, "room behind it", before.Hidden[:2][1], hooks.HiddenMessage{})
	expect(t, "tools", after.Value.Tools, want.Tools)
	expect(t, "messages", after.Value.Messages, want.Messages)
	expect(t, "hidden", len(after.Value.Hidden), 3)
}

// apply does to messages what a patch of them says.
func apply(t *rapid.T, messages []hooks.Message, patch string) []hooks.Message {
	if patch == "" {
		return messages
	}
	var ops []struct {
		Op, Path string
		Value    hooks.Message
	}
	if err := json.Unmarshal([]byte(patch), &ops); err != nil {
		t.Fatal(err)
	}
	messages = slices.Clone(messages)
	for _, o := range ops {
		i, err := strconv.Atoi(strings.TrimPrefix(o.Path, "/messages/"))
		if err != nil {
			t.Fatal(err)
		}
		switch o.Op {
		case "add":
			messages = slices.Insert(messages, i, o.Value)
		case "remove":
			messages = slices.Delete(messages, i, i+1)
		case "replace":
			messages[i] = o.Value
		}
	}
	return messages
}

// TestPatchOfMessagesLeadsFromInputToOutput: and touches no message that both
// begin or end with.
func TestPatchOfMessagesLeadsFromInputToOutput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		draw := func(name string) []hooks.Message {
			out := []hooks.Message{}
			for _, s := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 6).Draw(r, name) {
				out = append(out, said(s))
			}
			return out
		}
		from, to := draw("from"), draw("to")
		_, d := changed(t, hooks.TransformContext{Messages: from}, hooks.TransformContextResult{Action: hooks.ActionTransform, Messages: &to})
		if got := apply(r, from, d.Payload.Patch); !reflect.DeepEqual(got, to) {
			r.Fatalf("patch %s leads to %s", d.Payload.Patch, fmt.Sprint(got))
		}
		if (d.Payload.Patch == "") != reflect.DeepEqual(from, to) {
			r.Fatalf("patch %q", d.Payload.Patch)
		}
		if n := strings.Count(d.Payload.Patch, `"op"`); n > max(len(from), len(to)) {
			r.Fatalf("%d operations for %d and %d messages", n, len(from), len(to))
		}
	})
}
