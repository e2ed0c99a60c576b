package stream_test

import (
	"fmt"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// mask takes what a redactor finds out of one answer, wherever the provider
// splits it.
type mask struct {
	redactor *pattern.Redactor
	open     map[place]masked
}

// place is where a text is: lanes run side by side, and a lane has several blocks.
type place struct {
	lane stream.Lane
	id   string
}

// masked is what a block is redacted by: a pattern.TextStream, or a
// pattern.JSONStream, which knows the escapes in the arguments of a tool call.
type masked interface {
	Push(dst []byte, piece string) ([]byte, error)
	End(dst []byte) ([]byte, error)
}

// OnChunk implements [stream.Observer].
func (m *mask) OnChunk(c stream.Chunk) stream.Verdict {
	if c.Kind == stream.KindFinish {
		return stream.Continue()
	}
	at := place{c.Lane, c.BlockID}
	t, out, err := m.open[at], []byte(nil), error(nil)
	switch {
	case c.Kind == stream.KindEnd && t == nil:
		return stream.Continue() // all of it was given back
	case c.Kind == stream.KindEnd:
		out, err = t.End(nil)
		delete(m.open, at)
		c.Kind = stream.KindDelta // what was held back follows
	default:
		if t == nil {
			t = m.begin(c.Lane)
			m.open[at] = t
		}
		out, err = t.Push(nil, c.Text)
	}
	if err != nil {
		return stream.Stop("A text is too long to be redacted.")
	}
	c.Text = string(out)
	return stream.Amend(c)
}

func (m *mask) begin(l stream.Lane) masked {
	if l == stream.LaneToolArguments {
		return m.redactor.JSON(0)
	}
	return m.redactor.Text(0)
}

// Clean implements [stream.Cleaner]: the provider's errors may repeat what it was asked.
func (m *mask) Clean(text string) (string, bool) {
	s := m.redactor.Text(0)
	out, err := s.Push(nil, text)
	if err == nil {
		out, err = s.End(out)
	}
	return string(out), err == nil
}

// OnEnd implements [stream.Observer].
func (m *mask) OnEnd(stream.Summary) {}

// masking is how it is registered: with an observer of its own for each answer.
func masking(rules ...pattern.Rule) (stream.Registration, error) {
	r, err := pattern.New(rules...)
	if err != nil {
		return stream.Registration{}, err
	}
	return stream.Registration{
		ID: "mask", Version: "1", Redacting: true, HoldBytes: -1,
		New: func(stream.Call) stream.Observer { return &mask{redactor: r, open: map[place]masked{}} },
	}, nil
}

func Example() {
	reg, err := masking(pattern.Rule{Name: "order", Pattern: `\bORD-[0-9]{6}\b`, With: "[an order]"})
	if err != nil {
		fmt.Println(err)
		return
	}
	set, err := stream.NewSet(reg)
	if err != nil {
		fmt.Println(err)
		return
	}
	// What the loop does with an answer:
	attempt := set.Begin(stream.Call{Class: stream.ClassMain, Attempt: 1})
	show := func(c stream.Chunk) {
		for _, out := range attempt.Push(c).Chunks {
			if out.Kind == stream.KindDelta {
				fmt.Printf("%s %q\n", out.Lane, out.Text)
			}
		}
	}
	show(stream.Chunk{Lane: stream.LaneReasoning, BlockID: "0", Text: "Which one? ORD-12"})
	show(stream.Chunk{Lane: stream.LaneText, BlockID: "1", Text: "It is OR"})
	show(stream.Chunk{Lane: stream.LaneText, BlockID: "1", Text: "D-4711"})
	show(stream.Chunk{Lane: stream.LaneText, BlockID: "1", Text: "00"})
	show(stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: stream.FinishStop}})
	for _, r := range attempt.End(stream.EndFinished) {
		fmt.Println(r.Registration.ID, "changed", r.Lanes)
	}
	// Output:
	// reasoning "Which one? "
	// text "It is "
	// text ""
	// text ""
	// reasoning "ORD-12"
	// text "[an order]"
	// mask changed [reasoning text]
}
