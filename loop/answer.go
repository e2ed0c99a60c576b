package loop

import (
	"errors"
	"sync"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// maxPending bounds the text that has arrived from a model and is not durable
// yet. At the bound the provider is no longer read.
const maxPending = 1 << 20

// answer collects a model's answer while it arrives. One goroutine adds
// chunks, another takes what is to be made durable; what arrives between two
// takes is merged, so a slow log costs fewer events and no text.
type answer struct {
	attempt int
	// prices are what the model costs.
	prices Prices

	mu      sync.Mutex
	blocks  []block
	pending []block
	size    int
	finish  *stream.Finish
	err     error
	done    bool
	// stop is set if an observer has stopped the answer, reports what observers
	// did, once they have ended. left says that they hang: nothing more is heard.
	stop    *stream.Stopped
	reports []stream.Report
	left    bool
	// usage is what the provider had said when the answer was stopped.
	usage stream.Usage
	// decisions are what hooks said of the answer and nobody has taken yet,
	// refused why they do not want it read.
	decisions []hooks.Decision
	refused   *hooks.Reason
	// ready has a value when there is something to take, room when there is
	// room again.
	ready chan struct{}
	room  chan struct{}
}

// block is a text, a reasoning or a tool call, or a piece of one, in order of
// arrival.
type block struct {
	lane stream.Lane
	id   string
	text []byte
	call stream.CallStart
	// changed says that CleanText changed something in it.
	changed bool
	// emitted is set for what an observer emitted, which is only ever pending.
	emitted *event.Emission
}

func newAnswer(attempt int, prices Prices) *answer {
	return &answer{attempt: attempt, prices: prices, ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// add takes in a chunk. It returns an error if the chunk makes no sense, and
// full if the caller should wait for room.
func (a *answer) add(c stream.Chunk) (full bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.taken(&c)
}

// taken is add for who has the lock.
func (a *answer) taken(c *stream.Chunk) (full bool, err error) {
	if a.refused != nil || a.left {
		return false, errRefused
	}
	lane := c.Lane
	switch c.Kind {
	case stream.KindFinish:
		finish := c.Finish // so that not every chunk escapes
		a.finish = &finish
		return false, nil
	case stream.KindToolCall:
		name, changedName := event.CleanText(c.Call.Name)
		id, changedID := event.CleanText(c.Call.ProviderID)
		a.blocks = append(a.blocks, block{
			lane: stream.LaneToolArguments, id: c.BlockID, call: stream.CallStart{Name: name, ProviderID: id},
			changed: changedName || changedID,
		})
		lane = stream.LaneToolArguments
	case stream.KindDelta, stream.KindEnd: // the latter is for observers and has no text
	}
	text, changed := event.CleanText(c.Text)
	if text == "" {
		return false, nil
	}
	b := a.block(lane, c.BlockID)
	if b == nil {
		return false, errNotOpened
	}
	b.changed = b.changed || changed
	b.text = append(b.text, text...)
	if lane == stream.LaneToolArguments {
		return false, nil
	}
	a.size += len(text)
	a.wait(lane, c.BlockID, text, changed)
	notice(a.ready)
	return a.size >= maxPending, nil
}

// errNotOpened does not say which call: its name is the provider's text.
var errNotOpened = errors.New("the model sent arguments for a call that it had not opened")

// block finds a block; texts open theirs, calls must be open.
func (a *answer) block(lane stream.Lane, id string) *block {
	for i := len(a.blocks) - 1; i >= 0; i-- {
		if a.blocks[i].lane == lane && a.blocks[i].id == id {
			return &a.blocks[i]
		}
	}
	if lane == stream.LaneToolArguments {
		return nil
	}
	a.blocks = append(a.blocks, block{lane: lane, id: id})
	return &a.blocks[len(a.blocks)-1]
}

// wait adds text to what is not durable yet.
func (a *answer) wait(lane stream.Lane, id, text string, changed bool) {
	n := len(a.pending)
	if n == 0 || a.pending[n-1].lane != lane || a.pending[n-1].id != id || a.pending[n-1].emitted != nil {
		a.pending = append(a.pending, block{lane: lane, id: id})
		n++
	}
	p := &a.pending[n-1]
	p.text = append(p.text, text...)
	p.changed = p.changed || changed
}

// end says that nothing more will be added.
func (a *answer) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left {
		return
	}
	a.err, a.done = err, true
	notice(a.ready)
}

// begun reports whether anything of an answer has come.
func (a *answer) begun() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.blocks) > 0 || a.finish != nil
}

