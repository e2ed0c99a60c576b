package openai

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// accumulator turns a provider's chunks into agentd's. The zero value is an
// answer of which nothing has arrived.
type accumulator struct {
	finishReason string
	usage        stream.Usage

	lane   stream.Lane // of the open text block
	blocks int
	slots  []*slot
	byID   map[string]*slot
	// byIndex is the slot that an index means now: a provider may use one
	// index for two calls.
	byIndex map[int]*slot
}

// slot is one tool call.
type slot struct {
	blockID string
	id      string
	name    string
	// arguments is what has arrived; shown is how much of it was yielded,
	// which is nothing before the name is known.
	arguments strings.Builder
	shown     int
}

// add returns what a chunk adds to the answer.
func (a *accumulator) add(ch wireChunk) []stream.Chunk {
	if ch.Usage != nil {
		a.usage = ch.Usage.usage() // stated again, not on top
	}
	var out []stream.Chunk
	for _, choice := range ch.Choices {
		if choice.Index != 0 {
			continue
		}
		d := choice.Delta
		reasoning := d.ReasoningContent
		if reasoning == "" {
			reasoning = d.Reasoning
		}
		out = a.text(out, stream.LaneReasoning, string(reasoning))
		out = a.text(out, stream.LaneText, value(d.Content))
		out = a.text(out, stream.LaneText, value(d.Refusal))
		for _, tc := range d.ToolCalls {
			out = a.toolCall(out, tc)
		}
		if raw := value(choice.FinishReason); raw != "" {
			a.finishReason = raw
		}
	}
	return out
}

// finish is how the answer ended. A stop with tool calls is what some
// providers say for tool_calls.
func (a *accumulator) finish() stream.Finish {
	reason := finishReason(a.finishReason)
	if reason == stream.FinishStop && len(a.slots) > 0 {
		reason = stream.FinishToolCalls
	}
	return stream.Finish{Reason: reason, Raw: a.finishReason, Usage: a.usage}
}

// unnamed reports whether a tool call never got its name.
func (a *accumulator) unnamed() bool {
	for _, s := range a.slots {
		if s.name == "" {
			return true
		}
	}
	return false
}

func (a *accumulator) text(out []stream.Chunk, lane stream.Lane, text string) []stream.Chunk {
	if text == "" {
		return out
	}
	if a.lane != lane {
		a.lane = lane
		a.blocks++
	}
	return append(out, stream.Chunk{Kind: stream.KindDelta, Lane: lane, BlockID: strconv.Itoa(a.blocks), Text: text})
}

func (a *accumulator) toolCall(out []stream.Chunk, tc wireToolCall) []stream.Chunk {
	s := a.find(tc)
	s.arguments.WriteString(string(tc.Function.Arguments))
	if s.name == "" {
		if s.name = value(tc.Function.Name); s.name == "" {
			return out
		}
		out = append(out, stream.Chunk{
			Kind: stream.KindToolCall, BlockID: s.blockID,
			Call: stream.CallStart{ProviderID: s.id, Name: s.name},
		})
	}
	if text := s.arguments.String()[s.shown:]; text != "" {
		s.shown += len(text)
		out = append(out, stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneToolArguments, BlockID: s.blockID, Text: text})
	}
	return out
}

// find returns the call that a piece belongs to, a new one if it opens one:
//
//   - a known id goes to its own call, whatever its index says, unless the
//     piece has an index not seen before and a name (a provider that gives
//     two calls one id);
//   - a new id opens a call, unless its index means a call that has no id yet
//     and the piece does not name a tool;
//   - without an id the index decides; an index not seen before opens a call
//     if the piece names a tool, and otherwise goes on with the last one;
//   - without id and index it goes on with the last call.
//
// In the last two cases a piece that plainly begins a call (see begins) opens
// one.
func (a *accumulator) find(tc wireToolCall) *slot {
	id, name := value(tc.ID), value(tc.Function.Name)
	indexed, seen := a.indexed(tc.Index)
	var found *slot
	switch {
	case id != "" && a.byID[id] != nil:
		found = a.byID[id]
		if tc.Index != nil && !seen && name != "" {
			found = nil
		}
	case id != "":
		if seen && indexed.id == "" && (name == "" || indexed.name == "") {
			found = indexed
		}
	case seen:
		found = indexed
	case len(a.slots) > 0 && (tc.Index == nil || name == ""):
		found = a.slots[len(a.slots)-1]
	}
	if found == nil || id == "" && found.begins(tc) {
		found = a.open()
	}
	if id != "" {
		if found.id == "" {
			found.id = id
		}
		if a.byID == nil {
			a.byID = make(map[string]*slot)
		}
		a.byID[id] = found
	}
	if tc.Index != nil {
		if a.byIndex == nil {
			a.byIndex = make(map[int]*slot)
		}
		a.byIndex[*tc.Index] = found
	}
	return found
}

func (a *accumulator) indexed(index *int) (s *slot, seen bool) {
	if index == nil {
		return nil, false
	}
	s, seen = a.byIndex[*index]
	return s, seen
}

func (a *accumulator) open() *slot {
	a.lane = "" // text behind a call is a block of its own
	a.blocks++
	s := &slot{blockID: strconv.Itoa(a.blocks)}
	a.slots = append(a.slots, s)
	return s
}

// begins reports whether a piece without an id begins another call than s:
// it names another tool, or the same one once the arguments of s are whole.
func (s *slot) begins(tc wireToolCall) bool {
	name := value(tc.Function.Name)
	if name == "" || s.name == "" || s.arguments.Len() == 0 {
		return false
	}
	if name != s.name {
		return true
	}
	return tc.Function.Arguments != "" && strings.HasSuffix(s.arguments.String(), "}") &&
		json.Valid([]byte(s.arguments.String()))
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
