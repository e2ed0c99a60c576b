package loop_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

func TestShownBlocksAreTheTextsOfTheirDeltas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		deltas := rapid.SliceOf(rapid.Custom(func(t *rapid.T) event.AssistantDelta {
			return event.AssistantDelta{
				Lane:    rapid.SampledFrom([]stream.Lane{stream.LaneText, stream.LaneReasoning}).Draw(t, "lane"),
				BlockID: rapid.SampledFrom([]string{"0", "1"}).Draw(t, "block"),
				Text:    rapid.StringN(0, 9, -1).Draw(t, "text"), Sanitized: rapid.IntRange(0, 9).Draw(t, "sanitized") == 0,
			}
		})).Draw(t, "deltas")
		var want []loop.PartialBlock
		for _, d := range deltas {
			i := slices.IndexFunc(want, func(b loop.PartialBlock) bool { return b.Lane == d.Lane && b.BlockID == d.BlockID })
			if i < 0 {
				i, want = len(want), append(want, loop.PartialBlock{Lane: d.Lane, BlockID: d.BlockID})
			}
			want[i].Text += d.Text
			want[i].Sanitized = want[i].Sanitized || d.Sanitized
		}
		if got := loop.ShowAll(deltas).Blocks(); !slices.Equal(got, want) {
			t.Fatalf("%+v; want %+v", got, want)
		}
	})
}

// TestALongAnswerHasFewPieces: each delta would cost more than the one before
// if its text were copied whole, and there would be as many pieces as deltas if
// it never were.
func TestALongAnswerHasFewPieces(t *testing.T) {
	t.Parallel()
	const n = 1 << 12
	s := loop.ShowAll(slices.Repeat([]event.AssistantDelta{{BlockID: "0", Text: "word "}}, n-1))
	pieces, longest := 0, 0
	for p := s; p != nil; p = p.Before {
		pieces, longest = pieces+1, max(longest, len(p.Piece.Text))
	}
	if pieces != 12 || longest != 5*n/2 {
		t.Errorf("%d pieces, the longest of %d bytes; want 12 and half of the text", pieces, longest)
	}
	if got := s.Blocks(); len(got) != 1 || got[0].Text != strings.Repeat("word ", n-1) {
		t.Errorf("%d blocks, of %d bytes", len(got), len(got[0].Text))
	}
}