// decided adds what hooks said of the answer. With a reason it is refused, and
// whatever the adapter makes of that, nothing more is added.
func (a *answer) decided(decisions []hooks.Decision, refused *hooks.Reason) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.decisions, a.refused = append(a.decisions, decisions...), refused
}

func (a *answer) takeDecisions() []hooks.Decision {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.decisions
	a.decisions = nil
	return taken
}

// take returns the deltas that are not durable yet, with what observers emitted
// between them, and whether the answer has ended.
func (a *answer) take() (deltas []event.Payload, done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.pending {
		if p.emitted != nil {
			deltas = append(deltas, *p.emitted)
			continue
		}
		deltas = append(deltas, event.AssistantDelta{
			Attempt: a.attempt, Lane: p.lane, BlockID: p.id, Text: string(p.text), Sanitized: p.changed,
		})
	}
	a.pending, a.size = nil, 0
	notice(a.room)
	return deltas, a.done
}

// completed is the whole answer and the calls that it asks for.
func (a *answer) completed(newID func() string) []event.Payload {
	a.mu.Lock()
	defer a.mu.Unlock()
	raw, changed := event.CleanText(a.finish.Raw)
	usage := believed(a.finish.Usage)
	msg := event.AssistantCompleted{
		Attempt: a.attempt, MessageID: newID(), Parts: []hooks.Part{},
		Finish: a.finish.Reason, FinishRaw: raw, Usage: usage, Cost: a.prices.cost(usage), Sanitized: changed,
	}
	var calls []event.Payload
	for _, b := range a.blocks {
		msg.Sanitized = msg.Sanitized || b.changed
		switch b.lane {
		case stream.LaneText:
			msg.Parts = append(msg.Parts, hooks.Part{Type: hooks.PartText, Text: string(b.text)})
		case stream.LaneReasoning:
			msg.Parts = append(msg.Parts, hooks.Part{Type: hooks.PartReasoning, Text: string(b.text)})
		case stream.LaneToolArguments:
			args := string(b.text)
			if blank(args) {
				args = "{}"
			}
			call := hooks.ToolCall{ID: newID(), ProviderID: b.call.ProviderID, Name: b.call.Name, Arguments: args}
			msg.Parts = append(msg.Parts, hooks.Part{Type: hooks.PartToolCall, ToolCall: &call})
			calls = append(calls, event.ToolProposed{
				CallID: call.ID, Number: len(calls) + 1, Name: call.Name, Arguments: args,
				ProviderCallID: call.ProviderID, Sanitized: b.changed,
			})
		}
	}
	return append([]event.Payload{msg}, calls...)
}

// spent is what the provider had said of a call that failed, nil for nothing.
func (a *answer) spent() (*stream.Usage, *event.Cost) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := believed(a.usage)
	var me *ModelError
	if errors.As(a.err, &me) {
		u = believed(me.Usage)
	}
	if a.finish != nil {
		u = believed(a.finish.Usage)
	}
	if u == (stream.Usage{}) {
		return nil, nil
	}
	return &u, a.prices.cost(u)
}

// shown is what the answer's texts add up to, for an answer that was cut off.
func (a *answer) shown() []PartialBlock {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []PartialBlock
	for _, b := range a.blocks {
		if b.lane != stream.LaneToolArguments {
			out = append(out, PartialBlock{Lane: b.lane, BlockID: b.id, Text: string(b.text), Sanitized: b.changed})
		}
	}
	return out
}

func notice(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
