package event

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// Type names a kind of event. Values are stored: one is never renamed.
type Type string

// The event types.
const (
	TypeSessionCreated     Type = "session.created"
	TypeSessionUpdated     Type = "session.updated"
	TypeSessionDeleted     Type = "session.deleted"
	TypeMessageCreated     Type = "message.created"
	TypeMessagesReplaced   Type = "messages.replaced"
	TypeRunCreated         Type = "run.created"
	TypeRunQueued          Type = "run.queued"
	TypeRunStarted         Type = "run.started"
	TypeRunResumed         Type = "run.resumed"
	TypeRunReleased        Type = "run.released"
	TypeTurnStarted        Type = "turn.started"
	TypeModelRequested     Type = "model.requested"
	TypeAssistantDelta     Type = "assistant.delta"
	TypeAssistantDiscarded Type = "assistant.discarded"
	TypeAssistantCompleted Type = "assistant.completed"
	TypeAssistantStopped   Type = "assistant.stopped"
	TypeToolProposed       Type = "tool.proposed"
	TypeToolStarted        Type = "tool.started"
	TypeToolExecuted       Type = "tool.executed"
	TypeToolResult         Type = "tool.result"
	TypeTurnCompleted      Type = "turn.completed"
	TypeRunCancelRequested Type = "run.cancel_requested"
	TypeInputHandled       Type = "input.handled"
	TypeInputBlocked       Type = "input.blocked"
	TypeInputRejected      Type = "input.rejected"
	TypeRunPrepared        Type = "run.prepared"
	TypeRunSuspended       Type = "run.suspended"
	TypeToolBlocked        Type = "tool.blocked"
	TypeApprovalRequested  Type = "approval.requested"
	TypeApprovalDecided    Type = "approval.decided"
	TypeRunCompleted       Type = "run.completed"
	TypeRunFailed          Type = "run.failed"
	TypeRunCancelled       Type = "run.cancelled"
)

var registry = map[Type]func(json.RawMessage) (Payload, error){
	TypeSessionCreated:     as[SessionCreated],
	TypeSessionUpdated:     as[SessionUpdated],
	TypeSessionDeleted:     as[SessionDeleted],
	TypeMessageCreated:     as[MessageCreated],
	TypeMessagesReplaced:   as[MessagesReplaced],
	TypeRunCreated:         as[RunCreated],
	TypeRunQueued:          as[RunQueued],
	TypeRunStarted:         as[RunStarted],
	TypeRunResumed:         as[RunResumed],
	TypeRunReleased:        as[RunReleased],
	TypeTurnStarted:        as[TurnStarted],
	TypeModelRequested:     as[ModelRequested],
	TypeAssistantDelta:     as[AssistantDelta],
	TypeAssistantDiscarded: as[AssistantDiscarded],
	TypeAssistantCompleted: as[AssistantCompleted],
	TypeAssistantStopped:   as[AssistantStopped],
	TypeEmission:           as[Emission],
	TypeToolProposed:       as[ToolProposed],
	TypeToolStarted:        as[ToolStarted],
	TypeToolProgress:       as[ToolProgress],
	TypeToolsNarrowed:      as[ToolsNarrowed],
	TypeToolExecuted:       as[ToolExecuted],
	TypeToolResult:         as[ToolResult],
	TypeTurnCompleted:      as[TurnCompleted],
	TypeRunCancelRequested: as[RunCancelRequested],
	TypeInputHandled:       as[InputHandled],
	TypeInputBlocked:       as[InputBlocked],
	TypeInputRejected:      as[InputRejected],
	TypeRunPrepared:        as[RunPrepared],
	TypeRunSuspended:       as[RunSuspended],
	TypeToolBlocked:        as[ToolBlocked],
	TypeApprovalRequested:  as[ApprovalRequested],
	TypeApprovalDecided:    as[ApprovalDecided],
	TypeRunCompleted:       as[RunCompleted],
	TypeRunFailed:          as[RunFailed],
	TypeRunCancelled:       as[RunCancelled],
}

// Types returns the event types that this binary knows, sorted.
func Types() []Type { return slices.Sorted(maps.Keys(registry)) }

// RunCreated starts a run; the run's id is in the envelope.
type RunCreated struct {
	Agent string `json:"agent"`
	// MessageID is the user message that the run answers.
	MessageID string `json:"message_id"`
	// AssistantMessageID is one id for the whole answer, for front ends that
	// show a run as a single message.
	AssistantMessageID string `json:"assistant_message_id"`
	// IdempotencyKey and RequestSHA256 (hex) make a repeated request the same
	// run; both "" if the client gave no key.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	RequestSHA256  string `json:"request_sha256,omitempty"`
	Sanitized      bool   `json:"sanitized,omitempty"`
	// Policy is what was asked for as another run was active: the run is
	// enqueued. "" where there was none.
	Policy Policy `json:"policy,omitempty"`
}

