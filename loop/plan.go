package loop

import (
	"encoding/json"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// stopCancelled is the reason on an answer that a cancel cut off.
const stopCancelled = "cancelled"

// action is what an engine does once a step's events are durable.
type action int

const (
	// actNone: plan again.
	actNone action = iota
	actCallModel
	actRunTools
	// actEnd: the run is over, or no longer this worker's.
	actEnd
)

// step is the next thing to do on a run: first write, then act.
type step struct {
	write []event.Payload
	act   action
	// calls are the ids of the tool calls to run.
	calls []string
	// release queues the run again, for another worker.
	release bool
}

// planner derives the next step of a run from its state alone. It has no
// effect.
type planner struct {
	newID func() string
	agent Agent
	// known is false if no agent of the run's name is configured.
	known bool
	// leaving asks for the run to be handed back at the next step.
	leaving bool
}

// next returns the step that follows from s for a run that this worker holds.
func (p planner) next(s State, r Run) step {
	if r.Status.Terminal() {
		return step{act: actEnd}
	}
	if r.CancelRequested {
		return step{
			write: append(closing(p.newID, r, stopCancelled), event.RunCancelled{Reason: r.CancelReason}),
			act:   actEnd,
		}
	}
	if !p.known {
		return step{
			write: append(closing(p.newID, r, string(event.FailUnknownAgent)), event.RunFailed{
				Reason: event.FailUnknownAgent,
				Error:  "no agent called " + r.Agent + " is configured on the worker that took up the run",
			}),
			act: actEnd,
		}
	}
	st := p.proceed(s, r)
	if p.leaving && st.act != actEnd {
		return step{
			write:   []event.Payload{event.RunReleased{Cause: event.ReleaseShutdown, WorkerID: r.WorkerID, Epoch: s.Epoch + 1, Ticket: r.Ticket + 1}},
			act:     actEnd,
			release: true,
		}
	}
	return st
}

func (p planner) proceed(s State, r Run) step {
	t, _ := r.Turn()
	switch t.Status {
	case TurnNone:
		return p.newTurn(s)
	case TurnOpen:
		return p.callModel(s, t.Attempt+1)
	case TurnCalling:
		// The call was cut in the middle. What it showed is void.
		st := p.callModel(s, t.Attempt+1)
		st.write = append([]event.Payload{event.AssistantDiscarded{Attempt: t.Attempt, Reason: "interrupted"}}, st.write...)
		return st
	case TurnAnswered:
		if !t.settled() {
			return p.runTools(t)
		}
		return p.endTurn(s, t)
	case TurnCompleted, TurnStopped:
		// Never the last word of a log: both are written together with what
		// follows.
	}
	return step{
		write: []event.Payload{event.RunFailed{Reason: event.FailIncomplete, Error: "the answer was cut off"}},
		act:   actEnd,
	}
}

func (p planner) newTurn(s State) step {
	st := p.callModel(s, 1)
	st.write = append([]event.Payload{event.TurnStarted{}}, st.write...)
	return st
}

func (p planner) callModel(s State, attempt int) step {
	req := event.ModelRequested{Attempt: attempt, Model: p.agent.ModelName, MessageIDs: []string{}}
	for _, m := range history(s.Messages) {
		req.MessageIDs = append(req.MessageIDs, m.ID)
	}
	for _, t := range p.agent.Tools {
		req.Tools = append(req.Tools, t.Spec().Name)
	}
	return step{write: []event.Payload{req}, act: actCallModel}
}

func (p planner) endTurn(s State, t Turn) step {
	if len(t.Calls) == 0 {
		return step{write: []event.Payload{event.TurnCompleted{}, event.RunCompleted{Reason: t.Finish}}, act: actEnd}
	}
	st := p.newTurn(s)
	st.write = append([]event.Payload{event.TurnCompleted{}}, st.write...)
	return st
}

// runTools starts every call that may run, and gives its result to every one
// that may not.
func (p planner) runTools(t Turn) step {
	st := step{act: actNone}
	for _, c := range t.Calls {
		if c.Status == CallDone {
			continue
		}
		tool, ok := p.agent.tool(c.Name)
		switch {
		case c.Status != CallProposed && ok && tool.Spec().Idempotent, c.Status == CallProposed && ok && validate(tool, c) == nil:
			st.write = append(st.write, event.ToolStarted{CallID: c.ID, Attempt: c.Attempt + 1})
			st.calls = append(st.calls, c.ID)
			st.act = actRunTools
		case c.Status != CallProposed:
			st.write = append(st.write, closedResult(p.newID, c))
		default:
			st.write = append(st.write, p.refused(tool, ok, c))
		}
	}
	return st
}

func (p planner) refused(tool Tool, ok bool, c Call) event.ToolResult {
	res := event.ToolResult{CallID: c.ID, MessageID: p.newID(), Name: c.Name, IsError: true}
	if !ok {
		res.Reason, res.Content = hooks.ReasonUnknownTool, "There is no tool called "+event.Shorten(c.Name, 80)+". Nothing was run."
		return res
	}
	text, sanitized := event.CleanText(validate(tool, c).Error())
	res.Reason, res.Sanitized = hooks.ReasonInvalidArguments, sanitized
	res.Content = "The arguments are not valid, so nothing was run: " + event.Shorten(text, 2000)
	return res
}

func validate(t Tool, c Call) error { return t.Validate(json.RawMessage(c.Arguments)) }

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

func blank(s string) bool { return strings.TrimSpace(s) == "" }
