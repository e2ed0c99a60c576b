package loop_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestADraftLeadsToWhatItsEventsFoldTo: a runner goes on with the state of its
// draft, and whoever takes the run over with what the log says.
func TestADraftLeadsToWhatItsEventsFoldTo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		states, events := walk(r, t, 30)
		for i, e := range events {
			p, err := event.Decode(e)
			if err != nil {
				r.Fatal(err)
			}
			scope := event.Scope{SessionID: e.SessionID, RunID: e.RunID, Turn: e.Turn, At: e.At, Actor: e.Actor}
			draftFolds(r, states[i], scope, p)
		}
	})
	calling := scenes()["turn calling"].build(t)
	scope := event.Scope{SessionID: "s", RunID: "run", At: at, Actor: looptest.Tester}
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"\x00", "a\xff", `\u0000`, "<\u2028>"}))
		d := event.AssistantDelta{
			Attempt: 1, Lane: stream.Lane(text.Draw(r, "lane")), BlockID: text.Draw(r, "block"), Text: text.Draw(r, "text"), Sanitized: rapid.Bool().Draw(r, "sanitized"),
		}
		draftFolds(r, calling, scope, d, d)
	})
}

func draftFolds(t *rapid.T, base loop.State, scope event.Scope, payloads ...event.Payload) {
	a, got, err := loop.Draft(looptest.NewID, base, scope, payloads...)
	if err != nil || len(a.Events) != len(payloads) {
		t.Fatalf("drafted %d events of %d: %v", len(a.Events), len(payloads), err)
	}
	if want := loop.FoldAll(base, a.Events); dump(t, got) != dump(t, want) {
		t.Fatalf("the draft of %s leads to\n%s\nand its events to\n%s", payloads[0].EventType(), dump(t, got), dump(t, want))
	}
}

// BenchmarkDraftDelta is what a delta costs before it is sent, when the answer
// has as much text as its name says.
func BenchmarkDraftDelta(b *testing.B) {
	for name, size := range map[string]int{"1kB": 1 << 10, "100kB": 100 << 10} {
		b.Run(name, func(b *testing.B) {
			s := scenes()["turn calling"].build(b)
			scope := event.Scope{SessionID: "s", RunID: "run", At: at, Actor: looptest.Tester}
			delta := event.AssistantDelta{Attempt: 1, Lane: stream.LaneText, BlockID: "0", Text: strings.Repeat("x", size)}
			_, s, err := loop.Draft(looptest.NewID, s, scope, delta)
			if err != nil {
				b.Fatal(err)
			}
			delta.Text = "a few words more"
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := loop.Draft(looptest.NewID, s, scope, delta); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
