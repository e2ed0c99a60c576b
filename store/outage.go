package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-2ca4966b/agentd/loop"
)

// outageError is a failure of the database and not of what was asked. It is a
// [loop.ErrUnavailable], and unwraps to its cause.
type outageError struct {
	doing string
	err   error
}

func (e *outageError) Error() string { return e.doing + ": " + e.err.Error() }

func (e *outageError) Unwrap() []error { return []error{loop.ErrUnavailable, e.err} }

// failed says what was being done when err came, and marks an outage, so that
// callers know to ask again.
func failed(doing string, err error) error {
	if outage(err) {
		return &outageError{doing, err}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// outage says whether err is about the connection or the state of the server.
// That the caller's time is over is neither.
func outage(err error) bool {
	if transient(err) {
		return true
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}
