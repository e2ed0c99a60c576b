package loop

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Errors that callers match with errors.Is.
var (
	// ErrNotFound: no such session or run in this tenant.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the session moved on since the plan was made. Read what
	// was appended, plan again.
	ErrConflict = errors.New("session has moved on")
	// ErrLeaseLost: a higher epoch holds the session. Stop at once; nothing
	// that this holder still has to say will be stored.
	ErrLeaseLost = errors.New("lease lost")
	// ErrUnavailable: the log cannot be reached right now. Whether the append
	// went through is not known; repeating it unchanged is safe.
	ErrUnavailable = errors.New("log is unavailable")
	// ErrNotAllowed: the transition table refuses the event in this state.
	ErrNotAllowed = errors.New("transition not allowed")
	// ErrBusy: the session has an active run and the policy is reject.
	ErrBusy = errors.New("session has an active run")
	// ErrQueueFull: MaxEnqueued runs wait behind the active one already.
	ErrQueueFull = errors.New("too many runs are enqueued")
	// ErrInvalid: the request is wrong; the text says what and what to do.
	ErrInvalid = errors.New("invalid request")
	// ErrKeyReused: the idempotency key was used for another request.
	ErrKeyReused = errors.New("idempotency key was used for another request")
	// ErrBlocked: a hook refused the message. Nothing was started.
	ErrBlocked = errors.New("message was blocked")
	// ErrDecided: the approval has another answer already.
	ErrDecided = errors.New("approval is already decided")
	// ErrExpired: the time to answer the approval is over.
	ErrExpired = errors.New("approval has expired")
	// ErrNotApprover: the approval is for others to decide.
	ErrNotApprover = errors.New("approval is for others to decide")
	// ErrRunEnded: the run is in a terminal state.
	ErrRunEnded = errors.New("run has ended")
	// ErrBadState: what is stored of the run cannot be read, and so nobody can
	// go on with it.
	ErrBadState = errors.New("stored state is broken")
	// ErrNotRetryable: the run did not fail, or it failed for good.
	ErrNotRetryable = errors.New("run cannot be retried")
)

// TransitionError says which event a state refused. It unwraps to
// [ErrNotAllowed].
type TransitionError struct {
	// Entity is run, turn or call.
	Entity string
	ID     string
	From   string
	Event  event.Type
}

// Error names the entity, its state and the event.
func (e *TransitionError) Error() string {
	return fmt.Sprintf("%s %s in state %q does not allow %s", e.Entity, e.ID, e.From, e.Event)
}

// Unwrap returns [ErrNotAllowed].
func (e *TransitionError) Unwrap() error { return ErrNotAllowed }

// InvalidError is a refused request. It unwraps to [ErrInvalid].
type InvalidError struct {
	// Field is the request field that is wrong.
	Field string
	// Problem is a sentence that says what is wrong and what to do.
	Problem string
}

// Error returns the field and the problem.
func (e *InvalidError) Error() string { return e.Field + ": " + e.Problem }

// Unwrap returns [ErrInvalid].
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// BlockedError is a message that a hook refused. It unwraps to [ErrBlocked].
type BlockedError struct {
	ReasonCode string
	// Reason is the hook's sentence for people, "" if it gave none.
	Reason string
}

// Error returns the reason.
func (e *BlockedError) Error() string {
	if e.Reason == "" {
		return "the message was blocked (" + e.ReasonCode + ")"
	}
	return "the message was blocked: " + e.Reason
}

// Unwrap returns [ErrBlocked].
func (e *BlockedError) Unwrap() error { return ErrBlocked }

// DecidedError is an answer that came after another one. It unwraps to
// [ErrDecided].
type DecidedError struct {
	Decision event.ApprovalDecision
	By       event.Actor
	At       time.Time
}

// Error says what was decided, by whom and when.
func (e *DecidedError) Error() string {
	if e.Decision == event.DecisionExpired {
		return "the approval has expired: nobody answered in time, which was noted at " + e.At.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("the approval was already decided: %s by %s %s at %s", e.Decision, e.By.Kind, e.By.ID, e.At.UTC().Format(time.RFC3339))
}

// Unwrap returns [ErrDecided].
func (e *DecidedError) Unwrap() error { return ErrDecided }

// ApproverError is an answer of somebody who may not give it. It unwraps to
// [ErrNotApprover].
type ApproverError struct {
	Actor event.Actor
	// Approvers are the globs that the actor's id fits none of.
	Approvers []string
}

// Error says who may answer.
func (e *ApproverError) Error() string {
	return fmt.Sprintf("the approval is for %s to decide, and not for %s %s", strings.Join(e.Approvers, ", "), e.Actor.Kind, e.Actor.ID)
}

// Unwrap returns [ErrNotApprover].
func (e *ApproverError) Unwrap() error { return ErrNotApprover }

// BusyError is a run refused because another one is active. It unwraps to
// [ErrBusy], or to [ErrQueueFull].
type BusyError struct {
	ActiveRunID string
	// Full says that the run would have waited, and too many do.
	Full bool
}

// Error names the active run.
func (e *BusyError) Error() string {
	if e.Full {
		return fmt.Sprintf("%d runs are enqueued behind run %s: wait for some of them or cancel them", MaxEnqueued, e.ActiveRunID)
	}
	return "session has an active run " + e.ActiveRunID + ": wait for it or cancel it"
}

// Unwrap returns [ErrBusy] or [ErrQueueFull].
func (e *BusyError) Unwrap() error {
	if e.Full {
		return ErrQueueFull
	}
	return ErrBusy
}

// The reasons of an [UnavailableError].
const (
	// ReasonUnavailable: it does not answer, or nobody knows better.
	ReasonUnavailable = "unavailable"
	// ReasonStarting: it is starting up, shutting down or recovering.
	ReasonStarting = "database_starting"
	// ReasonReadOnly: it takes no writes.
	ReasonReadOnly = "database_read_only"
	// ReasonFull: it has no room left.
	ReasonFull = "database_full"
	// ReasonConnections: it takes no further connection.
	ReasonConnections = "too_many_connections"
	// ReasonPool: this process has no connection left.
	ReasonPool = "pool_exhausted"
)

// UnavailableError says why the log cannot be used right now. It unwraps to
// [ErrUnavailable]. Nothing in it is of the cause, so clients may be shown it.
type UnavailableError struct {
	Reason string
	// Problem is a sentence that says what is wrong and what to do.
	Problem string
}

// Error returns the problem.
func (e *UnavailableError) Error() string { return e.Problem }

// Unwrap returns [ErrUnavailable].
func (e *UnavailableError) Unwrap() error { return ErrUnavailable }

// RetryError is a run that is not taken up again. It unwraps to
// [ErrNotRetryable].
type RetryError struct {
	RunID string
	// Problem is a sentence that says why and what to do instead.
	Problem string
}

// Error returns the run and the problem.
func (e *RetryError) Error() string { return "run " + e.RunID + " cannot be retried: " + e.Problem }

// Unwrap returns [ErrNotRetryable].
func (e *RetryError) Unwrap() error { return ErrNotRetryable }