// RunQueued makes a run claimable by the job that holds Ticket.
type RunQueued struct {
	Ticket int64 `json:"ticket"`
	// Cause is "" the first time, "approval" when people have answered,
	// "job_lost" when a worker died between fetching the job and claiming the
	// run, "due" when its delay is over, "resumed" when it is no longer paused,
	// [QueuedNext] and [QueuedForRetry].
	Cause string `json:"cause,omitempty"`
}

// QueuedNext is the cause of the first run.queued of a run that was enqueued:
// the run before it has ended.
const QueuedNext = "next"

// QueuedForRetry is the cause of run.queued for a run that has failed. It is
// taken up where it failed: the terminal event before it is no longer its last.
const QueuedForRetry = "retry"

// RunStarted is the first claim of a run.
type RunStarted struct {
	WorkerID string `json:"worker_id"`
	Epoch    int64  `json:"epoch"`
	Ticket   int64  `json:"ticket"`
	// HookSet is the digest of the hooks that this worker asks; "" for none.
	HookSet string `json:"hook_set,omitempty"`
}

// ResumeCause says why a run needed another claim.
type ResumeCause string

// The causes of a resume.
const (
	ResumeTakeover ResumeCause = "takeover"
	ResumeRelease  ResumeCause = "release"
	ResumeApproval ResumeCause = "approval"
	// ResumeRetry: a model call that failed is made again, after a wait, which
	// began with run.released (backoff), or because people took up the failed
	// run, which began with run.queued ([QueuedForRetry]).
	ResumeRetry ResumeCause = "retry"
)

// RunResumed is a later claim of a run.
type RunResumed struct {
	WorkerID string      `json:"worker_id"`
	Epoch    int64       `json:"epoch"`
	Ticket   int64       `json:"ticket"`
	Cause    ResumeCause `json:"cause"`
	HookSet  string      `json:"hook_set,omitempty"`
}

// ReleaseCause says why a run lost its lease.
type ReleaseCause string

// The causes of a release.
const (
	ReleaseWorkerDead ReleaseCause = "worker_dead"
	ReleaseShutdown   ReleaseCause = "shutdown"
	// ReleaseBackoff: a model call failed, and the next is too far off to hold
	// the run until then.
	ReleaseBackoff ReleaseCause = "backoff"
	// ReleasePause: somebody paused the run. It stays queued until it is
	// resumed.
	ReleasePause ReleaseCause = "pause"
	// ReleaseForced: somebody ended the run; run.failed follows.
	ReleaseForced ReleaseCause = "forced"
)

// RunReleased takes the lease away and queues the run again under Ticket.
type RunReleased struct {
	Cause ReleaseCause `json:"cause"`
	// WorkerID is the worker that held the lease.
	WorkerID string `json:"worker_id"`
	// Epoch is the new, raised epoch: what the old holder still writes is
	// refused.
	Epoch  int64 `json:"epoch"`
	Ticket int64 `json:"ticket"`
	// NotBefore delays the next claim (UTC); nil means at once.
	NotBefore *time.Time `json:"not_before,omitempty"`
}

// TurnStarted opens a turn; its number is in the envelope.
type TurnStarted struct{}

// ModelRequested is written before each model call.
type ModelRequested struct {
	// Attempt counts the calls of the turn from 1.
	Attempt int    `json:"attempt"`
	Model   string `json:"model"`
	// MessageIDs are the messages that the model was sent, in order.
	MessageIDs []string `json:"message_ids"`
	Tools      []string `json:"tools,omitempty"`
	// Messages is what the model was sent instead, if hooks changed it.
	Messages []hooks.Message `json:"messages,omitempty"`
}

// AssistantDelta is a piece of an answer, durable before anybody sees it.
type AssistantDelta struct {
	Attempt   int         `json:"attempt"`
	Lane      stream.Lane `json:"lane"`
	BlockID   string      `json:"block_id"`
	Text      string      `json:"text"`
	Sanitized bool        `json:"sanitized,omitempty"`
}

// AssistantDiscarded voids every delta of Attempt.
type AssistantDiscarded struct {
	Attempt int `json:"attempt"`
	// Reason is "interrupted" if the call's worker was stopped or died, and
	// "failed" if the call failed before it showed anything and is made again.
	Reason string `json:"reason"`
	// Error is a sentence for people, Code the provider's own word and Status
	// the HTTP status, for a call that failed.
	Error  string `json:"error,omitempty"`
	Code   string `json:"code,omitempty"`
	Status int    `json:"status,omitempty"`
	// RetryAt is when the next attempt is due (UTC), by the worker's clock;
	// nil means at once.
	RetryAt *time.Time `json:"retry_at,omitempty"`
	// Usage is what the provider had reported before the call failed; nil for
	// nothing. Cost is what that came to, nil for an agent without prices.
	Usage     *stream.Usage `json:"usage,omitempty"`
	Cost      *Cost         `json:"cost,omitempty"`
	Sanitized bool          `json:"sanitized,omitempty"`
}

