package scripted

import (
	"errors"
	"fmt"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// validate refuses what real providers refuse: a call without its result
// right behind it, a result without its call, a call without a name, an empty
// user, system or tool message, and a history without a user message. An empty
// assistant message is none of a provider's business: adapters leave it out.
func validate(messages []hooks.Message) error {
	var open []string // calls of the last assistant message without a result
	users := 0
	for i, m := range messages {
		if m.Role != hooks.RoleTool && len(open) > 0 {
			return fmt.Errorf("messages[%d]: tool call %s has no result before the next %s message", i, open[0], m.Role)
		}
		var err error
		switch m.Role {
		case hooks.RoleAssistant:
			open, err = calls(m)
		case hooks.RoleTool:
			open, err = answered(open, m)
		case hooks.RoleUser:
			users++
			err = spoken(m)
		case hooks.RoleSystem:
			err = spoken(m)
		default:
			err = fmt.Errorf("role %q is unknown", m.Role)
		}
		if err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("messages: tool call %s has no result", open[0])
	}
	if users == 0 {
		return errors.New("messages: there is no user message")
	}
	return nil
}

// calls returns the ids of the calls that an assistant message makes.
func calls(m hooks.Message) ([]string, error) {
	var ids []string
	seen := make(map[string]bool)
	for _, p := range m.Parts {
		switch {
		case p.Type == hooks.PartToolResult:
			return nil, errors.New("an assistant message holds a tool result")
		case p.Type != hooks.PartToolCall:
		case p.ToolCall == nil || p.ToolCall.Name == "" || p.ToolCall.ID == "":
			return nil, errors.New("a tool call has no id or no name")
		case seen[p.ToolCall.ID]:
			return nil, fmt.Errorf("two tool calls share the id %s", p.ToolCall.ID)
		default:
			seen[p.ToolCall.ID] = true
			ids = append(ids, p.ToolCall.ID)
		}
	}
	return ids, nil
}

// answered takes the results of a tool message off the open calls, in order.
func answered(open []string, m hooks.Message) ([]string, error) {
	if len(m.Parts) == 0 {
		return nil, errors.New("a tool message is empty")
	}
	for _, p := range m.Parts {
		switch {
		case p.Type != hooks.PartToolResult || p.ToolResult == nil:
			return nil, errors.New("a tool message holds something else than a result")
		case len(open) == 0:
			return nil, fmt.Errorf("the result for %s has no call", p.ToolResult.CallID)
		case p.ToolResult.CallID != open[0]:
			return nil, fmt.Errorf("the result for %s stands where the one for %s belongs", p.ToolResult.CallID, open[0])
		}
		open = open[1:]
	}
	return open, nil
}

func spoken(m hooks.Message) error {
	for _, p := range m.Parts {
		if p.Type != hooks.PartText {
			return fmt.Errorf("a %s message holds a part of type %s", m.Role, p.Type)
		}
	}
	if m.Text() == "" {
		return fmt.Errorf("a %s message is empty", m.Role)
	}
	return nil
}
