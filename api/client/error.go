package client

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

// Error is what a server refused a request with.
type Error struct {
	// Code says what kind of failure it is.
	Code connect.Code
	// Reason says which one: not_found, session_busy, already_decided and so on
	// (docs/api.md has them all). It is empty if something else than agentd
	// answered.
	Reason string
	// Message is a sentence for people.
	Message string
	// Detail has what the reason alone does not say, such as the field that is
	// wrong or the run that has to end first. It is never nil.
	Detail *agentdv1.ErrorReason

	cause *connect.Error
}

// Error returns the sentence for people.
func (e *Error) Error() string { return e.Message }

// Unwrap returns connect's error, with its header and details.
func (e *Error) Unwrap() error { return e.cause }

// ReasonOf returns the reason that a server gave; "" for every other error, nil
// included.
func ReasonOf(err error) string {
	var refused *Error
	if errors.As(err, &refused) {
		return refused.Reason
	}
	return ""
}

// AwayError says that a server has not answered for as long as the client's
// patience lasts. It unwraps to what the last attempt ended with.
type AwayError struct {
	// URL is the server's address.
	URL string
	// For is the patience.
	For time.Duration
	Err error
}

// Error implements error.
func (e *AwayError) Error() string {
	return fmt.Sprintf("%s has not answered for %s (%v)", e.URL, e.For, e.Err)
}

// Unwrap returns the last attempt's error.
func (e *AwayError) Unwrap() error { return e.Err }

// clearly makes what a server has said an [Error], and leaves others alone.
func clearly(err error) error {
	var refused *connect.Error
	if !errors.As(err, &refused) || !connect.IsWireError(err) {
		return err
	}
	e := &Error{Code: refused.Code(), Message: refused.Message(), Detail: &agentdv1.ErrorReason{}, cause: refused}
	for _, d := range refused.Details() {
		if message, err := d.Value(); err == nil {
			if reason, ok := message.(*agentdv1.ErrorReason); ok {
				e.Reason, e.Detail = reason.GetReason(), reason
			}
		}
	}
	return e
}

// passes reports whether a call that ended with err may succeed later: the
// server is away, stopping or without its database. Everything else it would
// say again.
func passes(err error) bool {
	var failed *connect.Error
	if !errors.As(err, &failed) {
		return false
	}
	switch failed.Code() {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeUnimplemented:
		return false
	case connect.CodeAborted:
		// The others are about what somebody else does.
		return ReasonOf(clearly(err)) == "conflict"
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled:
		return true
	case connect.CodeInternal, connect.CodeUnknown:
		return connect.IsWireError(err) || lost(failed)
	default:
		// What no server has said is a broken connection.
		return !connect.IsWireError(err)
	}
}

// lost reports whether a broken connection is behind an error that no server has
// sent. What the client itself has to say is that a message cannot be encoded,
// or that what answers is no agentd: nothing is behind that.
func lost(failed *connect.Error) bool {
	cause := failed.Unwrap()
	switch {
	case cause == nil || errors.Is(cause, proto.Error):
		return false
	case errors.Is(cause, io.EOF), strings.HasPrefix(cause.Error(), "stream error: "): // of HTTP/2, which has no type for it
		return true
	}
	return errors.Unwrap(cause) != nil
}
