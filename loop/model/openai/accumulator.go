package openai

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

const (
	// maxAnswer is how much text, reasoning, names and arguments one answer may
	// have, in bytes. A block and an index count as overhead more, so that an
	// answer of nothing but beginnings has an end too.
	maxAnswer = 32 << 20
	overhead  = 64
	// maxFinishReason is the length of a provider's word, in bytes.
	maxFinishReason = 100
	// maxCalls is how many tool calls one answer may have.
	maxCalls = 1000
)

var (
	errAnswerTooLong = fmt.Errorf("the provider's answer has more than %d bytes of text", maxAnswer)
	errTooManyCalls  = fmt.Errorf("the provider's answer has more than %d tool calls", maxCalls)
	errUnnamedCall   = errors.New("the provider asked for a tool call without naming the tool")
)

// accumulator turns a provider's chunks into agentd's. The zero value is an
// answer of which nothing has arrived.
type accumulator struct {
	// names are agentd's names of tools by the provider's, where they differ.
	names map[string]string

	finishReason string
	usage        stream.Usage
	size         int // see maxAnswer

	// lane and blockID are those of the open text block, seam holds what is cut
	// off at its end.
	lane    stream.Lane
	blockID string
	seam    wire.Seam
	blocks  int
	slots   []*slot
	byID    map[string]*slot
	// byIndex is the slot that an index means now: a provider may use one
	// index for two calls.
	byIndex map[int]*slot
}

// add returns what a chunk adds to the answer.
func (a *accumulator) add(ch wireChunk) []stream.Chunk {
	a.report(ch.Usage)
	var out []stream.Chunk
	for _, choice := range ch.Choices {
		if choice.Index.n != 0 {
			continue
		}
		a.report(choice.Usage)
		d := choice.delta()
		reasoning := cmp.Or(string(d.ReasoningContent), string(d.Reasoning), d.Content.reasoning)
		out = a.text(out, stream.LaneReasoning, reasoning)
		out = a.text(out, stream.LaneText, d.Content.text)
		out = a.text(out, stream.LaneText, string(d.Refusal))
		for _, tc := range d.ToolCalls {
			out = a.toolCall(out, tc)
		}
		if d.FunctionCall != nil {
			out = a.toolCall(out, wireToolCall{Function: *d.FunctionCall})
		}
		if choice.FinishReason != "" {
			a.finishReason = event.Shorten(string(choice.FinishReason), maxFinishReason)
		}
	}
	return out
}

// report takes in a statement of usage. One that comes again is stated again
// and not on top, and one without numbers states nothing.
func (a *accumulator) report(u *wireUsage) {
	if u == nil {
		return
	}
	a.usage.InputTokens = cmp.Or(int64(u.input), a.usage.InputTokens)
	a.usage.OutputTokens = cmp.Or(int64(u.output), a.usage.OutputTokens)
}

// problem is why the answer cannot be taken, nil if it can so far.
func (a *accumulator) problem() error {
	switch {
	case a.size > maxAnswer:
		return errAnswerTooLong
	case len(a.slots) > maxCalls:
		return errTooManyCalls
	}
	return nil
}

// empty reports whether nothing was said and nothing asked for.
func (a *accumulator) empty() bool { return a.blocks == 0 }

// finish is how the answer ended, and what is left to say before. A stop with
// tool calls is what some providers say for tool_calls.
func (a *accumulator) finish() ([]stream.Chunk, stream.Finish, error) {
	out := a.close(nil)
	for _, s := range a.slots {
		if s.name == "" {
			return nil, stream.Finish{}, errUnnamedCall
		}
		out = s.show(out, s.seam.Rest())
	}
	reason := finishReason(a.finishReason)
	if reason == stream.FinishStop && len(a.slots) > 0 {
		reason = stream.FinishToolCalls
	}
	return out, stream.Finish{Reason: reason, Raw: a.finishReason, Usage: a.usage}, nil
}

func (a *accumulator) text(out []stream.Chunk, lane stream.Lane, text string) []stream.Chunk {
	if text == "" {
		return out
	}
	if a.lane != lane {
		out = a.close(out)
		a.lane, a.blockID = lane, a.block()
	}
	a.size += len(text)
	return delta(out, lane, a.blockID, a.seam.Join(text))
}

// close ends the open text block: what follows is a block of its own.
func (a *accumulator) close(out []stream.Chunk) []stream.Chunk {
	out = delta(out, a.lane, a.blockID, a.seam.Rest())
	a.lane = ""
	return out
}

func delta(out []stream.Chunk, lane stream.Lane, blockID, text string) []stream.Chunk {
	if text == "" {
		return out
	}
	return append(out, stream.Chunk{Kind: stream.KindDelta, Lane: lane, BlockID: blockID, Text: text})
}

func (a *accumulator) toolCall(out []stream.Chunk, tc wireToolCall) []stream.Chunk {
	calls := len(a.slots)
	s := a.find(tc)
	if len(a.slots) > calls {
		out = a.close(out)
	}
	args := string(tc.Function.Arguments)
	a.size += len(args) + len(tc.ID) + len(tc.Function.Name)
	args = s.seam.Join(args)
	if s.name == "" {
		if s.name = string(tc.Function.Name); s.name != "" {
			out = append(out, stream.Chunk{
				Kind: stream.KindToolCall, BlockID: s.blockID,
				Call: stream.CallStart{ProviderID: s.id, Name: cmp.Or(a.names[s.name], s.name)},
			})
		}
	}
	return s.show(out, args)
}

// find returns the call that a piece belongs to, a new one if it opens one:
//
//   - a known id goes to its own call, whatever its index says, unless the
//     piece has an index not seen before and plainly begins a call (a provider
//     that gives two calls one id);
//   - a new id opens a call, unless its index means a call that has no id yet
//     and the piece does not name a tool;
//   - without an id the index decides; an index not seen before opens a call
//     if the piece names a tool, and otherwise goes on with the last one;
//   - without id and index it goes on with the last call.
//
// In the last two cases a piece that plainly begins a call (see begins) opens
// one.
func (a *accumulator) find(tc wireToolCall) *slot {
	id, name := string(tc.ID), string(tc.Function.Name)
	indexed, seen := a.byIndex[tc.Index.n]
	seen = seen && tc.Index.known
	var found *slot
	switch {
	case id != "" && a.byID[id] != nil:
		found = a.byID[id]
		if tc.Index.known && !seen && found.begins(tc) {
			found = nil
		}
	case id != "":
		if seen && indexed.id == "" && (name == "" || indexed.name == "") {
			found = indexed
		}
	case seen:
		found = indexed
	case len(a.slots) > 0 && (!tc.Index.known || name == ""):
		found = a.slots[len(a.slots)-1]
	}
	if found == nil || id == "" && found.begins(tc) {
		found = a.open()
	}
	if id != "" {
		found.id = cmp.Or(found.id, id)
		if a.byID == nil {
			a.byID = make(map[string]*slot)
		}
		a.byID[id] = found
	}
	if tc.Index.known {
		if a.byIndex == nil {
			a.byIndex = make(map[int]*slot)
		}
		if !seen {
			a.size += overhead
		}
		a.byIndex[tc.Index.n] = found
	}
	return found
}

func (a *accumulator) open() *slot {
	s := &slot{blockID: a.block()}
	a.slots = append(a.slots, s)
	return s
}

// block begins a block and returns its id.
func (a *accumulator) block() string {
	a.blocks++
	a.size += overhead
	return strconv.Itoa(a.blocks)
}
