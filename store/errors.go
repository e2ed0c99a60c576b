package store

import "errors"

var (
	errNotRunning = errors.New("store is not running")
	errNoQueue    = errors.New("append has jobs and the store has no queue")
)

// connectionError is an error after which the connection was gone. Whether the
// transaction was committed is not known.
type connectionError struct{ err error }

func (e *connectionError) Error() string { return e.err.Error() }

func (e *connectionError) Unwrap() error { return e.err }

const (
	codeLockNotAvailable = "55P03"
	codeReadOnly         = "25006"
)
