package event

import (
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// AssistantStopped is an answer that was cut off: Parts is what was shown.
type AssistantStopped struct {
	Attempt   int          `json:"attempt"`
	MessageID string       `json:"message_id"`
	Parts     []hooks.Part `json:"parts"`
	// Reason is "cancelled", [StoppedByObserver], or the reason of the failure that
	// follows.
	Reason   string `json:"reason"`
	FirstSeq int64  `json:"first_seq,omitempty"`
	// Usage and Cost are as in [AssistantDiscarded].
	Usage     *stream.Usage `json:"usage,omitempty"`
	Cost      *Cost         `json:"cost,omitempty"`
	Sanitized bool          `json:"sanitized,omitempty"`

	// Observer is who has stopped it; "" if it was cut off otherwise, and then the
	// fields behind it are empty too.
	Observer string `json:"observer,omitempty"`
	// Chunk is the number of the provider's chunk that was not accepted, from 1, and
	// Accepted how many bytes of text, reasoning and arguments went on before it.
	Chunk    int `json:"chunk,omitempty"`
	Accepted int `json:"accepted,omitempty"`
	// Policy is what follows. It is what was possible, and not always what was
	// configured: a second [stream.StopRetry] of a run is [stream.StopFail].
	Policy stream.StopPolicy `json:"policy,omitempty"`
	// Notice is what the model is told before it is asked again: a message that is
	// hidden, as those of [RunPrepared] are, and stands behind what was shown. Nil
	// where it is not asked again.
	Notice *PreparedMessage `json:"notice,omitempty"`
}

// StoppedByObserver is why an answer was cut off that an observer has stopped, and
// how a run ends of which it is the last answer, whether as completed or as failed.
const StoppedByObserver = "stopped"

// EventType implements [Payload].
func (AssistantStopped) EventType() Type { return TypeAssistantStopped }
