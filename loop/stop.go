package loop

import (
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
