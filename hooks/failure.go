package hooks

import (
	"errors"
	"fmt"
)

// Outcome says whether a hook did what it is there for. The words are stored;
// none of them but ok means that the hook had its say.
type Outcome string

// The outcomes.
const (
	OutcomeOK Outcome = "ok"
	// OutcomeError: the hook returned an error.
	OutcomeError Outcome = "error"
	// OutcomeTimeout: it did not answer within its time limit.
	OutcomeTimeout Outcome = "timeout"
	// OutcomePanic: it panicked, or ended its goroutine.
	OutcomePanic Outcome = "panic"
	// OutcomeCrash: the process that it runs in died.
	OutcomeCrash Outcome = "crash"
	// OutcomeUnavailable: it could not be asked at all.
	OutcomeUnavailable Outcome = "unavailable"
	// OutcomeMalformed: its answer is not one: no action, an unknown one, or
	// fields that do not go with it.
	OutcomeMalformed Outcome = "malformed"
	// OutcomeOversize: its answer is longer than its limit.
	OutcomeOversize Outcome = "oversize"
	// OutcomeIllegalAction: the action is not one that the gate or the phase
	// takes.
	OutcomeIllegalAction Outcome = "illegal_action"
	// OutcomeUnappliable: what it made of the value is refused by the same
	// check that the value itself had to pass.
	OutcomeUnappliable Outcome = "unappliable"
)

// Failure is an error with an outcome of its own. Whoever asks hooks elsewhere
// (in a process, over a network) returns one to tell a crash from an error; a
// hook's other errors are of [OutcomeError].
type Failure struct {
	Outcome Outcome
	// Code is the reason code that is recorded, "" for "hook." and the
	// outcome.
	Code string
	// Err is the cause. Its text is recorded for auditors and shown to nobody
	// else.
	Err error
}

// Error returns the outcome and the cause.
func (f *Failure) Error() string {
	if f.Err == nil {
		return string(f.Outcome)
	}
	return string(f.Outcome) + ": " + f.Err.Error()
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

func failf(o Outcome, format string, args ...any) *Failure {
	return &Failure{Outcome: o, Err: fmt.Errorf(format, args...)}
}

// failureOf makes a failure of what a hook returned. A hook may name only an
// outcome that it can know of: what is said of its answer is said here.
func failureOf(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) && f != nil {
		switch f.Outcome {
		case OutcomeError, OutcomeTimeout, OutcomePanic, OutcomeCrash, OutcomeUnavailable, OutcomeMalformed, OutcomeOversize:
			return f
		case OutcomeOK, OutcomeIllegalAction, OutcomeUnappliable:
		}
	}
	return &Failure{Outcome: OutcomeError, Err: err}
}

// code is the reason code that is recorded for f.
func (f *Failure) code() string {
	if f.Code == "" {
		return "hook." + string(f.Outcome)
	}
	return shorten(cleanText(f.Code), maxCode)
}

// shown is the reason that users and models may read: it tells nothing of the
// cause.
func (f *Failure) shown(hookID string) Reason {
	return Reason{
		Code: f.code(),
		Text: fmt.Sprintf("The check %s gave no usable answer (%s), so this was not let through.", hookID, f.Outcome),
	}
}
