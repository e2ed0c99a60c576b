package event

import "encoding/json"

// TypeEmission is the type of [Emission].
const TypeEmission Type = "emission"

// Emission is what an observer of the stream had to say of an answer while it
// arrived. It moves nothing: a reader that does not know it misses nothing of the
// run. The attempt that it belongs to may be void later, and made again.
type Emission struct {
	Attempt  int    `json:"attempt"`
	Observer string `json:"observer"`
	Channel  string `json:"channel"`
	// Envelope is one JSON document. Nothing but white space between its tokens is
	// left out of it: numbers and keys stand as the observer wrote them.
	Envelope json.RawMessage `json:"envelope"`
	// Chunk is the number of the provider's chunk with which it was emitted, from 1.
	Chunk     int  `json:"chunk"`
	Sanitized bool `json:"sanitized,omitempty"`
}

// EventType implements [Payload].
func (Emission) EventType() Type { return TypeEmission }
