package loop

import (
	"errors"
	"fmt"

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
	// ErrInvalid: the request is wrong; the text says what and what to do.
	ErrInvalid = errors.New("invalid request")
	// ErrKeyReused: the idempotency key was used for another request.
	ErrKeyReused = errors.New("idempotency key was used for another request")
	// ErrRunEnded: the run is in a terminal state.
	ErrRunEnded = errors.New("run has ended")
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

// BusyError is a run refused because another one is active. It unwraps to
// [ErrBusy].
type BusyError struct{ ActiveRunID string }

// Error names the active run.
func (e *BusyError) Error() string {
	return "session has an active run " + e.ActiveRunID + ": wait for it or cancel it"
}

// Unwrap returns [ErrBusy].
func (e *BusyError) Unwrap() error { return ErrBusy }
