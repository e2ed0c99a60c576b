package loop

import (
	"slices"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// State is what the events of a session say. It is a value: [Fold] returns a
// new one and shares what did not change, so nothing inside it is ever
// modified in place. The zero value is a session that does not exist.
type State struct {
	SessionID  string
	TenantID   string
	ExternalID string
	// Title and User are "" for none, Metadata is nil for none.
	Title    string
	User     string
	Metadata map[string]string
	LastSeq  int64
	// Epoch grows with every claim and every release.
	Epoch int64
	// Ledger is the head of the session's ledger. Events do not tell it: it is
	// read with them.
	Ledger  LedgerHead
	Deleted bool
	// Messages are the conversation, in order of position. What was replaced is
	// not in it any more.
	Messages []hooks.Message
	// Enqueued are the messages whose runs have yet to begin, in order of
	// arrival. They are not in the conversation: each gets its position there
	// when its run is queued.
	Enqueued []hooks.Message
	// Runs are in the order in which they began. Those that have not are behind
	// them, the next one first.
	Runs []Run
}

// RunStatus is where a run stands. Values are stored.
type RunStatus string

// The run states.
const (
	// RunNone is the state of a run that does not exist.
	RunNone     RunStatus = ""
	RunEnqueued RunStatus = "enqueued"
	RunQueued   RunStatus = "queued"
	RunRunning  RunStatus = "running"
	// RunWaiting: people have to answer before anything else can happen.
	RunWaiting   RunStatus = "waiting"
	RunCompleted RunStatus = "completed"
	RunFailed    RunStatus = "failed"
	RunCancelled RunStatus = "cancelled"
)

// Active reports whether the run keeps others of its session from starting.
func (s RunStatus) Active() bool { return s == RunQueued || s == RunRunning || s == RunWaiting }

// Terminal reports whether the run has ended. A failed one may be taken up
// again.
func (s RunStatus) Terminal() bool {
	return s == RunCompleted || s == RunFailed || s == RunCancelled
}

// Run is the state of one run.
type Run struct {
	ID                 string
	Status             RunStatus
	Agent              string
	MessageID          string
	AssistantMessageID string
	IdempotencyKey     string
	RequestSHA256      string
	// Ticket is raised whenever a job is made; only that job may claim.
	Ticket int64
	// WorkerID is set while the run is running, and only then.
	WorkerID string
	// Epoch is the epoch of the last claim or release.
	Epoch int64
	// Started says that the run was claimed before.
	Started bool
	// ReleasedFor is the cause of the last release.
	ReleasedFor event.ReleaseCause
	// QueuedFor is the cause of the last run.queued.
	QueuedFor string
	NotBefore *time.Time
	// Takeovers counts releases from dead workers since a step last finished.
	Takeovers int
	// Held is how long workers held the run in earlier leases, HeldSince when
	// the present one began, by the clocks of those who wrote.
	Held            time.Duration
	HeldSince       time.Time
	CancelRequested bool
	// RolledBack says that the run's messages leave the conversation as it ends.
	RolledBack bool
	// CancelReason is what the one who cancelled said.
	CancelReason string
	// Reason and Error are those of the terminal event.
	Reason string
	Error  string
	// Prepared is what hooks changed for the whole run; nil for nothing.
	Prepared *event.RunPrepared
	// Narrowed are the tools that hooks and tools have left it, in the order of turns,
	// one of each; nil is whatever else there is.
	Narrowed []Narrowing
	// HookSet is the digest that the last claim pinned.
	HookSet   string
	CreatedAt time.Time
	// EndedAt and EndedSeq are those of the terminal event.
	EndedAt  time.Time
	EndedSeq int64
	// Retries counts how often the run was taken up again after it had failed,
	// and RetriedFrom is the seq of the last failure that was not the end.
	Retries     int
	RetriedFrom int64
	// Retrying says that no worker has claimed the run since.
	Retrying bool
	Turns    []Turn
}

// TurnStatus is where a turn stands. Values are stored.
type TurnStatus string

// The turn states.
const (
	TurnNone TurnStatus = ""
	// TurnOpen: no model call is under way; the next attempt comes first.
	TurnOpen TurnStatus = "open"
	// TurnCalling: model.requested is durable, its outcome is not.
	TurnCalling TurnStatus = "calling"
	// TurnAnswered: the answer is stored, its tool calls are being worked on.
	TurnAnswered TurnStatus = "answered"
	// TurnStopped: the answer was cut off and what was shown is stored. Nothing
	// follows in the run, unless an observer stopped it: see [Stop].
	TurnStopped   TurnStatus = "stopped"
	TurnCompleted TurnStatus = "completed"
)

// Turn is one model call and the tool calls that it asked for.
type Turn struct {
	// No counts from 1 in the run.
	No     int
	Status TurnStatus
	// Attempt is the last model call's number, 0 before the first, and Failed
	// how many of the calls failed and were made again.
	Attempt int
	Failed  int
	// RetryAt is when the next call is due after a failed one, by the clock of
	// the worker that made it; nil is at once.
	RetryAt *time.Time
	// Model is the name that the last attempt asked for.
	Model string
	// MessageID is the assistant message, once it is stored.
	MessageID string
	Finish    stream.FinishReason
	FinishRaw string
	// Usage is what the turn's calls took, all attempts together, as far as the
	// provider said; CostMicros is what that came to, in millionths.
	Usage      stream.Usage
	CostMicros int64
	// Unreported says that the provider did not say what the answer took.
	Unreported bool
	// Stop is set if an observer stopped the answer.
	Stop *Stop
	// Superseded says of a stopped turn that the run was taken up again: the
	// next turn stands in its place.
	Superseded bool
	// Shown is what the open attempt has shown so far.
	Shown *Shown
	// FirstSeq is the seq of the open attempt's first delta.
	FirstSeq int64
	Calls    []Call
}

// CallStatus is where a tool call stands. Values are stored.
type CallStatus string

// The call states.
const (
	CallNone     CallStatus = ""
	CallProposed CallStatus = "proposed"
	// CallBlocked: the call will not run; its result is written with it.
	CallBlocked CallStatus = "blocked"
	// CallAwaiting: people were asked and have not answered.
	CallAwaiting CallStatus = "awaiting"
	CallApproved CallStatus = "approved"
	CallDenied   CallStatus = "denied"
	// CallEdited: a person gave other arguments, which the hooks have yet to see.
	CallEdited CallStatus = "edited"
	// CallConfirmed: it was interrupted, and people said that it has taken
	// effect. It is not run again.
	CallConfirmed CallStatus = "confirmed"
	// CallStarted: the tool may have taken effect, nobody knows yet.
	CallStarted  CallStatus = "started"
	CallExecuted CallStatus = "executed"
	// CallDone: the call has its one result.
	CallDone CallStatus = "done"
)

// Call is one tool call of a turn.
type Call struct {
	hooks.ToolCall
	// Number counts from 1 in the turn.
	Number int
	// Position is where the result's message stands.
	Position int64
	Status   CallStatus
	// Question is the last one that people were asked about the call; the zero
	// value if they were not.
	Question
	// DecisionReason is what the one who answered it said.
	DecisionReason string
	// Earlier are the questions before this one, all of them answered.
	Earlier []Question
	// Final is what runs, if hooks or people changed the arguments.
	Final *string
	// Edits counts how often people changed them.
	Edits int
	// Attempt counts executions, 0 before the first.
	Attempt int
	// Success, SHA256 and Bytes are those of tool.executed.
	Success bool
	SHA256  string
	Bytes   int64
	IsError bool
	Reason  hooks.ResultReason
	// ResultMessageID is the message that holds the result.
	ResultMessageID string
}

// Question is something that people were asked about a call, and the answer.
type Question struct {
	ApprovalID string
	Asked      event.ApprovalKind
	// ArgumentsSHA256 (hex) is what the answer is bound to.
	ArgumentsSHA256 string
	// Approvers are the globs that the id of who answers has to fit; nil is
	// everybody.
	Approvers []string
	// Decision is "" until somebody has answered.
	Decision event.ApprovalDecision
	// EditedSHA256 (hex) is that of the arguments which the answer gave, "" for
	// none.
	EditedSHA256 string
	DecidedBy    event.Actor
	DecidedAt    time.Time
}

// StatusAfter is where an answer leaves a call.
func StatusAfter(d event.ApprovalDecision) CallStatus {
	switch d {
	case event.DecisionApproved, event.DecisionDidNotHappen:
		return CallApproved
	case event.DecisionHappened:
		return CallConfirmed
	case event.DecisionEdited:
		return CallEdited
	case event.DecisionDenied, event.DecisionCancelled, event.DecisionExpired:
	}
	return CallDenied
}

// Run returns the run with that id.
func (s State) Run(id string) (Run, bool) {
	if i := s.runIndex(id); i >= 0 {
		return s.Runs[i], true
	}
	return Run{}, false
}

func (s State) runIndex(id string) int {
	for i := len(s.Runs) - 1; i >= 0; i-- {
		if s.Runs[i].ID == id {
			return i
		}
	}
	return -1
}

func (s State) enqueuedIndex(messageID string) int {
	return slices.IndexFunc(s.Enqueued, func(m hooks.Message) bool { return m.ID == messageID })
}

func (s State) messageIndex(id string) int {
	return slices.IndexFunc(s.Messages, func(m hooks.Message) bool { return m.ID == id })
}

// Turn returns the last turn of r; ok is false before the first.
func (r Run) Turn() (t Turn, ok bool) {
	if len(r.Turns) == 0 {
		return Turn{}, false
	}
	return r.Turns[len(r.Turns)-1], true
}

func (t Turn) callIndex(id string) int {
	for i := range t.Calls {
		if t.Calls[i].ID == id {
			return i
		}
	}
	return -1
}
