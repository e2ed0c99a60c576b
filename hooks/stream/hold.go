package stream

import "time"

// holding is what an observer holds by [Hold] verdicts.
type holding struct {
	blocks []heldBlock
	// pieces are what to give back if the observer is left out, in the order in
	// which they came.
	pieces []heldPiece
}

type heldBlock struct {
	blockRef
	bytes int
	// since is when the first of it was there.
	since time.Duration
}

type heldPiece struct {
	blockRef
	text string
}

// find returns what is held of a block, nil for nothing.
func (h *holding) find(ref blockRef) *heldBlock {
	for i := range h.blocks {
		if h.blocks[i].blockRef == ref {
			return &h.blocks[i]
		}
	}
	return nil
}

// add takes in that the text of c is held. It keeps it only if it may have to be
// given back.
func (h *holding) add(c *Chunk, keep bool) {
	if c.Text == "" {
		return
	}
	ref := refOf(c)
	b := h.find(ref)
	if b == nil {
		h.blocks = append(h.blocks, heldBlock{blockRef: ref, since: c.At})
		b = &h.blocks[len(h.blocks)-1]
	}
	b.bytes += len(c.Text)
	if keep {
		h.pieces = append(h.pieces, heldPiece{ref, c.Text})
	}
}

// release takes in that the observer has given back what it held of a block.
func (h *holding) release(ref blockRef) {
	blocks, pieces := h.blocks[:0], h.pieces[:0]
	for _, b := range h.blocks {
		if b.blockRef != ref {
			blocks = append(blocks, b)
		}
	}
	for _, p := range h.pieces {
		if p.blockRef != ref {
			pieces = append(pieces, p)
		}
	}
	clear(h.pieces[len(pieces):])
	h.blocks, h.pieces = blocks, pieces
}
