package loop

import (
	"fmt"
	"slices"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Stop is that an observer has stopped the answer of a turn.
type Stop struct {
	// Observer is its id, Policy what follows.
	Observer string
	Policy   stream.StopPolicy
	// Notice is what the model is told before it is asked again, nil if it is not,
	// and Position where in the conversation: behind all messages up to there.
	Notice   *event.PreparedMessage
	Position int64
}

func stopOf(e event.Event, p event.AssistantStopped) *Stop {
	if p.Observer == "" {
		return nil
	}
	return &Stop{Observer: p.Observer, Policy: p.Policy, Notice: p.Notice, Position: e.Seq}
}

// asksAgain reports whether a model is asked again.
func (s *Stop) asksAgain() bool {
	return s != nil && (s.Policy == stream.StopRetry || s.Policy == stream.StopFallback)
}

// goesOn reports whether the turn is completed all the same.
func (s *Stop) goesOn() bool { return s.asksAgain() || s != nil && s.Policy == stream.StopEndTurn }

// Notices are what the model was told in the run because observers have stopped
// it: hidden messages, each with its position in the conversation. Where the run
// was taken up again in the place of a stopped answer, that is as if it had never
// been.
func (r Run) Notices() []hooks.Message {
	var out []hooks.Message
	for _, t := range r.Turns {
		if t.Stop == nil || t.Stop.Notice == nil || t.Superseded {
			continue
		}
		n := t.Stop.Notice
		out = append(out, hooks.Message{
			ID: n.MessageID, RunID: r.ID, Role: n.Role, Position: t.Stop.Position,
			Parts: []hooks.Part{{Type: hooks.PartText, Text: n.Text}},
		})
	}
	return out
}

// withNotices is a conversation with notices behind what they are about. It
// changes messages.
func withNotices(messages, notices []hooks.Message) []hooks.Message {
	for _, n := range notices {
		at := len(messages)
		for at > 0 && messages[at-1].Position > n.Position {
			at--
		}
		messages = slices.Insert(messages, at, n)
	}
	return messages
}

// stops counts the answers of the run that were stopped with that policy.
func (r Run) stops(policy stream.StopPolicy) int {
	n := 0
	for _, t := range r.Turns {
		if t.Stop != nil && t.Stop.Policy == policy {
			n++
		}
	}
	return n
}

// stopPolicy is what follows in r when s stops an answer: what its observer wants,
// or the end of the run where that is used up.
func (r *runner) stopPolicy(s stream.Stopped) stream.StopPolicy {
	agent, run := r.engine.Agents[r.run().Agent], r.run()
	switch s.Policy {
	case stream.StopEndTurn, "":
		return stream.StopEndTurn
	case stream.StopRetry:
		if run.stops(stream.StopRetry) == 0 {
			return stream.StopRetry
		}
	case stream.StopFallback:
		if run.stops(stream.StopFallback) < len(agent.Fallbacks) {
			return stream.StopFallback
		}
	case stream.StopFail:
	}
	return stream.StopFail
}

// stoppedBy is what is written of an answer that an observer has stopped. What
// follows is derived from it, but for the end of the run as failed, which is not in
// a later append.
func (r *runner) stoppedBy(ans *answer, s stream.Stopped) []event.Payload {
	t, _ := r.run().Turn()
	cut := stopped(r.engine.NewID, t.Attempt, ans.shown(), event.StoppedByObserver)
	cut.Usage, cut.Cost = ans.spent()
	cut.Observer, cut.Chunk, cut.Accepted, cut.Policy = s.Observer, s.Chunk, s.Accepted, r.stopPolicy(s)
	why, changed := event.CleanText(s.Reason)
	why = event.Shorten(why, stream.MaxReason)
	switch cut.Policy {
	case stream.StopRetry, stream.StopFallback:
		cut.Notice = &event.PreparedMessage{
			MessageID: r.engine.NewID(), Role: hooks.RoleSystem, Text: noticeOf(s.Observer, why, len(cut.Parts) > 0),
		}
		cut.Sanitized = cut.Sanitized || changed
	case stream.StopFail:
		text := "the observer " + s.Observer + " stopped the model's answer"
		if why != "" {
			text += ": " + why
		}
		return []event.Payload{cut, event.RunFailed{Reason: event.FailStopped, Error: event.Shorten(text, 2000), Sanitized: changed}}
	case stream.StopEndTurn:
	}
	return []event.Payload{cut}
}

// noticeOf is what a model is told of an answer before it is asked again.
func noticeOf(observer, why string, shown bool) string {
	text := "The answer to the message above was stopped by a check (" + observer + ")"
	if why != "" {
		text += ", which says: " + why
	}
	if shown {
		return text + "\nThe user has been shown the part of it that you see; the rest was dropped. Answer again, with this in mind, and do not repeat that part."
	}
	return text + "\nNothing of it was shown to the user. Answer again, with this in mind."
}

// endStopped is what follows an answer that an observer has stopped.
func (p planner) endStopped(r Run, t Turn) step {
	switch {
	case t.Stop.asksAgain():
		st := p.nextTurn(r)
		st.write = append([]event.Payload{event.TurnCompleted{}}, st.write...)
		return st
	case t.Stop.goesOn():
		return step{write: []event.Payload{event.TurnCompleted{}, event.RunCompleted{Reason: event.StoppedByObserver}}, act: actEnd}
	}
	return step{
		write: []event.Payload{event.RunFailed{Reason: event.FailStopped, Error: "the observer " + t.Stop.Observer + " stopped the model's answer"}},
		act:   actEnd,
	}
}

// noModelLeft ends a run on a worker whose agent has fewer models than the one had
// that fell back.
func noModelLeft(r Run) event.RunFailed {
	return event.RunFailed{
		Reason: event.FailStopped,
		Error:  fmt.Sprintf("the run has fallen back %d times, and agent %s has no further model on the worker that took it up", r.stops(stream.StopFallback), r.Agent),
	}
}
