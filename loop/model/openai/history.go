package openai

import (
	"encoding/json"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

// noReasoning stands for reasoning that was not kept or never was.
const noReasoning = " "

// wireMessages writes the history down. Blank text is left out, and a message
// of which nothing remains too.
func (m *Model) wireMessages(req loop.ModelRequest) []wireMessage {
	var out []wireMessage
	if !wire.Blank(req.System) {
		out = append(out, wireMessage{Role: hooks.RoleSystem, Content: req.System})
	}
	ids := wire.NewCallIDs()
	for _, said := range req.Messages {
		msg := wireMessage{Role: said.Role}
		for _, p := range said.Parts {
			switch {
			case p.ToolCall != nil:
				msg.ToolCalls = append(msg.ToolCalls, wireRequestCall{
					ID: ids.Call(*p.ToolCall), Type: "function",
					Function: wireFunction{Name: m.names.Wire(p.ToolCall.Name), Arguments: wire.Arguments(p.ToolCall.Arguments)},
				})
			case p.ToolResult != nil:
				out = append(out, wireResult(*p.ToolResult, ids))
			}
		}
		switch text := said.Text(); {
		case !wire.Blank(text):
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

func wireResult(r hooks.ToolResult, ids wire.CallIDs) wireMessage {
	content := r.Content
	if wire.Blank(content) {
		content = wire.NoOutput
	}
	return wireMessage{Role: hooks.RoleTool, Content: content, ToolCallID: ids.Result(r.CallID)}
}
