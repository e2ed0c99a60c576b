package loop

import (
	"slices"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

var turnTransitions = map[TurnStatus]map[event.Type]TurnStatus{
	TurnNone: {
		event.TypeTurnStarted: TurnOpen,
	},
	TurnOpen: {
		event.TypeModelRequested: TurnCalling,
	},
	TurnCalling: {
		event.TypeAssistantDelta:     TurnCalling,
		event.TypeEmission:           TurnCalling,
		event.TypeAssistantDiscarded: TurnOpen,
		event.TypeAssistantCompleted: TurnAnswered,
		event.TypeAssistantStopped:   TurnStopped,
	},
	TurnAnswered: {
		event.TypeToolProposed:      TurnAnswered,
		event.TypeToolBlocked:       TurnAnswered,
		event.TypeApprovalRequested: TurnAnswered,
		event.TypeApprovalDecided:   TurnAnswered,
		event.TypeToolStarted:       TurnAnswered,
		event.TypeToolProgress:      TurnAnswered,
		event.TypeToolExecuted:      TurnAnswered,
		event.TypeToolResult:        TurnAnswered,
		event.TypeTurnCompleted:     TurnCompleted,
	},
	TurnStopped: {
		event.TypeTurnCompleted: TurnCompleted, // an observer stopped it, and that is not the end of the run
	},
	TurnCompleted: {},
}

func allowsInTurn(r Run, e event.Event, p event.Payload, refuse func(entity, id, from string) error) error {
	if !ofTurn(e.Type) {
		return nil
	}
	t, _ := r.Turn()
	if e.Type == event.TypeTurnStarted {
		return nil
	}
	if e.Turn != t.No {
		return refuse("turn", e.RunID, string(t.Status))
	}
	if _, ok := turnTransitions[t.Status][e.Type]; !ok {
		return refuse("turn", e.RunID, string(t.Status))
	}
	switch p := p.(type) {
	case event.ModelRequested:
		if p.Attempt != t.Attempt+1 {
			return refuse("turn", e.RunID, string(t.Status))
		}
	case event.AssistantDelta:
		return allowsAttempt(t, p.Attempt, refuse)
	case event.Emission:
		return allowsAttempt(t, p.Attempt, refuse)
	case event.AssistantDiscarded:
		return allowsAttempt(t, p.Attempt, refuse)
	case event.AssistantCompleted:
		return allowsAttempt(t, p.Attempt, refuse)
	case event.AssistantStopped:
		return allowsAttempt(t, p.Attempt, refuse)
	}
	id, ok := callID(p)
	if !ok {
		return nil
	}
	var c Call
	if i := t.callIndex(id); i >= 0 {
		c = t.Calls[i]
	}
	if _, ok := callTransitions[c.Status][e.Type]; !ok || !c.fits(p) {
		return refuse("call", id, string(c.Status))
	}
	return nil
}

// fits holds what the call table cannot say: people are asked about the outcome
// of what was started, and give an answer to what they were asked, and how far a
// tool is it says of the attempt that is under way.
func (c Call) fits(p event.Payload) bool {
	switch p := p.(type) {
	case event.ApprovalRequested:
		return (p.Kind == event.ApprovalOfOutcome) == (c.Status == CallStarted)
	case event.ApprovalDecided:
		return c.Asked.Takes(p.Decision) && (p.Decision == event.DecisionEdited) == (p.EditedArguments != nil)
	case event.ToolProgress:
		return p.Attempt == c.Attempt
	}
	return true
}

func allowsAttempt(t Turn, attempt int, refuse func(entity, id, from string) error) error {
	if attempt != t.Attempt {
		return refuse("turn", t.MessageID, string(t.Status))
	}
	return nil
}

// ofTurn reports whether events of that type move a turn.
func ofTurn(t event.Type) bool { return turnTypes[t] }

var turnTypes = func() map[event.Type]bool {
	out := map[event.Type]bool{}
	for _, row := range turnTransitions {
		for t := range row {
			out[t] = true
		}
	}
	return out
}()

// has reports whether some call of the turn is in one of these states.
func (t Turn) has(states ...CallStatus) bool {
	return slices.ContainsFunc(t.Calls, func(c Call) bool { return slices.Contains(states, c.Status) })
}

// settled reports whether nothing of the turn waits for an outcome.
func (t Turn) settled() bool {
	if t.Status == TurnCalling {
		return false
	}
	for _, c := range t.Calls {
		if c.Status != CallDone {
			return false
		}
	}
	return true
}
