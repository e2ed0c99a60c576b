package store

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

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
	codeLockNotAvailable  = "55P03"
	codeIdleInTransaction = "25P03"
	codeQueryCanceled     = "57014"
)

// transient says whether the same statements may succeed when they are sent
// again: the connection broke, the server is going down or out of something,
// or a rival was in the way.
func transient(err error) bool {
	if broken := new(connectionError); errors.As(err, &broken) {
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code == codeQueryCanceled {
		return false
	}
	switch pg.Code[:2] {
	case "40", "53", "57", "58": // rollback, resources, operator, system
		return true
	}
	return pg.Code == codeLockNotAvailable || pg.Code == codeIdleInTransaction
}
