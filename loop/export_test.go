package loop

import (
	"context"
	"maps"
	"slices"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// RunStatuses lists the rows of the run table.
func RunStatuses() []RunStatus { return slices.Collect(maps.Keys(runTransitions)) }

// TurnStatuses lists the rows of the turn table.
func TurnStatuses() []TurnStatus { return slices.Collect(maps.Keys(turnTransitions)) }

// CallStatuses lists the rows of the call table.
func CallStatuses() []CallStatus { return slices.Collect(maps.Keys(callTransitions)) }

// Draft drafts payloads on base. The state is what a runner goes on with once
// they are durable.
func Draft(newID func() string, base State, scope event.Scope, payloads ...event.Payload) (Append, State, error) {
	d := newDraft(newID, base, scope)
	d.add(payloads...)
	return d.a, d.state, d.err
}

// ShowAll is what deltas have shown.
func ShowAll(deltas []event.AssistantDelta) *Shown {
	var s *Shown
	for _, d := range deltas {
		s = s.with(d)
	}
	return s
}

// ReadObserved reads n chunks of one byte as a model call does, with set observing,
// and lets nobody take them.
func ReadObserved(set *stream.Set, n int) {
	var w *watch
	if set != nil {
		w = &watch{set: set, call: stream.Call{Class: stream.ClassMain}}
	}
	w.read(context.Background(), func(yield func(stream.Chunk, error) bool) {
		for range n {
			if !yield(stream.Chunk{Lane: stream.LaneText, BlockID: "0", Text: "a"}, nil) {
				return
			}
		}
	}, newAnswer(1, Prices{}))
}
