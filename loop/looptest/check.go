package looptest

import (
	"errors"
	"fmt"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/audit"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// CheckRequest says what a strict provider would dislike about a request: a
// history that does not begin with a user, a message that says nothing, an
// answer whose calls are not followed at once by one result each, in call
// order, a result without its call, an id that stands twice.
func CheckRequest(req loop.ModelRequest) error {
	if len(req.Messages) == 0 || req.Messages[0].Role != hooks.RoleUser {
		return fmt.Errorf("the history does not begin with a user message")
	}
	seen := map[string]bool{}
	var open []string
	for i, m := range req.Messages {
		if seen[m.ID] || m.ID == "" {
			return fmt.Errorf("message %d: id %q is empty or stands twice", i, m.ID)
		}
		seen[m.ID] = true
		calls, results, err := tools(m)
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if m.Role == hooks.RoleTool {
			if len(results) != 1 || len(open) == 0 || results[0] != open[0] {
				return fmt.Errorf("message %d: results for %q where %q are open", i, results, open)
			}
			open = open[1:]
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("message %d: a %s message where results for %q are missing", i, m.Role, open)
		}
		open = calls
	}
	if len(open) > 0 {
		return fmt.Errorf("results for %q are missing at the end", open)
	}
	return nil
}

// tools returns the ids of the calls and of the results in m.
func tools(m hooks.Message) (calls, results []string, err error) {
	if len(m.Parts) == 0 {
		return nil, nil, fmt.Errorf("a %s message says nothing", m.Role)
	}
	for _, p := range m.Parts {
		switch {
		case p.Type == hooks.PartToolCall && p.ToolCall != nil && m.Role == hooks.RoleAssistant:
			calls = append(calls, p.ToolCall.ID)
		case p.Type == hooks.PartToolResult && p.ToolResult != nil && m.Role == hooks.RoleTool:
			results = append(results, p.ToolResult.CallID)
		case p.Type == hooks.PartText && p.Text != "":
		case p.Type == hooks.PartReasoning && p.Text != "" && m.Role == hooks.RoleAssistant:
		default:
			return nil, nil, fmt.Errorf("a %s message has the part %+v", m.Role, p)
		}
	}
	return calls, results, nil
}

// CheckLog says what is wrong with the log of one session, by the rules of
// package audit but for two that events written by a test's own hand do not keep
// to: who wrote them, and what a model was sent. Nothing may be missing here, no
// delta either.
func CheckLog(events []event.Event) error {
	for i, e := range events {
		if e.Seq != int64(i+1) {
			return fmt.Errorf("event %d has seq %d", i+1, e.Seq)
		}
	}
	var wrong []error
	for _, v := range audit.Check(events, nil) {
		if v.Rule != audit.RuleLease && v.Rule != audit.RuleRequest {
			wrong = append(wrong, errors.New(v.String()))
		}
	}
	return errors.Join(wrong...)
}
