package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// TestWhatIsSentIsValidWhateverTheHistoryHolds sends histories that grew over
// time, with ids that came again and text that never came, to the strict
// provider.
func TestWhatIsSentIsValidWhateverTheHistoryHolds(t *testing.T) {
	t.Parallel()
	answer := func(parts ...hooks.Part) hooks.Message {
		return hooks.Message{Role: hooks.RoleAssistant, Parts: parts}
	}
	text := func(s string) hooks.Part { return hooks.Part{Type: hooks.PartText, Text: s} }
	call := func(id, providerID, arguments string) hooks.Part {
		return hooks.Part{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: id, ProviderID: providerID, Name: "f", Arguments: arguments}}
	}
	result := func(id string) hooks.Message {
		return hooks.Message{Role: hooks.RoleTool, Parts: []hooks.Part{{Type: hooks.PartToolResult, ToolResult: &hooks.ToolResult{CallID: id, Content: "r"}}}}
	}
	user := say(hooks.RoleUser, "hi")
	const sentUser = `{"role":"user","content":"hi"}`
	sentCall := func(id, arguments string) string {
		return `{"id":"` + id + `","type":"function","function":{"name":"f","arguments":` + arguments + `}}`
	}
	sentCalls := func(calls string) string { return `,{"role":"assistant","tool_calls":[` + calls + `]}` }
	sentResult := func(id string) string { return `,{"role":"tool","content":"r","tool_call_id":"` + id + `"}` }
	tests := []struct {
		name    string
		history []hooks.Message
		want    string
	}{
		{
			"AnIDThatComesAgainIsReplaced",
			[]hooks.Message{user, answer(call("u1", "p", "{}"), call("u2", "p", "{}")), result("u1"), result("u2"), answer(call("u3", "p", "{}")), result("u3")},
			sentUser + sentCalls(sentCall("p", `"{}"`)+","+sentCall("u2", `"{}"`)) + sentResult("p") + sentResult("u2") + sentCalls(sentCall("u3", `"{}"`)) + sentResult("u3"),
		},
		{
			"NoProviderID", []hooks.Message{user, answer(call("u1", "", "")), result("u1")},
			sentUser + sentCalls(sentCall("u1", `"{}"`)) + sentResult("u1"),
		},
		{
			"BrokenArguments", []hooks.Message{user, answer(call("u1", "", `{"a":"<`), call("u2", "", `[1]`)), result("u1"), result("u2")},
			sentUser + sentCalls(sentCall("u1", `"{\"invalid_arguments\":\"{\\\"a\\\":\\\"\\u003c\"}"`)+","+sentCall("u2", `"{\"invalid_arguments\":\"[1]\"}"`)) + sentResult("u1") + sentResult("u2"),
		},
		{
			"BlankTextIsLeftOut", []hooks.Message{user, answer(text("\n")), answer(), answer(text(" "), call("u1", "", "{}")), result("u1"), user},
			sentUser + sentCalls(sentCall("u1", `"{}"`)) + sentResult("u1") + "," + sentUser,
		},
		{
			"PartialTextIsSentAndReasoningIsNot",
			[]hooks.Message{user, {Role: hooks.RoleAssistant, Partial: true, Parts: []hooks.Part{{Type: hooks.PartReasoning, Text: "hm"}, text("I was ab")}}, user, user},
			sentUser + `,{"role":"assistant","content":"I was ab"},` + sentUser + "," + sentUser,
		},
		{"SystemMessagesStayInPlace", []hooks.Message{user, say(hooks.RoleSystem, "be kind")}, sentUser + `,{"role":"system","content":"be kind"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, playback{body: fixture(t, "finish_and_done")})
			req := hello()
			req.Messages = tt.history
			if _, err := play(t.Context(), f.model(t, openai.Config{}), req); err != nil {
				t.Fatal(err)
			}
			var sent struct{ Messages json.RawMessage }
			if err := json.Unmarshal([]byte(f.sent()[0].body), &sent); err != nil {
				t.Fatal(err)
			}
			if got := string(sent.Messages); got != "["+tt.want+"]" {
				t.Errorf("sent\n%s\nwant\n[%s]", got, tt.want)
			}
		})
	}
}

func TestAResultWithoutItsCallIsTheProvidersToRefuse(t *testing.T) {
	t.Parallel()
	f := fakeProvider{openaitest.Config{MayRefuse: true}.New(t)}
	req := hello()
	req.Messages = append(req.Messages, toolResult("u9", "r"))
	_, err := play(t.Context(), f.model(t, openai.Config{}), req)
	if me := wantModelError(t, err); me.Status != 400 || me.Retryable || me.Code != "invalid_request_error" {
		t.Errorf("got %+v", me)
	}
	if r := f.Refusals(); len(r) != 1 || r[0].Param != "messages.[1].role" {
		t.Errorf("the provider refused %+v", r)
	}
}
