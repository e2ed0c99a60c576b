package store

import (
	"fmt"

	"github.com/seed-2ca4966b/agentd/loop"
)

// outageError is a failure of the database and not of what was asked. It is a
// [loop.UnavailableError], and unwraps to its cause.
type outageError struct {
	doing   string
	err     error
	trouble trouble
}

func (e *outageError) Error() string { return e.doing + ": " + e.err.Error() }

func (e *outageError) Unwrap() []error {
	return []error{&loop.UnavailableError{Reason: e.trouble.reason, Problem: e.trouble.problem}, e.err}
}

// failed says what was being done when err came, and marks an outage, so that
// callers know to ask again.
func failed(doing string, err error) error {
	if t, ok := troubleIn(err); ok {
		return &outageError{doing, err, t}
	}
	return fmt.Errorf("%s: %w", doing, err)
}
