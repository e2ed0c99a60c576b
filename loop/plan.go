package loop

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
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
	// gates says that hooks have to be asked before anything is written.
	gates gates
	// release queues the run again, for another worker.
	release bool
}

// gates are the kinds of asking that a step needs.
type gates int

const (
	gatesNone gates = iota
	// gatesRun: before the first turn of a run, and then as gatesModel.
	gatesRun
	// gatesModel: before a model call.
	gatesModel
	// gatesTools: before tool calls.
	gatesTools
)

// planner derives the next step of a run from its state alone. It has no
// effect.
type planner struct {
	newID func() string
	agent Agent
	// known is false if no agent of the run's name is configured.
	known bool
	// leaving asks for the run to be handed back at the next step.
	leaving bool
	// paused asks for the same, until the run is resumed.
	paused bool
	// overdue says that the run's time is over.
	overdue bool
	// retryAt is set if the next model call is too far off to wait for it.
	retryAt *time.Time
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
	st := p.proceed(r)
	released := event.RunReleased{WorkerID: r.WorkerID, Epoch: s.Epoch + 1, Ticket: r.Ticket + 1}
	switch {
	case st.act == actEnd:
	case p.overdue:
		return step{write: timedOut(p.newID, r, p.agent.Limits), act: actEnd}
	case p.retryAt != nil:
		// The sweeper queues it again once it is due.
		released.Cause, released.NotBefore = event.ReleaseBackoff, p.retryAt
		return step{write: []event.Payload{released}, act: actEnd, release: true}
	case p.leaving:
		released.Cause = event.ReleaseShutdown
		return step{write: []event.Payload{released}, act: actEnd, release: true}
	case p.paused:
		released.Cause = event.ReleasePause
		return step{write: []event.Payload{released}, act: actEnd, release: true}
	}
	return st
}

func (p planner) proceed(r Run) step {
	t, _ := r.Turn()
	if fail, ok := p.agent.Limits.spent(r); ok && t.goesOn() {
		return step{write: limited(p.newID, r, fail), act: actEnd}
	}
	if _, ok := p.agent.answering(r); !ok && t.goesOn() {
		return step{write: append(closing(p.newID, r, string(event.FailStopped)), noModelLeft(r)), act: actEnd}
	}
	switch t.Status {
	case TurnNone:
		st := p.newTurn(r)
		st.gates = gatesRun
		return st
	case TurnOpen:
		return p.callModel(r, t.Attempt+1)
	case TurnCalling:
		// The call was cut in the middle. What it showed is void.
		st := p.callModel(r, t.Attempt+1)
		st.write = append([]event.Payload{event.AssistantDiscarded{Attempt: t.Attempt, Reason: discardInterrupted}}, st.write...)
		return st
	case TurnAnswered:
		if !t.settled() {
			return step{gates: gatesTools}
		}
		return p.endTurn(r, t)
	case TurnCompleted, TurnStopped:
		if t.Superseded {
			return p.newTurn(r)
		}
		if t.Status == TurnStopped && t.Stop != nil {
			return p.endStopped(r, t)
		}
		// Else the last word only of a run that failed there and is taken up again:
		// both are written together with what follows.
		if r.Retries > 0 && t.Status == TurnCompleted {
			return p.nextTurn(r)
		}
	}
	return step{
		write: []event.Payload{event.RunFailed{Reason: event.FailIncomplete, Error: "the answer was cut off"}},
		act:   actEnd,
	}
}

// goesOn reports whether the turn, or one in its place, has a model or a tool to
// call. One whose calls all have results is completed in any case.
func (t Turn) goesOn() bool {
	switch t.Status {
	case TurnOpen, TurnCalling:
		return true
	case TurnAnswered:
		return !t.settled()
	case TurnStopped:
		return t.Superseded || t.Stop.asksAgain()
	case TurnNone, TurnCompleted:
	}
	return false
}

func (p planner) newTurn(r Run) step {
	st := p.callModel(r, 1)
	st.write = append([]event.Payload{event.TurnStarted{}}, st.write...)
	return st
}

// callModel leaves the request to be completed with what the gates make of it.
func (p planner) callModel(r Run, attempt int) step {
	agent, _ := p.agent.answering(r)
	return step{
		write: []event.Payload{event.ModelRequested{Attempt: attempt, Model: agent.ModelName}},
		act:   actCallModel, gates: gatesModel,
	}
}

func (p planner) endTurn(r Run, t Turn) step {
	if len(t.Calls) == 0 {
		return step{write: []event.Payload{event.TurnCompleted{}, event.RunCompleted{Reason: t.Finish}}, act: actEnd}
	}
	st := p.nextTurn(r)
	st.write = append([]event.Payload{event.TurnCompleted{}}, st.write...)
	return st
}

// nextTurn is a turn behind a completed one, if no limit forbids it.
func (p planner) nextTurn(r Run) step {
	if fail, ok := p.agent.Limits.exceeded(r); ok {
		return step{write: []event.Payload{fail}, act: actEnd}
	}
	return p.newTurn(r)
}

// refused is the result of a call that no gate is asked about.
func (r *runner) refused(d *draft, tool Tool, ok bool, c Call) event.ToolResult {
	res := event.ToolResult{CallID: c.ID, MessageID: r.engine.NewID(), Name: c.Name, IsError: true}
	if !ok {
		res.Reason, res.Content = hooks.ReasonUnknownTool, "There is no tool called "+event.Shorten(c.Name, 80)+". Nothing was run."
		return res
	}
	if !json.Valid([]byte(c.final())) {
		// Never repaired: what is missing is not for us to make up.
		res.Reason, res.Content = hooks.ReasonInvalidArguments, "The arguments are not whole JSON, so nothing was run. Send the call again with complete arguments."
		if t, _ := d.run().Turn(); t.Finish == stream.FinishLength {
			res.Content = "The arguments were cut off by the output limit, so nothing was run. Send the call again with shorter arguments."
		}
		return res
	}
	text, sanitized := event.CleanText(validate(tool, c).Error())
	res.Reason, res.Sanitized = hooks.ReasonInvalidArguments, sanitized
	res.Content = c.noted("The arguments are not valid, so nothing was run: " + event.Shorten(text, 2000))
	return res
}

func validate(t Tool, c Call) error { return fits(t, c.final()) }

var errNoJSON = errors.New("they are not whole JSON")

// fits says whether arguments are one JSON document that the tool takes. A tool that
// reads the first of two documents must not be handed what hooks cannot read.
func fits(t Tool, arguments string) error {
	if !json.Valid([]byte(arguments)) {
		return errNoJSON
	}
	return t.Validate(json.RawMessage(arguments))
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
