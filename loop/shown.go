package loop

import (
	"slices"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Shown is what an answer that is still arriving has shown so far, from its end
// to its beginning. Nil is nothing. A longer one shares the shorter one that it
// follows, so neither is ever changed.
type Shown struct {
	// Before is what came before Piece.
	Before *Shown
	// Piece is some text of its block, or all of it.
	Piece PartialBlock
}

// PartialBlock is the text of one block of an answer that is still arriving.
type PartialBlock struct {
	Lane    stream.Lane
	BlockID string
	Text    string
	// Sanitized says that the text is not quite what arrived.
	Sanitized bool
}

func (b PartialBlock) sameAs(o PartialBlock) bool { return b.Lane == o.Lane && b.BlockID == o.BlockID }

// with returns s and d behind it. Pieces that are no longer than what follows
// them become one with it: a long answer has few, and costs no more for each
// delta than a short one.
func (s *Shown) with(d event.AssistantDelta) *Shown {
	p := PartialBlock{Lane: d.Lane, BlockID: d.BlockID, Text: d.Text, Sanitized: d.Sanitized}
	for s != nil && s.Piece.sameAs(p) && len(s.Piece.Text) <= len(p.Text) {
		p.Text, p.Sanitized = s.Piece.Text+p.Text, s.Piece.Sanitized || p.Sanitized
		s = s.Before
	}
	return &Shown{Before: s, Piece: p}
}

// Blocks are the texts as the whole answer will have them: those that alternate
// stay two.
func (s *Shown) Blocks() []PartialBlock {
	var pieces []PartialBlock
	for ; s != nil; s = s.Before {
		pieces = append(pieces, s.Piece)
	}
	var blocks []PartialBlock
	for _, p := range slices.Backward(pieces) {
		i := slices.IndexFunc(blocks, p.sameAs)
		if i < 0 {
			blocks = append(blocks, p)
			continue
		}
		blocks[i].Text += p.Text
		blocks[i].Sanitized = blocks[i].Sanitized || p.Sanitized
	}
	return blocks
}
