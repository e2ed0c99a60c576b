package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

const (
	// maxAnswer is how much text, reasoning, names and arguments one answer may
	// have, in bytes. A block counts as overhead more, so that an answer of
	// nothing but beginnings has an end too.
	maxAnswer = 32 << 20
	overhead  = 64
	// maxCalls is how many tool calls one answer may have.
	maxCalls = 1000
	// maxStopReason is the length of a provider's word, in bytes.
	maxStopReason = 100
)

var (
	errAnswerTooLong = fmt.Errorf("the provider's answer has more than %d bytes of text", maxAnswer)
	errTooManyCalls  = fmt.Errorf("the provider's answer has more than %d tool calls", maxCalls)
	errUnnamedCall   = errors.New("the provider asked for a tool call without naming the tool")
)

// answer turns the API's events into agentd's chunks. The zero value is an
// answer of which nothing has arrived.
type answer struct {
	// names are agentd's names of tools by the provider's, where they differ.
	names map[string]string

	stopReason string
	usage      stream.Usage
	size       int  // see maxAnswer
	said       bool // text, reasoning or a call
	blocks     int
	open       map[int]*block
	calls      []*block
}

// block is a block of the answer.
type block struct {
	id string
	// lane is where its text goes; "" skips it.
	lane stream.Lane
	// seam holds what is cut off at the end of its text.
	seam wire.Seam
	// whole are the arguments that came with the beginning of a call; arrived
	// says that some came behind it.
	whole   string
	arrived bool
}

// begin opens the block of an index.
func (a *answer) begin(index int, b wireOpening) (out []stream.Chunk, err error) {
	a.blocks++
	a.size += overhead + len(b.ID) + len(b.Name)
	opened := &block{id: strconv.Itoa(a.blocks)}
	if old := a.open[index]; old != nil {
		out = old.say(out, old.seam.Rest())
	}
	if a.open == nil {
		a.open = make(map[int]*block)
	}
	a.open[index] = opened
	switch b.Type {
	case blockText:
		opened.lane = stream.LaneText
		return a.text(out, opened, string(b.Text)), nil
	case blockThinking:
		opened.lane = stream.LaneReasoning
		return a.text(out, opened, string(b.Thinking)), nil
	case blockCall:
		if b.Name == "" {
			return nil, errUnnamedCall
		}
		opened.lane = stream.LaneToolArguments
		if len(b.Input) > 0 && b.Input[0] == '{' {
			opened.whole = string(b.Input)
			a.size += len(opened.whole)
		}
		a.calls, a.said = append(a.calls, opened), true
		name := string(b.Name)
		if own, ok := a.names[name]; ok {
			name = own
		}
		return append(out, stream.Chunk{
			Kind: stream.KindToolCall, BlockID: opened.id, Call: stream.CallStart{ProviderID: string(b.ID), Name: name},
		}), nil
	}
	return out, nil
}

// more adds a delta to the block of an index. One whose beginning nobody has
// seen begins one, if it says which kind.
func (a *answer) more(index int, d wireDelta) (out []stream.Chunk, err error) {
	b := a.open[index]
	if b == nil {
		kind := map[wire.LenientText]wire.LenientText{
			"text_delta": blockText, "thinking_delta": blockThinking, "input_json_delta": blockCall,
		}[d.Type]
		if out, err = a.begin(index, wireOpening{Type: kind}); err != nil {
			return nil, err
		}
		b = a.open[index]
	}
	switch {
	case b.lane == stream.LaneText && d.Type == "text_delta":
		return a.text(out, b, string(d.Text)), nil
	case b.lane == stream.LaneReasoning && d.Type == "thinking_delta":
		return a.text(out, b, string(d.Thinking)), nil
	case b.lane == stream.LaneToolArguments && d.Type == "input_json_delta":
		b.arrived = b.arrived || !wire.Blank(string(d.PartialJSON))
		return a.text(out, b, string(d.PartialJSON)), nil
	}
	return out, nil
}

// end closes the block of an index.
func (a *answer) end(index int) []stream.Chunk {
	b := a.open[index]
	if b == nil {
		return nil
	}
	delete(a.open, index)
	return b.say(nil, b.seam.Rest())
}

func (a *answer) text(out []stream.Chunk, b *block, text string) []stream.Chunk {
	a.size += len(text)
	a.said = a.said || text != ""
	return b.say(out, b.seam.Join(text))
}

func (b *block) say(out []stream.Chunk, text string) []stream.Chunk {
	if text == "" || b.lane == "" {
		return out
	}
	return append(out, stream.Chunk{Kind: stream.KindDelta, Lane: b.lane, BlockID: b.id, Text: text})
}

// started takes in what the beginning of the message says.
func (a *answer) started(message json.RawMessage) error {
	var m struct {
		Usage *wireUsage `json:"usage"`
	}
	if len(message) > 0 {
		if err := json.Unmarshal(message, &m); err != nil {
			return err
		}
	}
	a.report(m.Usage)
	return nil
}

func (a *answer) report(u *wireUsage) {
	if u != nil {
		a.usage = u.onto(a.usage)
	}
}

// stopping takes in why the message is about to end.
func (a *answer) stopping(e wireEvent) {
	a.report(e.Usage)
	if e.Delta.StopReason != "" {
		a.stopReason = event.Shorten(string(e.Delta.StopReason), maxStopReason)
	}
}

// problem is why the answer cannot be taken, nil if it can so far.
func (a *answer) problem() error {
	switch {
	case a.size > maxAnswer:
		return errAnswerTooLong
	case len(a.calls) > maxCalls:
		return errTooManyCalls
	}
	return nil
}

// finish is how the answer ended, and what is left to say before.
func (a *answer) finish() []stream.Chunk {
	var out []stream.Chunk
	for _, index := range slices.Sorted(maps.Keys(a.open)) {
		out = append(out, a.end(index)...)
	}
	reason := finishReason(a.stopReason)
	if reason == stream.FinishStop && len(a.calls) > 0 {
		reason = stream.FinishToolCalls
	}
	for i, call := range a.calls {
		switch {
		case call.arrived:
		case call.whole != "" && call.whole != "{}":
			out = call.say(out, call.whole)
		case reason == stream.FinishLength && i == len(a.calls)-1:
			out = call.say(out, "{") // what would have followed is not known
		default:
			out = call.say(out, "{}")
		}
	}
	return append(out, stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: reason, Raw: a.stopReason, Usage: a.usage}})
}
