package openai_test

import (
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

func toolCall(id, name, arguments string) hooks.Part {
	return hooks.Part{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: id, Name: name, Arguments: arguments}}
}

func toolResult(id, content string) hooks.Message {
	return hooks.Message{Role: hooks.RoleTool, Parts: []hooks.Part{{Type: hooks.PartToolResult, ToolResult: &hooks.ToolResult{CallID: id, Content: content}}}}
}

func answered(parts ...hooks.Part) hooks.Message {
	return hooks.Message{Role: hooks.RoleAssistant, Parts: parts}
}

// history has an answer with reasoning, calls and no text, one with calls and
// nothing else, and one with reasoning and text.
func history() loop.ModelRequest {
	reasoning := func(s string) hooks.Part { return hooks.Part{Type: hooks.PartReasoning, Text: s} }
	req := hello()
	req.Tools = []loop.ToolSpec{{Name: "f", Schema: []byte(`{"type":"object"}`)}}
	req.Messages = append(req.Messages,
		answered(reasoning("h\n"), reasoning("m"), toolCall("u1", "f", "{}")), toolResult("u1", "r"),
		answered(toolCall("u2", "f", "{}")), toolResult("u2", "r"),
		answered(reasoning("so"), hooks.Part{Type: hooks.PartText, Text: "done"}))
	return req
}

func TestAProvidersQuirksShowInTheRequest(t *testing.T) {
	t.Parallel()
	const (
		head  = `{"model":"test-model-1","messages":[{"role":"user","content":"hello"},`
		call1 = `"tool_calls":[{"id":"u1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"r","tool_call_id":"u1"},`
		call2 = `"tool_calls":[{"id":"u2","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"r","tool_call_id":"u2"},`
		plain = `{"role":"assistant",` + call1 + `{"role":"assistant",` + call2 + `{"role":"assistant","content":"done"}]`
		tools = `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]`
		tail  = `,"stream":true,"stream_options":{"include_usage":true}}`
	)
	preset := func(name string) openai.Quirks {
		q, ok := openai.Preset(name)
		if err := q.Check(); !ok || err != nil {
			t.Fatalf("preset %q: there is one %v, it is right: %v", name, ok, err)
		}
		return q
	}
	tests := []struct {
		name string
		cfg  openai.Config
		want string
	}{
		{"Zero", openai.Config{}, head + plain + tools + tail},
		{"OpenAI", openai.Config{Quirks: preset("openai"), MaxTokens: 9}, head + plain + tools + `,"max_completion_tokens":9` + tail},
		{"Compatible", openai.Config{Quirks: preset("compatible"), MaxTokens: 9}, head + plain + tools + `,"max_tokens":9` + tail},
		{"Mistral", openai.Config{Quirks: preset("mistral"), MaxTokens: 9}, head + plain + tools + `,"max_tokens":9,"stream":true}`},
		{"NoMaxTokens", openai.Config{Quirks: openai.Quirks{MaxTokensField: openai.FieldNone}, MaxTokens: 9}, head + plain + tools + tail},
		{
			"DeepSeek", openai.Config{Quirks: preset("deepseek")},
			head + `{"role":"assistant","reasoning_content":"h\nm",` + call1 + `{"role":"assistant","reasoning_content":" ",` + call2 + `{"role":"assistant","content":"done"}]` + tools + tail,
		},
		{
			"ReasoningAlways", openai.Config{Quirks: openai.Quirks{Reasoning: openai.ReasoningAlways}},
			head + `{"role":"assistant","reasoning_content":"h\nm",` + call1 + `{"role":"assistant","reasoning_content":" ",` + call2 + `{"role":"assistant","content":"done","reasoning_content":"so"}]` + tools + tail,
		},
		{
			"NullContent", openai.Config{Quirks: openai.Quirks{EmptyContent: openai.ContentNull}},
			head + `{"role":"assistant","content":null,` + call1 + `{"role":"assistant","content":null,` + call2 + `{"role":"assistant","content":"done"}]` + tools + tail,
		},
		{
			"EmptyContent", openai.Config{Quirks: openai.Quirks{EmptyContent: openai.ContentEmpty}},
			head + `{"role":"assistant","content":"",` + call1 + `{"role":"assistant","content":"",` + call2 + `{"role":"assistant","content":"done"}]` + tools + tail,
		},
		{"Parallel", openai.Config{Quirks: openai.Quirks{ParallelToolCalls: openai.ParallelTrue}}, head + plain + tools + `,"parallel_tool_calls":true` + tail},
		{"NotParallel", openai.Config{Quirks: openai.Quirks{ParallelToolCalls: openai.ParallelFalse}}, head + plain + tools + `,"parallel_tool_calls":false` + tail},
		{
			"Named", openai.Config{Quirks: openai.Quirks{
				MaxTokensField: openai.FieldMaxCompletionTokens, Reasoning: openai.ReasoningNever, EmptyContent: openai.ContentAbsent, ParallelToolCalls: openai.ParallelAbsent,
			}},
			head + plain + tools + tail,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newFake(t).model(t, tt.cfg)
			for range 2 { // the same call gives the same bytes
				p, err := m.Request(history())
				if err != nil || p.Body != tt.want {
					t.Errorf("got error %v and\n%s\nwant\n%s", err, p.Body, tt.want)
				}
			}
		})
	}
	if q, ok := openai.Preset("unheard-of"); ok {
		t.Errorf("there is a preset: %+v", q)
	}
}

func TestWithoutToolsNothingIsSaidOfThem(t *testing.T) {
	t.Parallel()
	m := newFake(t).model(t, openai.Config{Quirks: openai.Quirks{ParallelToolCalls: openai.ParallelTrue}})
	p, err := m.Request(hello())
	if want := `{"model":"test-model-1","messages":[{"role":"user","content":"hello"}],"stream":true,"stream_options":{"include_usage":true}}`; err != nil || p.Body != want {
		t.Errorf("got %s and error %v, want %s", p.Body, err, want)
	}
}
