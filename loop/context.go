package loop

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// modelContext is what a model is sent for a run, before the gate: the system
// prompt, and the conversation with the run's hidden messages behind the
// message that it answers, and what the model is told of stopped answers behind
// those.
func modelContext(agent Agent, s State, r Run) (system string, messages []hooks.Message) {
	system, messages = agent.System, withNotices(history(s.Messages), r.Notices())
	if r.Prepared == nil {
		return system, messages
	}
	if r.Prepared.System != nil {
		system = *r.Prepared.System
	}
	at := len(messages)
	for i, m := range messages {
		if m.ID == r.MessageID {
			at = i + 1
		}
	}
	for i, p := range r.Prepared.Messages {
		messages = slices.Insert(messages, at+i, hooks.Message{
			ID: p.MessageID, RunID: r.ID, Role: p.Role, Parts: []hooks.Part{{Type: hooks.PartText, Text: p.Text}},
		})
	}
	return system, messages
}

// away reports whether models are not told of t now.
func away(t Tool) bool {
	a, ok := t.(Available)
	return ok && !a.Available()
}

// present are those of tools that models are told of now.
func present(tools []Tool) []Tool {
	if !slices.ContainsFunc(tools, away) {
		return tools
	}
	return slices.DeleteFunc(slices.Clone(tools), away)
}

// history is what a model is sent of messages: those that say something.
func history(messages []hooks.Message) []hooks.Message {
	out := make([]hooks.Message, 0, len(messages))
	for _, m := range messages {
		if says(m) {
			out = append(out, m)
		}
	}
	return out
}

func says(m hooks.Message) bool {
	for _, p := range m.Parts {
		if p.ToolCall != nil || p.ToolResult != nil || p.Type == hooks.PartText && !blank(p.Text) {
			return true
		}
	}
	return false
}

var errNothingSaid = errors.New("no message says anything")

// checkHistory says whether a provider would take messages: every call has
// exactly one result, right behind the message that asks for it.
func checkHistory(messages []hooks.Message) error {
	open := map[string]bool{}
	for i, m := range messages {
		if m.Role != hooks.RoleTool && len(open) > 0 {
			return fmt.Errorf("message %d stands between a tool call and its result", i+1)
		}
		for _, p := range m.Parts {
			switch {
			case p.ToolCall != nil && m.Role == hooks.RoleAssistant:
				open[p.ToolCall.ID] = true
			case p.ToolResult != nil && m.Role == hooks.RoleTool && open[p.ToolResult.CallID]:
				delete(open, p.ToolResult.CallID)
			case p.ToolCall != nil, p.ToolResult != nil:
				return fmt.Errorf("message %d has a tool call or result that belongs to no other", i+1)
			}
		}
	}
	if len(open) > 0 {
		return errors.New("a tool call has no result")
	}
	if len(history(messages)) == 0 {
		return errNothingSaid
	}
	return nil
}
