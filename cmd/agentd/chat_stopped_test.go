package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestChatSaysThatAnObserverStoppedTheAnswer: what was accepted of it is shown, like
// in the history, and what follows is told.
func TestChatSaysThatAnObserverStoppedTheAnswer(t *testing.T) {
	t.Parallel()
	says := func(text string) []hooks.Part { return []hooks.Part{{Type: hooks.PartText, Text: text}} }
	stopped := func(policy stream.StopPolicy, text string) event.AssistantStopped {
		return event.AssistantStopped{Attempt: 1, Parts: says(text), Reason: event.StoppedByObserver, Observer: "refusals", Policy: policy}
	}
	for name, test := range map[string]struct {
		events        []event.Payload
		printed, note string
		onScreen      string
	}{
		"ends the turn": {[]event.Payload{stopped(stream.StopEndTurn, "I can")}, "I can", "the answer was stopped by refusals\n", "I can\n(the answer was stopped by refusals)\n"},
		"is made again": {
			[]event.Payload{stopped(stream.StopRetry, "I can"), event.AssistantCompleted{Parts: says("Sure.")}}, "I can\nSure.",
			"the answer was stopped by refusals, and is asked for again\n", "I can\n(the answer was stopped by refusals, and is asked for again)\nSure.\n",
		},
		"had nothing": {
			[]event.Payload{stopped(stream.StopFallback, ""), event.AssistantCompleted{Parts: says("Sure.")}}, "Sure.",
			"the answer was stopped by refusals, and another model is asked\n", "(the answer was stopped by refusals, and another model is asked)\nSure.\n",
		},
		"fails the run":      {[]event.Payload{stopped(stream.StopFail, "I can")}, "", "the answer was stopped by refusals\n", "I can\n(the answer was stopped by refusals)\n"},
		"was the provider's": {[]event.Payload{event.AssistantStopped{Parts: says("I can"), Reason: "cancelled"}}, "", "", "I can\n"},
	} {
		var note, out bytes.Buffer
		pipe := &printView{err: &note}
		onScreen := &screenView{screen: &screen{out: &out, size: func() (int, int) { return 80, 24 }}}
		for _, e := range test.events {
			pipe.show(e)
			onScreen.show(e)
		}
		if pipe.text.String() != test.printed || note.String() != test.note {
			t.Errorf("%s: a pipe gets %q and is told %q; want %q, %q", name, pipe.text.String(), note.String(), test.printed, test.note)
		}
		if got := strings.NewReplacer(dim, "", resetText, "").Replace(out.String()); got != test.onScreen {
			t.Errorf("%s: a terminal shows %q, want %q", name, got, test.onScreen)
		}
	}
}
