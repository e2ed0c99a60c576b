package openaitest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// imported is the history as agentd would keep it.
func imported() (list []hooks.Message) {
	for _, m := range openaitest.ImportedHistory() {
		kept := hooks.Message{Role: hooks.Role(m.Role)}
		if m.ToolCallID != "" {
			kept.Parts = []hooks.Part{{Type: hooks.PartToolResult, ToolResult: &hooks.ToolResult{CallID: "our-" + m.ToolCallID, Content: m.Text}}}
		} else {
			kept.Parts = []hooks.Part{{Type: hooks.PartText, Text: m.Text}}
		}
		for _, c := range m.ToolCalls {
			kept.Parts = append(kept.Parts, hooks.Part{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{
				ID: "our-" + c.ID, ProviderID: c.ID, Name: c.Name, Arguments: string(c.Args),
			}})
		}
		list = append(list, kept)
	}
	return list
}

// TestAnImportedHistoryIsSentInAFormThatTheProviderTakes: providers disagree
// about the content of an answer that is only calls.
func TestAnImportedHistoryIsSentInAFormThatTheProviderTakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules  openaitest.Rules
		quirks openai.Quirks
		want   string // the content of the answer that is only calls
	}{
		"Any":           {openaitest.Rules{}, openai.Quirks{}, ""},
		"NullAllowed":   {openaitest.Rules{}, openai.Quirks{EmptyContent: openai.ContentNull}, "null"},
		"NullRefused":   {openaitest.Rules{RefuseNullContent: true, RefuseUnknownFields: true}, openai.Quirks{}, ""},
		"ContentWanted": {openaitest.Rules{WantContent: true}, openai.Quirks{EmptyContent: openai.ContentEmpty}, `""`},
		"Reasoning":     {openaitest.Rules{WantReasoning: true}, openai.Quirks{Reasoning: openai.ReasoningToolCalls}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openaitest.Config{Rules: c.rules}.New(t, openaitest.Text("Good."))
			m, err := openai.New(openai.Config{BaseURL: p.URL, Quirks: c.quirks})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(m.Close)
			for _, err := range m.Stream(t.Context(), loop.ModelRequest{Model: "m", Messages: imported()}) {
				if err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for _, m := range p.Await(t, 1).Chat.Messages {
				said := m.Role + " " + m.Text()
				for _, call := range m.ToolCalls {
					said += call.ID + " " + call.Function.Name + call.Arguments() + string(m.Content)
				}
				got = append(got, said+m.ToolCallID)
			}
			want := []string{"user hi", "assistant t1 get_time{}" + c.want, "tool (no output)t1", "user one", "user two", "user three"}
			if !slices.Equal(got, want) {
				t.Errorf("sent %q, want %q", strings.Join(got, "|"), want)
			}
		})
	}
}
