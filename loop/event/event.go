// Package event holds the facts of a session's log: the event types, their
// payloads and the one codec that turns them into the bytes that are stored,
// pushed and replayed.
//
// A payload is encoded once, by [New]. Live push, replay and SELECT all carry
// those bytes. A released payload is never edited: fields are added, and
// readers skip the types and fields that they do not know.
package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Event is an immutable fact, identified by (SessionID, Seq).
type Event struct {
	SessionID string
	// Seq counts from 1 within the session without holes. It is 0 until the
	// log has accepted the event.
	Seq int64
	// Type is the payload's type; one that this binary does not know is kept
	// and skipped.
	Type Type
	// RunID is "" for events that belong to no run.
	RunID string
	// Turn is the turn number within the run, 0 for events outside a turn.
	Turn int
	// At is the writer's clock in UTC, cut to microseconds, which is what
	// Postgres keeps.
	At    time.Time
	Actor Actor
	// Payload is one JSON object, as stored.
	Payload json.RawMessage
}

// ActorKind says what kind of party caused an event.
type ActorKind string

// The actor kinds.
const (
	// ActorPrincipal is a person or program that authenticated by itself.
	ActorPrincipal ActorKind = "principal"
	// ActorKey is an API key; the id is its name, never its value.
	ActorKey ActorKind = "key"
	// ActorSystem is agentd itself; the id says which part.
	ActorSystem ActorKind = "system"
)

// Actor is who caused an event.
type Actor struct {
	Kind ActorKind `json:"kind"`
	ID   string    `json:"id"`
}

// System is the actor of what agentd does by itself.
func System(part string) Actor { return Actor{Kind: ActorSystem, ID: part} }

// Payload is the typed content of an event.
type Payload interface {
	// EventType returns the type that is stored beside the payload. It must
	// not look at the receiver's fields.
	EventType() Type
}

// Scope is what the events of one writer have in common.
type Scope struct {
	SessionID string
	RunID     string
	Turn      int
	At        time.Time
	Actor     Actor
}

// New encodes p. The text in it should have been through [CleanText] where it
// entered agentd; a U+0000 that is still there, and half a surrogate pair in JSON of
// somebody else, is replaced, because Postgres can read neither, and the payload is
// marked as sanitized.
func New(s Scope, p Payload) (Event, error) {
	raw, err := encode(p)
	if err != nil {
		return Event{}, fmt.Errorf("encode %s: %w", p.EventType(), err)
	}
	return Event{
		SessionID: s.SessionID,
		Type:      p.EventType(),
		RunID:     s.RunID,
		Turn:      s.Turn,
		At:        s.At.UTC().Truncate(time.Microsecond),
		Actor:     s.Actor,
		Payload:   raw,
	}, nil
}

// Decode returns the typed payload of e. A type that this binary does not
// know gives [Unknown] and no error; bytes that do not fit the type are an
// error.
func Decode(e Event) (Payload, error) {
	mk, ok := registry[e.Type]
	if !ok {
		return Unknown{Type: e.Type, Raw: e.Payload}, nil
	}
	p, err := mk(e.Payload)
	if err != nil {
		return nil, fmt.Errorf("decode %s at seq %d: %w", e.Type, e.Seq, err)
	}
	return p, nil
}

// Unknown is the payload of an event whose type this binary does not know.
type Unknown struct {
	Type Type
	Raw  json.RawMessage
}

// EventType returns the stored type.
func (u Unknown) EventType() Type { return u.Type }

// Required reports whether the event says that a reader which does not know its
// type must not go on: its payload has "required": true. Who adds a type that
// moves a run marks it so.
func (u Unknown) Required() bool {
	var mark struct {
		Required bool `json:"required"`
	}
	return json.Unmarshal(u.Raw, &mark) == nil && mark.Required
}

func encode(p Payload) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(p); err != nil {
		return nil, err
	}
	return cleanWritten(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

func as[T Payload](raw json.RawMessage) (Payload, error) {
	var p T
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, err
	}
	return p, nil
}
