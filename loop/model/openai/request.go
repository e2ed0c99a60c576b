package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
)

// noOutput stands for a blank tool result: providers refuse blank text, and a
// result that is left out makes the history invalid.
const noOutput = "(no output)"

type wireRequest struct {
	Model         string             `json:"model"`
	Messages      []wireMessage      `json:"messages"`
	Tools         []wireTool         `json:"tools,omitempty"`
	Stream        bool               `json:"stream"`
	StreamOptions *wireStreamOptions `json:"stream_options,omitempty"`
}

type wireStreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type wireMessage struct {
	Role       hooks.Role        `json:"role"`
	Content    string            `json:"content,omitempty"`
	ToolCalls  []wireRequestCall `json:"tool_calls,omitempty"`
	ToolCallID string            `json:"tool_call_id,omitempty"`
}

type wireRequestCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type wireTool struct {
	Type     string       `json:"type"`
	Function wireToolSpec `json:"function"`
}

type wireToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

func (m *Model) requestBody(req loop.ModelRequest) ([]byte, error) {
	out := wireRequest{Model: req.Model, Messages: wireMessages(req), Stream: true}
	if m.usage {
		out.StreamOptions = &wireStreamOptions{IncludeUsage: true}
	}
	for _, t := range req.Tools {
		out.Tools = append(out.Tools, wireTool{Type: "function", Function: wireToolSpec{
			Name: t.Name, Description: t.Description, Parameters: t.Schema,
		}})
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return nil, err
	}
	return body.Bytes(), nil
}

// wireMessages writes the history down. Blank text is left out, and a message
// of which nothing remains too.
func wireMessages(req loop.ModelRequest) []wireMessage {
	var out []wireMessage
	if !blank(req.System) {
		out = append(out, wireMessage{Role: hooks.RoleSystem, Content: req.System})
	}
	ids := newCallIDs()
	for _, m := range req.Messages {
		msg := wireMessage{Role: m.Role}
		if text := m.Text(); !blank(text) {
			msg.Content = text
		}
		for _, p := range m.Parts {
			switch {
			case p.ToolCall != nil:
				msg.ToolCalls = append(msg.ToolCalls, wireRequestCall{
					ID: ids.call(*p.ToolCall), Type: "function",
					Function: wireFunction{Name: p.ToolCall.Name, Arguments: arguments(p.ToolCall.Arguments)},
				})
			case p.ToolResult != nil:
				out = append(out, wireResult(*p.ToolResult, ids))
			}
		}
		if msg.Content != "" || len(msg.ToolCalls) > 0 {
			out = append(out, msg)
		}
	}
	return out
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
