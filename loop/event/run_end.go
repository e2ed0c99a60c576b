package event

import (
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// RunCancelRequested asks the run to stop; the terminal event follows.
type RunCancelRequested struct {
	Reason    string `json:"reason,omitempty"`
	Sanitized bool   `json:"sanitized,omitempty"`
	// Rollback says that the run's messages leave the conversation as it ends.
	Rollback bool `json:"rollback,omitempty"`
}

// LedgerMark is where the session's ledger stood at the end of a run, the
// decisions that ended it included: the log vouches for the ledger. It is empty
// if no hook was ever asked in the session.
type LedgerMark struct {
	LedgerSeq int64 `json:"ledger_seq,omitempty"`
	// LedgerHead is the row hash of that row, in hex.
	LedgerHead string `json:"ledger_head,omitempty"`
}

// RunCompleted ends a run that answered.
type RunCompleted struct {
	LedgerMark
	// Reason is the finish reason of the last answer, or [StoppedByObserver].
	Reason stream.FinishReason `json:"reason"`
}

// RunFailed ends a run that could not answer.
type RunFailed struct {
	LedgerMark
	Reason FailReason `json:"reason"`
	// Error is a sentence for people.
	Error string `json:"error"`
	// Code is the provider's own word and Status the HTTP status, if a model
	// call failed.
	Code      string `json:"code,omitempty"`
	Status    int    `json:"status,omitempty"`
	Sanitized bool   `json:"sanitized,omitempty"`
}

// FailReason is why a run failed.
type FailReason string

// The reasons of a failure.
const (
	// FailModel: the provider refused or broke the call.
	FailModel FailReason = "model_error"
	// FailIncomplete: the answer ended without a finish reason.
	FailIncomplete FailReason = "model_incomplete"
	// FailUnknownAgent: no agent of that name is configured on the worker.
	FailUnknownAgent FailReason = "unknown_agent"
	// FailBlocked: a hook refused the run or one of its model calls.
	FailBlocked FailReason = "blocked"
	// FailPoisoned: the run took too many workers down with it.
	FailPoisoned FailReason = "poisoned"
	// FailForced: somebody ended the run, whatever state it was in.
	FailForced FailReason = "forced"
	// FailBadState: the run's stored events or messages cannot be read.
	FailBadState FailReason = "bad_state"
	// FailTurnLimit to FailCostLimit: a limit of the agent.
	FailTurnLimit     FailReason = "turn_limit"
	FailRepeatedCalls FailReason = "repeated_calls"
	FailTimeout       FailReason = "timeout"
	FailToolCallLimit FailReason = "tool_call_limit"
	FailTokenLimit    FailReason = "token_limit"
	FailCostLimit     FailReason = "cost_limit"
	// FailUsageUnknown: the agent has a limit of tokens or of cost, and the
	// provider does not say what its answers take.
	FailUsageUnknown FailReason = "usage_unknown"
	// FailOutcomeUnknown: a tool was started and nobody knows what became of
	// it, and the agent's policy is to end the run there.
	FailOutcomeUnknown FailReason = "outcome_unknown"
	// FailStopped: an observer stopped an answer, and its policy is to end the run
	// there, or nothing else was left.
	FailStopped FailReason = StoppedByObserver
)

// RunCancelled ends a run that was cancelled.
type RunCancelled struct {
	LedgerMark
	Reason string `json:"reason,omitempty"`
}

// EventType implements [Payload].
func (RunCancelRequested) EventType() Type { return TypeRunCancelRequested }

// EventType implements [Payload].
func (RunCompleted) EventType() Type { return TypeRunCompleted }

// EventType implements [Payload].
func (RunFailed) EventType() Type { return TypeRunFailed }

// EventType implements [Payload].
func (RunCancelled) EventType() Type { return TypeRunCancelled }
