package openai_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

// TestBlankTurnsAndRepeatedRoles sends a history of empty and blank messages: all
// that was said is in it, in order, and nothing that was not.
func TestBlankTurnsAndRepeatedRoles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/blank_history.json")
	if err != nil {
		t.Fatal(err)
	}
	var said []struct {
		Role      hooks.Role
		Text      string
		ToolCalls []struct {
			ID, Name string
			Args     json.RawMessage
		} `json:"tool_calls"`
		ToolCallID string `json:"tool_call_id"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	req := hello()
	req.Messages = nil
	for _, s := range said {
		m := say(s.Role, s.Text)
		if s.ToolCallID != "" {
			m = toolResult(s.ToolCallID, s.Text)
		}
		for _, c := range s.ToolCalls {
			m.Parts = append(m.Parts, hooks.Part{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: c.ID, ProviderID: c.ID, Name: c.Name, Arguments: string(c.Args)}})
		}
		req.Messages = append(req.Messages, m)
	}
	const (
		before = `[{"role":"user","content":"hi"},{"role":"assistant"`
		after  = `,"tool_calls":[{"id":"t1","type":"function","function":{"name":"get_time","arguments":"{}"}}]},` +
			`{"role":"tool","content":"(no output)","tool_call_id":"t1"},` +
			`{"role":"user","content":"one"},{"role":"user","content":"two"},{"role":"user","content":"three"}]`
	)
	// What an answer without text has for content is what the provider takes.
	for form, content := range map[openai.EmptyContent]string{openai.ContentAbsent: "", openai.ContentNull: `,"content":null`} {
		f := newFake(t, playback{body: fixture(t, "finish_and_done")})
		if _, err := play(t.Context(), f.model(t, openai.Config{Quirks: openai.Quirks{EmptyContent: form}}), req); err != nil {
			t.Fatal(err)
		}
		var sent struct{ Messages json.RawMessage }
		if err := json.Unmarshal([]byte(f.sent()[0].body), &sent); err != nil {
			t.Fatal(err)
		}
		if want := before + content + after; string(sent.Messages) != want {
			t.Errorf("%v: sent\n%s\nwant\n%s", form, sent.Messages, want)
		}
	}
}
