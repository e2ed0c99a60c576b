package loop

import (
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// writer turns payloads into an append that follows a state.
type writer struct {
	newID func() string
	state State
	scope event.Scope
}

// plan encodes payloads as the events that follow the writer's state, under
// the turn that is open there (turn.started opens the next one).
func (w writer) plan(payloads ...event.Payload) (Append, error) {
	a := Append{ID: w.newID(), TenantID: w.state.TenantID, SessionID: w.state.SessionID, Expected: w.state.LastSeq}
	r, _ := w.state.Run(w.scope.RunID)
	t, _ := r.Turn()
	turn := t.No
	for _, p := range payloads {
		s := w.scope
		if _, ok := p.(event.TurnStarted); ok {
			turn++
		}
		if ofTurn(p.EventType()) {
			s.Turn = turn
		}
		e, err := event.New(s, p)
		if err != nil {
			return Append{}, err
		}
		a.Events = append(a.Events, e)
	}
	return a, nil
}

// closing is what must be written before a run that is cut short may end: the
// open answer is stopped, and every call without a result gets its one.
func closing(newID func() string, r Run, reason string) []event.Payload {
	t, ok := r.Turn()
	if !ok {
		return nil
	}
	var out []event.Payload
	if t.Status == TurnCalling {
		out = append(out, stopped(newID, t, reason))
	}
	for _, c := range t.Calls {
		if c.Status != CallDone {
			out = append(out, closedResult(newID, c))
		}
	}
	return out
}

// stopped keeps what was shown of the open answer. One that showed nothing
// leaves no message.
func stopped(newID func() string, t Turn, reason string) event.AssistantStopped {
	p := event.AssistantStopped{Attempt: t.Attempt, Parts: parts(t.Partial), Reason: reason, FirstSeq: t.FirstSeq}
	if len(p.Parts) > 0 {
		p.MessageID = newID()
	}
	return p
}

// The texts that a model is shown for a call without an ordinary result.
const (
	textNotRun         = "This call was not run: the run was cancelled first."
	textOutcomeUnknown = "outcome unknown: the tool was started and agentd was interrupted before it answered. " +
		"It may have taken effect. It was not run again."
	textOutputLost = "executed; output lost before it was checked. The tool was not run again."
)

// closedResult is the result of a call whose run ends, or whose outcome is
// gone.
func closedResult(newID func() string, c Call) event.ToolResult {
	p := event.ToolResult{CallID: c.ID, MessageID: newID(), Name: c.Name, IsError: true}
	switch c.Status {
	case CallStarted:
		p.Reason, p.Content = hooks.ReasonOutcomeUnknown, textOutcomeUnknown
	case CallExecuted:
		p.Reason, p.Content = hooks.ReasonOutputLost, textOutputLost
	case CallNone, CallProposed, CallDone:
		p.Reason, p.Content = hooks.ReasonCancelled, textNotRun
	}
	return p
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