// AssistantCompleted is the whole answer of a model call.
type AssistantCompleted struct {
	Attempt   int                 `json:"attempt"`
	MessageID string              `json:"message_id"`
	Parts     []hooks.Part        `json:"parts"`
	Finish    stream.FinishReason `json:"finish"`
	FinishRaw string              `json:"finish_raw,omitempty"`
	Usage     stream.Usage        `json:"usage"`
	// Cost is what Usage came to; nil for an agent without prices.
	Cost *Cost `json:"cost,omitempty"`
	// FirstSeq is the seq of the attempt's first delta, 0 if it had none. A
	// reader whose cursor lies in deltas that retention removed goes on here.
	FirstSeq  int64 `json:"first_seq,omitempty"`
	Sanitized bool  `json:"sanitized,omitempty"`
}

// Cost is what a model call came to, with the prices that it was worked out
// from: a reader needs no price list, and a later one changes nothing. All of
// it is in millionths of the unit that the deployer's prices are in.
type Cost struct {
	// Micros is rounded up to a whole one.
	Micros int64 `json:"micros"`
	// InputPrice and OutputPrice are for a million tokens.
	InputPrice  int64 `json:"input_price"`
	OutputPrice int64 `json:"output_price"`
}

// ToolProposed is a tool call that the model asked for.
type ToolProposed struct {
	CallID string `json:"call_id"`
	// Number counts the calls of the turn from 1, in the model's order.
	Number         int    `json:"number"`
	Name           string `json:"name"`
	Arguments      string `json:"arguments"`
	ProviderCallID string `json:"provider_call_id,omitempty"`
	Sanitized      bool   `json:"sanitized,omitempty"`
}

// ToolStarted is durable before the tool is entered.
type ToolStarted struct {
	CallID  string `json:"call_id"`
	Attempt int    `json:"attempt"`
	// Arguments are what runs, if hooks changed what the model wrote.
	Arguments *string `json:"arguments,omitempty"`
	// ArgumentsSHA256 (hex) is the digest of what runs.
	ArgumentsSHA256 string `json:"arguments_sha256,omitempty"`
}

// ToolExecuted says that the tool has returned.
type ToolExecuted struct {
	CallID  string `json:"call_id"`
	Attempt int    `json:"attempt"`
	Success bool   `json:"success"`
	// SHA256 (hex) and Bytes describe the output as the tool gave it.
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// ToolResult is the one answer to a call that the model is shown.
type ToolResult struct {
	CallID    string             `json:"call_id"`
	MessageID string             `json:"message_id"`
	Name      string             `json:"name"`
	Content   string             `json:"content"`
	IsError   bool               `json:"is_error,omitempty"`
	Reason    hooks.ResultReason `json:"reason,omitempty"`
	Sanitized bool               `json:"sanitized,omitempty"`
}

// TurnCompleted closes a turn whose calls all have results.
type TurnCompleted struct{}

// EventType implements [Payload].
func (RunCreated) EventType() Type { return TypeRunCreated }

// EventType implements [Payload].
func (RunQueued) EventType() Type { return TypeRunQueued }

// EventType implements [Payload].
func (RunStarted) EventType() Type { return TypeRunStarted }

// EventType implements [Payload].
func (RunResumed) EventType() Type { return TypeRunResumed }

// EventType implements [Payload].
func (RunReleased) EventType() Type { return TypeRunReleased }

// EventType implements [Payload].
func (TurnStarted) EventType() Type { return TypeTurnStarted }

// EventType implements [Payload].
func (ModelRequested) EventType() Type { return TypeModelRequested }

// EventType implements [Payload].
func (AssistantDelta) EventType() Type { return TypeAssistantDelta }

// EventType implements [Payload].
func (AssistantDiscarded) EventType() Type { return TypeAssistantDiscarded }

// EventType implements [Payload].
func (AssistantCompleted) EventType() Type { return TypeAssistantCompleted }

// EventType implements [Payload].
func (ToolProposed) EventType() Type { return TypeToolProposed }

// EventType implements [Payload].
func (ToolStarted) EventType() Type { return TypeToolStarted }

// EventType implements [Payload].
func (ToolExecuted) EventType() Type { return TypeToolExecuted }

// EventType implements [Payload].
func (ToolResult) EventType() Type { return TypeToolResult }

// EventType implements [Payload].
func (TurnCompleted) EventType() Type { return TypeTurnCompleted }
