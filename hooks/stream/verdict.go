package stream

import (
	"encoding/json"
	"time"
)

// Action is what an observer wants done with a chunk. The words are stored: a
// value is never renamed.
type Action string

// The actions.
const (
	ActionContinue Action = "continue"
	ActionAmend    Action = "amend"
	ActionEmit     Action = "emit"
	ActionStop     Action = "stop"
	ActionHold     Action = "hold"
	ActionThrottle Action = "throttle"
)

// Verdict is what an observer says of one chunk. The zero value is Continue. Make
// others with the functions of this package.
type Verdict struct {
	// Action is "" or one of the actions; the other fields go with it.
	Action   Action          `json:"action,omitempty"`
	Chunk    Chunk           `json:"chunk,omitzero"`
	Channel  string          `json:"channel,omitempty"`
	Envelope json.RawMessage `json:"envelope,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Pause    time.Duration   `json:"pause,omitempty"`
}

// Continue lets the chunk pass as it is.
func Continue() Verdict { return Verdict{} }

// Amend puts c in the place of the chunk: exactly one for one. A text that is to
// vanish becomes a chunk with an empty text.
//
// A delta stays in its lane, and one of the arguments in its block; a delta of
// the text may become a whole tool call, which opens a block of its own. A tool
// call stays one. The end of a block becomes what may follow in the block; it is
// sent again until it is let pass, up to 1,000 times, so that as many chunks can be
// given back. A finish stays one, of which the reason alone may change.
//
// A block that the observer opens goes on under its id and a colon before the id
// that it gave it, so it is never one of the provider's, and no end of it is sent
// to the observer itself. If it made a tool call, an answer that ends with
// [FinishStop] goes on from it as one that ends with [FinishToolCalls].
func Amend(c Chunk) Verdict { return Verdict{Action: ActionAmend, Chunk: c} }

// Emit lets the chunk pass as it is and commits envelope, which is one JSON
// document of at most [MaxEnvelope] bytes, on a channel, whose name is like an id,
// in the same append as the chunk. Who consumes the channel may see the same envelope again when the
// model call is made again.
func Emit(channel string, envelope json.RawMessage) Verdict {
	return Verdict{Action: ActionEmit, Channel: channel, Envelope: envelope}
}

// Stop ends the answer before this chunk. Reason is a sentence for people and may
// be stored and shown: it holds nothing of what it is about.
func Stop(reason string) Verdict { return Verdict{Action: ActionStop, Reason: reason} }

// Hold lets a chunk pass that is empty in the place of this one. The observer has
// to give the text back, as it is or changed, by amending a later chunk of the
// block, at the latest its end. Amending with a text, and letting a text pass,
// count as giving back all that is held of the block. An end cannot be held.
func Hold() Verdict { return Verdict{Action: ActionHold} }

// Throttle lets the chunk pass as it is and reads nothing more of the provider for
// d, which counts for at most [MaxThrottle]; the pauses of an attempt add up to
// at most [MaxThrottleTotal], and what goes beyond that is left out.
func Throttle(d time.Duration) Verdict { return Verdict{Action: ActionThrottle, Pause: d} }
