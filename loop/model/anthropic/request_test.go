package anthropic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/anthropic"
	"github.com/seed-2ca4966b/agentd/loop/model/anthropic/anthropictest"
)

func text(s string) hooks.Part { return hooks.Part{Type: hooks.PartText, Text: s} }

func call(id, providerID, name, arguments string) hooks.Part {
	return hooks.Part{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: id, ProviderID: providerID, Name: name, Arguments: arguments}}
}

func calling(parts ...hooks.Part) hooks.Message {
	return hooks.Message{Role: hooks.RoleAssistant, Parts: parts}
}

func result(id, content string) hooks.Message {
	return hooks.Message{Role: hooks.RoleTool, Parts: []hooks.Part{{Type: hooks.PartToolResult, ToolResult: &hooks.ToolResult{CallID: id, Content: content}}}}
}

// sent makes a call to a strict provider and returns what it was sent.
func sent(t *testing.T, cfg anthropic.Config, req loop.ModelRequest) string {
	t.Helper()
	p := anthropictest.New(t, anthropictest.Answer{Body: fixture(t, "keepalive.sse")})
	cfg.BaseURL = p.URL
	if got, err := transcribe(newModel(t, cfg).Stream(t.Context(), req)); err != nil || !strings.Contains(got, "Hello") {
		t.Fatalf("got %q and error %v", got, err)
	}
	return p.Requests()[0].Body
}

func TestAHistoryHasTheShapeThatTheAPIWants(t *testing.T) {
	t.Parallel()
	failed := result("u2", "no such order")
	failed.Parts[0].ToolResult.IsError = true
	req := loop.ModelRequest{
		Model: "test-model-1", System: "Be brief.",
		Tools: []loop.ToolSpec{{Name: "get_time", Description: "Says <when>", Schema: []byte(`{"type":"object","maximum":18446744073709551615}`)}, {Name: "files.read"}},
		Messages: []hooks.Message{
			say(hooks.RoleUser, "hello"), say(hooks.RoleSystem, "It is late."), say(hooks.RoleSystem, " "), say(hooks.RoleUser, "there"),
			calling(hooks.Part{Type: hooks.PartReasoning, Text: "Two things."}, text("Looking both up."), call("u1", "toolu_A", "get_time", " "), call("u2", "toolu_B", "files.read", `{"order_id":9007199254740993}`)),
			say(hooks.RoleUser, "hurry"), result("u1", " \n"), failed,
			calling(call("u3", "toolu_A", "get_time", `{"zone":"U`), call("u4", "call:0", "get_time", `[1]`)),
			result("u3", "a"), result("u4", "b"),
		},
	}
	const want = `{"model":"test-model-1","max_tokens":99,"system":"Be brief.\n\nIt is late.","messages":[` +
		`{"role":"user","content":[{"type":"text","text":"hello"},{"type":"text","text":"there"}]},` +
		`{"role":"assistant","content":[{"type":"text","text":"Looking both up."},{"type":"tool_use","id":"toolu_A","name":"get_time","input":{}},` +
		`{"type":"tool_use","id":"toolu_B","name":"files_read_601e4eb608","input":{"order_id":9007199254740993}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_A","content":"(no output)"},` +
		`{"type":"tool_result","tool_use_id":"toolu_B","content":"no such order","is_error":true},{"type":"text","text":"hurry"}]},` +
		`{"role":"assistant","content":[{"type":"tool_use","id":"u3","name":"get_time","input":{"invalid_arguments":"{\"zone\":\"U"}},` +
		`{"type":"tool_use","id":"u4","name":"get_time","input":{"invalid_arguments":"[1]"}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"u3","content":"a"},{"type":"tool_result","tool_use_id":"u4","content":"b"}]}],` +
		`"tools":[{"name":"get_time","description":"Says <when>","input_schema":{"type":"object","maximum":18446744073709551615}},` +
		`{"name":"files_read_601e4eb608","input_schema":{"type":"object"}}],"stream":true}`
	if got := sent(t, anthropic.Config{MaxTokens: 99}, req); got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
}

func TestAHistoryBeginsWithTheUser(t *testing.T) {
	t.Parallel()
	const head = `{"model":"test-model-1","max_tokens":4096,"messages":[{"role":"user","content":[{"type":"text","text":"(no message)"}]}`
	for name, tt := range map[string]struct {
		messages []hooks.Message
		want     string
	}{
		"Nothing": {nil, head + `],"stream":true}`},
		"Blank":   {[]hooks.Message{say(hooks.RoleUser, " \n")}, head + `],"stream":true}`},
		"Shortened": {
			[]hooks.Message{calling(call("u1", "toolu_A", "get_time", "{}")), result("u1", "noon")},
			head + `,{"role":"assistant","content":[{"type":"tool_use","id":"toolu_A","name":"get_time","input":{}}]},` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_A","content":"noon"}]}],"stream":true}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := sent(t, anthropic.Config{}, loop.ModelRequest{Model: "test-model-1", Messages: tt.messages}); got != tt.want {
				t.Errorf("sent %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestBlankTurnsAndRepeatedRoles(t *testing.T) {
	t.Parallel()
	var said []struct {
		Role      hooks.Role
		Text      string
		ToolCalls []struct {
			ID, Name string
			Args     json.RawMessage
		} `json:"tool_calls"`
		ToolCallID string `json:"tool_call_id"`
	}
	if err := json.Unmarshal([]byte(fixture(t, "blank_history.json")), &said); err != nil {
		t.Fatal(err)
	}
	req := loop.ModelRequest{Model: "test-model-1"}
	for _, s := range said {
		m := say(s.Role, s.Text)
		if s.ToolCallID != "" {
			m = result(s.ToolCallID, s.Text)
		}
		for _, c := range s.ToolCalls {
			m.Parts = append(m.Parts, call(c.ID, c.ID, c.Name, string(c.Args)))
		}
		req.Messages = append(req.Messages, m)
	}
	const want = `{"model":"test-model-1","max_tokens":4096,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},` +
		`{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"get_time","input":{}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"(no output)"},` +
		`{"type":"text","text":"one"},{"type":"text","text":"two"},{"type":"text","text":"three"}]}],"stream":true}`
	if got := sent(t, anthropic.Config{}, req); got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
}

func TestRequestsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	m := newModel(t, anthropic.Config{BaseURL: "http://provider.invalid"})
	for name, tools := range map[string][]loop.ToolSpec{
		"NoJSON":   {{Name: "a", Schema: []byte("{")}},
		"SameName": {{Name: "files.read"}, {Name: "files_read_601e4eb608"}},
	} {
		req := hello()
		req.Tools = tools
		_, err := transcribe(m.Stream(t.Context(), req))
		if me := wantModelError(t, err); me.Code != "invalid_request" || me.Retryable {
			t.Errorf("%s: got %+v", name, me)
		}
	}
}

// TestAToolsNameIsTurnedBack calls a tool whose name the API does not take.
func TestAToolsNameIsTurnedBack(t *testing.T) {
	t.Parallel()
	p := anthropictest.New(t, anthropictest.Answer{Body: opening(0, `{"type":"tool_use","id":"toolu_A","name":"files_read_601e4eb608"}`) + ending("tool_use")})
	req := hello()
	req.Tools = []loop.ToolSpec{{Name: "files.read"}}
	got, err := transcribe(newModel(t, anthropic.Config{BaseURL: p.URL}).Stream(t.Context(), req))
	if err != nil || got != "tool_arguments/1: toolu_A files.read {}\nfinish: tool_calls (tool_use) 0/7" {
		t.Errorf("got %q and error %v", got, err)
	}
}
