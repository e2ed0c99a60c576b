package openai

import (
	"encoding/json"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
)

// noOutput stands for a blank tool result: providers refuse blank text, and a
// result that is left out makes the history invalid.
const noOutput = "(no output)"

// noReasoning stands for reasoning that was not kept or never was.
const noReasoning = " "

// wireMessages writes the history down. Blank text is left out, and a message
// of which nothing remains too.
func (m *Model) wireMessages(req loop.ModelRequest) []wireMessage {
	var out []wireMessage
	if !blank(req.System) {
		out = append(out, wireMessage{Role: hooks.RoleSystem, Content: req.System})
	}
	ids := newCallIDs()
	for _, said := range req.Messages {
		msg := wireMessage{Role: said.Role}
		for _, p := range said.Parts {
			switch {
			case p.ToolCall != nil:
				msg.ToolCalls = append(msg.ToolCalls, wireRequestCall{
					ID: ids.call(*p.ToolCall), Type: "function",
					Function: wireFunction{Name: m.names.wire(p.ToolCall.Name), Arguments: arguments(p.ToolCall.Arguments)},
				})
			case p.ToolResult != nil:
				out = append(out, wireResult(*p.ToolResult, ids))
			}
		}
		switch text := said.Text(); {
		case !blank(text):
			msg.Content = text
		case len(msg.ToolCalls) == 0:
			continue
		default:
			msg.Content = m.quirks.emptyContent()
		}
		msg.ReasoningContent = m.quirks.reasoning(said)
		out = append(out, msg)
	}
	return out
}

// emptyContent is the content of an answer without text, nil for none.
func (q Quirks) emptyContent() any {
	switch q.EmptyContent {
	case ContentNull:
		return json.RawMessage("null")
	case ContentEmpty:
		return ""
	case ContentAbsent:
	}
	return nil
}

// reasoning is what goes back with a message, nil for nothing.
func (q Quirks) reasoning(said hooks.Message) *string {
	if said.Role != hooks.RoleAssistant {
		return nil
	}
	text, calls := "", false
	for _, p := range said.Parts {
		calls = calls || p.ToolCall != nil
		if p.Type == hooks.PartReasoning {
			text += p.Text
		}
	}
	if q.Reasoning != ReasoningAlways && (q.Reasoning != ReasoningToolCalls || !calls) {
		return nil
	}
	if text == "" {
		text = noReasoning
	}
	return &text
}

func wireResult(r hooks.ToolResult, ids callIDs) wireMessage {
	content := r.Content
	if blank(content) {
		content = noOutput
	}
	return wireMessage{Role: hooks.RoleTool, Content: content, ToolCallID: ids.result(r.CallID)}
}

// arguments returns argument text that a provider can parse.
func arguments(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return "{}"
	}
	if text[0] == '{' && json.Valid([]byte(text)) {
		return text
	}
	wrapped, _ := json.Marshal(map[string]string{"invalid_arguments": text}) // strings always have a JSON form
	return string(wrapped)
}

// callIDs gives every call of a request an id of its own.
type callIDs struct {
	used map[string]bool
	wire map[string]string // by agentd's id
}

func newCallIDs() callIDs {
	return callIDs{used: make(map[string]bool), wire: make(map[string]string)}
}

func (c callIDs) call(tc hooks.ToolCall) string {
	id := tc.ProviderID
	if id == "" || c.used[id] {
		id = tc.ID
	}
	c.used[id] = true
	c.wire[tc.ID] = id
	return id
}

func (c callIDs) result(callID string) string {
	if id, ok := c.wire[callID]; ok {
		return id
	}
	return callID
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
