package event

import "github.com/seed-2ca4966b/agentd/hooks"

// MessageCreated stores what a user said.
type MessageCreated struct {
	MessageID string       `json:"message_id"`
	Role      hooks.Role   `json:"role"`
	Parts     []hooks.Part `json:"parts"`
	Sanitized bool         `json:"sanitized,omitempty"`
	// Enqueued says that the run of the envelope is behind another one. The
	// message joins the conversation where that run is queued: until then no
	// model sees it, and it never joins if the run is cancelled before.
	Enqueued bool `json:"enqueued,omitempty"`
}

// MessagesReplaced takes the end of a conversation out of it, from one message
// on: what follows in the log stands in its place. The messages stay in the log
// and are in no model's context any more. The run in the envelope is the one
// that answers instead: a new one, or the one that is taken up again. It is the
// run of the messages itself where that was cancelled while it was enqueued, or
// was rolled back.
type MessagesReplaced struct {
	// FromMessageID is the first of MessageIDs.
	FromMessageID string `json:"from_message_id"`
	// MessageIDs are all that are replaced, in order of position.
	MessageIDs []string `json:"message_ids"`
}

// EventType implements [Payload].
func (MessageCreated) EventType() Type { return TypeMessageCreated }

// EventType implements [Payload].
func (MessagesReplaced) EventType() Type { return TypeMessagesReplaced }
