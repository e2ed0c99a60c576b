package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = time.Second
)

// outage is a time during which a server does not answer. Without a since it
// does. It is used by one goroutine.
type outage struct {
	*client
	since time.Time
	pause time.Duration
	said  bool
}

// wait returns when it is time to try again after err, or the error that is to
// be reported: one that would come again, or the end of the client's patience.
func (o *outage) wait(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !passes(err):
		o.over()
		return clearly(err)
	case o.since.IsZero():
		o.since, o.pause = time.Now(), firstPause
	case time.Since(o.since) >= o.patience:
		return fmt.Errorf("%s has not answered for %s (%w): is it running? `agentd dev` starts one, --url or AGENTD_URL names another", o.url, o.patience, clearly(err))
	case !o.said:
		// Not at the first failure: a server that ends a stream to stop is
		// often replaced by another one at once.
		o.said = true
		o.away()
	}
	timer := time.NewTimer(o.pause)
	defer timer.Stop()
	o.pause = min(2*o.pause, lastPause)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// over says that the server answers.
func (o *outage) over() {
	if o.said {
		o.back()
	}
	*o = outage{client: o.client}
}

// tellOutages writes a line when the server goes away, and one when it is back.
func (c *client) tellOutages(w io.Writer) {
	c.away = func() { fmt.Fprintf(w, "the server is away, waiting up to %s…\n", c.patience) }
	c.back = func() { fmt.Fprintln(w, "the server is back") }
}

// passes reports whether a call that ended with err may succeed later: the
// server is away, stopping or without its database. Everything else it would
// say again.
func passes(err error) bool {
	var failed *connect.Error
	if !errors.As(err, &failed) || reasonOf(err).GetReason() == "already_decided" {
		return false
	}
	switch failed.Code() {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeUnimplemented:
		return false
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeAborted:
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

// serverError is what a server answered, as people read it.
type serverError struct{ err *connect.Error }

// Error returns the server's sentence, without the code.
func (e serverError) Error() string { return e.err.Message() }

// Unwrap returns the error with its code and details.
func (e serverError) Unwrap() error { return e.err }

func clearly(err error) error {
	var refused *connect.Error
	if errors.As(err, &refused) && connect.IsWireError(err) {
		return serverError{refused}
	}
	return err
}
