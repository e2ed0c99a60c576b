package event

// SessionCreated is the first event of every log.
type SessionCreated struct {
	TenantID string `json:"tenant_id"`
	// ExternalID is the client's own name for the session, unique per tenant;
	// "" if it gave none.
	ExternalID string `json:"external_id,omitempty"`
	// Title is for people, "" for none.
	Title string `json:"title,omitempty"`
	// Metadata is what the client wants to find the session by.
	Metadata map[string]string `json:"metadata,omitempty"`
	// User is the client's own name of its end user, "" for none.
	User      string `json:"user,omitempty"`
	Sanitized bool   `json:"sanitized,omitempty"`
}

// SessionUpdated changes what a client says about a session. It holds what
// changed and nothing else.
type SessionUpdated struct {
	// Title replaces the title; nil leaves it, "" takes it away.
	Title *string `json:"title,omitempty"`
	// Metadata is merged, as a JSON merge patch: null removes a key, and a key
	// that is not named stays.
	Metadata  map[string]*string `json:"metadata,omitempty"`
	Sanitized bool               `json:"sanitized,omitempty"`
}

// SessionDeleted hides the session from every front door. The log stays; what
// hooks said of it is erased from the ledger, whose rows stay too.
type SessionDeleted struct{}

// EventType implements [Payload].
func (SessionCreated) EventType() Type { return TypeSessionCreated }

// EventType implements [Payload].
func (SessionUpdated) EventType() Type { return TypeSessionUpdated }

// EventType implements [Payload].
func (SessionDeleted) EventType() Type { return TypeSessionDeleted }
