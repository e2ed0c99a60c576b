package anthropic

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

// noMessage stands in front of a history that does not begin with the user,
// which the API refuses.
const noMessage = "(no message)"

// The kinds of blocks.
const (
	blockText     = "text"
	blockThinking = "thinking"
	blockCall     = "tool_use"
	blockResult   = "tool_result"
)

// callID is what the API takes as the id of a call.
var callID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

type wireMessage struct {
	Role    hooks.Role  `json:"role"`
	Content []wireBlock `json:"content"`
}

type wireBlock struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
	// ID, Name and Input are those of a call.
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	// ToolUseID, Content and IsError are those of a result.
	ToolUseID string `json:"tool_use_id,omitempty"`
	Content   string `json:"content,omitempty"`
	IsError   bool   `json:"is_error,omitempty"`
}

// history writes the system text and the messages down, see the package
// comment.
func (m *Model) history(req loop.ModelRequest) (system string, messages []wireMessage) {
	var systems []string
	if !wire.Blank(req.System) {
		systems = append(systems, req.System)
	}
	ids := wire.NewCallIDs()
	for _, said := range req.Messages {
		if said.Role == hooks.RoleSystem {
			if text := said.Text(); !wire.Blank(text) {
				systems = append(systems, text)
			}
			continue
		}
		messages = add(messages, said.Role, m.blocks(said, ids))
	}
	if len(messages) == 0 || messages[0].Role != hooks.RoleUser {
		messages = slices.Insert(messages, 0, wireMessage{Role: hooks.RoleUser, Content: []wireBlock{{Type: blockText, Text: noMessage}}})
	}
	for _, msg := range messages {
		resultsFirst(msg.Content)
	}
	return strings.Join(systems, "\n\n"), messages
}

// add appends blocks to a message of their role.
func add(messages []wireMessage, role hooks.Role, blocks []wireBlock) []wireMessage {
	if len(blocks) == 0 {
		return messages
	}
	if role != hooks.RoleAssistant {
		role = hooks.RoleUser // results are the user's too
	}
	if last := len(messages) - 1; last >= 0 && messages[last].Role == role {
		messages[last].Content = append(messages[last].Content, blocks...)
		return messages
	}
	return append(messages, wireMessage{Role: role, Content: blocks})
}

// resultsFirst puts results in front of what the user said meanwhile: the API
// refuses them behind it.
func resultsFirst(blocks []wireBlock) {
	rank := func(b wireBlock) int {
		if b.Type == blockResult {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(blocks, func(a, b wireBlock) int { return rank(a) - rank(b) })
}

// blocks are those of a message, in order, without blank text and without
// reasoning.
func (m *Model) blocks(said hooks.Message, ids wire.CallIDs) (out []wireBlock) {
	for _, p := range said.Parts {
		switch {
		case p.ToolCall != nil:
			tc := *p.ToolCall
			if !callID.MatchString(tc.ProviderID) {
				tc.ProviderID = "" // another provider's
			}
			input := strings.ToValidUTF8(wire.Arguments(tc.Arguments), "\uFFFD")
			out = append(out, wireBlock{Type: blockCall, ID: ids.Call(tc), Name: m.names.Wire(tc.Name), Input: json.RawMessage(input)})
		case p.ToolResult != nil:
			content := p.ToolResult.Content
			if wire.Blank(content) {
				content = wire.NoOutput
			}
			out = append(out, wireBlock{Type: blockResult, ToolUseID: ids.Result(p.ToolResult.CallID), Content: content, IsError: p.ToolResult.IsError})
		case p.Type == hooks.PartText && !wire.Blank(p.Text):
			out = append(out, wireBlock{Type: blockText, Text: p.Text})
		}
	}
	return out
}
