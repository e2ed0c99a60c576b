package loop

import (
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// SessionInfo is a session as front doors show it. It is a value, read from
// the log's projections; deleted sessions have none.
type SessionInfo struct {
	ID       string
	TenantID string
	// ExternalID is the client's own name for the session, "" if it gave none.
	ExternalID string
	// Title is for people, "" for none; User is the client's own name of its end
	// user, "" for none; Metadata is nil for none.
	Title     string
	User      string
	Metadata  map[string]string
	CreatedAt time.Time
	// UpdatedAt is the time of the last event.
	UpdatedAt time.Time
	LastSeq   int64
	// ActiveRunID is the run that is queued, running or waiting, "" if there is none.
	ActiveRunID string
}

// The most that a client may say about a session.
const (
	// MaxTitle is in characters.
	MaxTitle = 200
	// MaxUser, MaxMetadataKey and MaxMetadataValue are in bytes.
	MaxUser          = 200
	MaxMetadataKey   = 64
	MaxMetadataValue = 512
	MaxMetadataKeys  = 16
)

// SessionFilter narrows a list of sessions: a session has to pass all of it.
// The zero value is every session.
type SessionFilter struct {
	// User is the exact name, "" for any.
	User string
	// Query is words, at most [MaxTitle] characters: the title has to contain
	// every one, whatever the case and the order. "" is no condition.
	Query string
	// Metadata is what a session's has to contain, at most [MaxMetadataKeys].
	Metadata map[string]string
	// ActiveOnly leaves out sessions whose runs have all ended.
	ActiveOnly bool
}

// RunInfo is a run as front doors show it.
type RunInfo struct {
	ID        string
	TenantID  string
	SessionID string
	Agent     string
	Status    RunStatus
	// Reason and Error are those of the terminal event, "" before it.
	Reason             string
	Error              string
	MessageID          string
	AssistantMessageID string
	CancelRequested    bool
	// Ahead counts the enqueued runs that begin before this one; 0 for the next
	// one, and for a run that has begun.
	Ahead int
	// Turns counts the turns that were started.
	Turns int
	// InputTokens and OutputTokens are sums over the model calls, as far as the
	// provider said; CostMicros is what that came to, in millionths.
	InputTokens  int64
	OutputTokens int64
	CostMicros   int64
	CreatedAt    time.Time
	// StartedAt is the first claim, nil before it; EndedAt and EndedSeq are the
	// terminal event's, nil and 0 while it may still go on.
	StartedAt *time.Time
	EndedAt   *time.Time
	EndedSeq  int64
	// Retries counts how often the run was taken up again after it had failed.
	Retries int
}

// ApprovalInfo is an approval as front doors show it.
type ApprovalInfo struct {
	ID        string
	TenantID  string
	SessionID string
	RunID     string
	Turn      int
	CallID    string
	// Kind is what people are asked.
	Kind event.ApprovalKind
	// Name and Arguments are the call exactly as it runs if the answer is yes;
	// ArgumentsSHA256 (hex) is what the answer is bound to.
	Name            string
	Arguments       string
	ArgumentsSHA256 string
	// RequestedBy is "permission" or the gate whose hook asked for it, and
	// "on_unknown" for a call of unknown outcome.
	RequestedBy string
	Reason      string
	// Decision is "" while the approval is pending.
	Decision       event.ApprovalDecision
	DecidedBy      event.Actor
	DecisionReason string
	RequestedAt    time.Time
	// DecidedAt is nil while the approval is pending.
	DecidedAt *time.Time
	// EditedArguments are what the answer gave in the place of the arguments, nil
	// if it was no edit, and EditedSHA256 (hex) is their digest.
	EditedArguments *string
	EditedSHA256    string
	// ChangedFrom is what a person had given, if hooks made the arguments of it;
	// nil if not.
	ChangedFrom *string
	// Approvers are as in [Agent], when people were asked.
	Approvers []string
	// ExpiresAt is until when there is time to answer, by the log's clock; nil is
	// for ever.
	ExpiresAt *time.Time
}

// ApprovalFilter narrows a list of approvals. The zero value is all of them.
type ApprovalFilter struct {
	// SessionID and RunID are "" for any.
	SessionID   string
	RunID       string
	PendingOnly bool
}

// DecisionInfo is a row of the ledger as front doors show it.
type DecisionInfo struct {
	hooks.Row
	// Hash is the row's hash as it is stored.
	Hash [32]byte
	// ToolName is the tool that was asked about, "" at other gates.
	ToolName string
	// PayloadErased says that the decision had a payload and has none any more.
	PayloadErased bool
}

// DecisionFilter says whose decisions to list. One of the two has to be set.
type DecisionFilter struct {
	// RunID lists what was asked once the run was there; what was asked about
	// its message is the session's.
	RunID     string
	SessionID string
}

// MessageInfo is a message as front doors show it.
type MessageInfo struct {
	hooks.Message
	// Turn is 0 for messages outside a turn.
	Turn      int
	CreatedAt time.Time
	// ReplacedSeq is the seq of the event that took the message out of the
	// conversation, or out of the queue; 0 for one that is in it.
	ReplacedSeq int64
	// Enqueued says that the message's run has yet to begin: it is not in the
	// conversation and its Position is 0.
	Enqueued bool
}

// MessageFilter says which messages to list. The zero value is the conversation
// as it is.
type MessageFilter struct {
	// Replaced adds the messages that others have taken the place of.
	Replaced bool
}

// MaxMemoryKey and MaxMemoryContent are the most that a memory may have, in
// bytes. Every place that takes memories keeps to them.
const (
	MaxMemoryKey     = 200
	MaxMemoryContent = 16 << 10
)

// Memory is something that an agent was told to remember. Memories belong to
// a tenant and are shared by its sessions.
type Memory struct {
	Key     string
	Content string
}

// Page asks for one page of a list. The zero value is the first page of the
// default size.
type Page struct {
	// Limit is the most that is returned; 0 means 50, and more than 1000 is
	// 1000.
	Limit int
	// After is the ID of the last element of the page before, "" for the first
	// page. One that was never in the list is [ErrInvalid].
	After string
}
