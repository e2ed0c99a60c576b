package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/sse"
	"github.com/seed-2ca4966b/agentd/loop"
)

// reasonHeader carries the reason of an error for clients that do not decode
// details.
const reasonHeader = "Agentd-Reason"

// Errors that arise in this package.
var (
	errNoRoute         = errors.New("there is no such route")
	errNoProcedure     = errors.New("there is no such call")
	errUnauthenticated = errors.New("an API key is required: send it as Authorization: Bearer <key>")
	errCrossOrigin     = errors.New("this server has no API key and serves no pages of another origin")
	errHost            = errors.New("this server has no API key and answers only to loopback names, such as localhost")
	errBadPageToken    = errors.New("the page token is not one of this list: start again without one")
)

// failure is an error as clients see it.
type failure struct {
	code    connect.Code
	message string
	detail  *agentdv1.ErrorReason
	// status is for what HTTP can say better than a code; 0 means the code's.
	status int
	// plain says that the client does not speak the protocol of the call.
	plain bool
}

func newFailure(code connect.Code, reason, message string) failure {
	return failure{code: code, message: message, detail: &agentdv1.ErrorReason{Reason: reason}}
}

// foreseen maps the errors that have nothing but themselves to say. The
// sentences of loop's errors are fixed here, since what wraps them is not for
// clients.
var foreseen = []struct {
	err     error
	code    connect.Code
	reason  string
	message string // "" means the error's own
}{
	{loop.ErrNotFound, connect.CodeNotFound, "not_found", "there is no such session, run or approval"},
	{loop.ErrInvalid, connect.CodeInvalidArgument, "invalid_argument", "the request is invalid"},
	{loop.ErrBusy, connect.CodeAborted, "session_busy", "the session has an active run: wait for it or cancel it"},
	{loop.ErrQueueFull, connect.CodeResourceExhausted, "queue_full", "too many runs of the session are enqueued: wait for some of them or cancel them"},
	{loop.ErrKeyReused, connect.CodeAlreadyExists, "idempotency_key_reused", "the idempotency key was used for another request: send a fresh one"},
	{loop.ErrBlocked, connect.CodePermissionDenied, "input_blocked", "the message was refused by a check"},
	{loop.ErrDecided, connect.CodeAborted, "already_decided", "the approval is already decided"},
	{loop.ErrNotApprover, connect.CodePermissionDenied, "not_an_approver", "the approval is for others to decide"},
	{loop.ErrRunEnded, connect.CodeFailedPrecondition, "run_ended", "the run has already ended"},
	{loop.ErrBadState, connect.CodeFailedPrecondition, "bad_state", "the stored state of the run is broken"},
	{loop.ErrNotRetryable, connect.CodeFailedPrecondition, "not_retryable", "the run cannot be retried"},
	{loop.ErrConflict, connect.CodeAborted, "conflict", "the session moved on in the meantime: try again"},
	{loop.ErrUnavailable, connect.CodeUnavailable, "unavailable", "the database cannot be reached right now: try again"},
	{loop.ErrNotAllowed, connect.CodeFailedPrecondition, "not_allowed", "the run or session does not allow that in its state"},
	{sse.ErrBadCursor, connect.CodeInvalidArgument, "bad_cursor", ""},
	{sse.ErrCursorAhead, connect.CodeOutOfRange, "cursor_ahead", ""},
	{sse.ErrStopping, connect.CodeUnavailable, "stopping", ""},
	{errBadPageToken, connect.CodeInvalidArgument, "bad_page_token", ""},
	{errUnauthenticated, connect.CodeUnauthenticated, "unauthenticated", ""},
	{errCrossOrigin, connect.CodePermissionDenied, "cross_origin", ""},
	{errHost, connect.CodePermissionDenied, "host_not_allowed", ""},
	{errNoRoute, connect.CodeNotFound, "no_route", ""},
	{errNoProcedure, connect.CodeUnimplemented, "no_route", ""},
}

// failureOf says what a client is told of err. It is the only place where
// errors become codes; what it does not know is logged and stays inside.
func (s *server) failureOf(ctx context.Context, err error) failure {
	// The caller's own deadline or departure, not one inside the store.
	switch ctxErr := ctx.Err(); {
	case errors.Is(ctxErr, context.DeadlineExceeded):
		return newFailure(connect.CodeDeadlineExceeded, "deadline_exceeded", "the deadline of the request has passed")
	case ctxErr != nil:
		return newFailure(connect.CodeCanceled, "canceled", "the client has gone")
	}
	var invalid *loop.InvalidError
	if errors.As(err, &invalid) {
		f := newFailure(connect.CodeInvalidArgument, "invalid_argument", invalid.Error())
		f.detail.Field = invalid.Field
		return f
	}
	var refused *refusedError
	if errors.As(err, &refused) {
		f := newFailure(connect.CodeInvalidArgument, refused.note.Reason, refused.note.Message)
		f.detail.Field = refused.note.Field
		return f
	}
	for _, known := range foreseen {
		if !errors.Is(err, known.err) {
			continue
		}
		message := known.message
		if message == "" {
			message = known.err.Error()
		}
		f := newFailure(known.code, known.reason, message)
		f.addWhy(err)
		return f
	}
	f := newFailure(connect.CodeInternal, "internal", "something went wrong inside agentd; its log has the cause under the error id")
	f.detail.ErrorId = uuid.NewString()
	s.Log.ErrorContext(ctx, "request failed", slog.String("error_id", f.detail.ErrorId), slog.Any("error", err))
	return f
}

// addWhy adds what typed errors know, whose sentences are made for clients.
func (f *failure) addWhy(err error) {
	var (
		busy    *loop.BusyError
		blocked *loop.BlockedError
		decided *loop.DecidedError
		barred  *loop.ApproverError
		retry   *loop.RetryError
		bad     *loop.BadStateError
		away    *loop.UnavailableError
	)
	switch {
	case errors.As(err, &busy):
		f.detail.ActiveRunId = busy.ActiveRunID
	case errors.As(err, &retry):
		f.message += ": " + retry.Problem
	case errors.As(err, &bad):
		f.message = bad.Error()
	case errors.As(err, &away):
		f.message, f.detail.Reason = away.Problem, away.Reason
	case errors.As(err, &blocked):
		f.message = blocked.Error()
		f.detail.Blocked = &agentdv1.BlockReason{Code: blocked.ReasonCode, Text: blocked.Reason}
	case errors.As(err, &barred):
		f.message = barred.Error()
	case errors.As(err, &decided):
		f.message = decided.Error()
		f.detail.Decided = &agentdv1.EarlierDecision{
			Decision: string(decided.Decision), By: wireActor(decided.By), At: timestamppb.New(decided.At),
		}
	}
}

func (f failure) connectError() *connect.Error {
	e := connect.NewError(f.code, errors.New(f.message))
	// Encoding this message cannot fail: its strings are valid UTF-8 or the
	// request that they came from would not have been decoded.
	if d, err := connect.NewErrorDetail(f.detail); err == nil {
		e.AddDetail(d)
	}
	e.Meta().Set(reasonHeader, f.detail.GetReason())
	if f.code == connect.CodeUnauthenticated {
		e.Meta().Set("WWW-Authenticate", "Bearer")
	}
	return e
}

// errorInterceptor turns what the services return into connect errors.
type errorInterceptor struct{ *server }

func (i errorInterceptor) connectError(ctx context.Context, err error) error {
	var already *connect.Error
	if err == nil || errors.As(err, &already) {
		return err
	}
	return i.failureOf(ctx, err).connectError()
}

// WrapUnary implements [connect.Interceptor].
func (i errorInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, err := received(ctx, req.Any())
		if err != nil {
			return nil, i.connectError(ctx, err)
		}
		res, err := next(ctx, req)
		return res, i.connectError(ctx, err)
	}
}

// WrapStreamingHandler implements [connect.Interceptor].
func (i errorInterceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		check := func(message any) error {
			_, err := received(ctx, message)
			return i.connectError(ctx, err)
		}
		return i.connectError(ctx, next(ctx, receivingConn{conn, check}))
	}
}

// WrapStreamingClient implements [connect.Interceptor]; there is no client here.
func (i errorInterceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

var rpcErrors = connect.NewErrorWriter()

// fail answers r with err: an RPC in its protocol, other routes with JSON.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	s.answer(w, r, s.failureOf(r.Context(), err))
}

func (s *server) answer(w http.ResponseWriter, r *http.Request, f failure) {
	if !f.plain && strings.HasPrefix(r.URL.Path, rpcPrefix) && rpcErrors.IsSupported(r) {
		if f.status != 0 {
			w = statusWriter{w, f.status}
		}
		// The client may have gone; there is nobody else to tell.
		_ = rpcErrors.Write(w, r, f.connectError())
		return
	}
	body, _ := json.Marshal(struct { // strings only: it cannot fail
		Code        string `json:"code"`
		Reason      string `json:"reason"`
		Message     string `json:"message"`
		Field       string `json:"field,omitempty"`
		ActiveRunID string `json:"active_run_id,omitempty"`
		ErrorID     string `json:"error_id,omitempty"`
	}{f.code.String(), f.detail.GetReason(), f.message, f.detail.GetField(), f.detail.GetActiveRunId(), f.detail.GetErrorId()})
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set(reasonHeader, f.detail.GetReason())
	if f.code == connect.CodeUnauthenticated {
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(cmp.Or(f.status, httpStatus(f.code)))
	_, _ = w.Write(body)
}

// httpStatus is the status that Connect gives a code.
func httpStatus(c connect.Code) int {
	switch c {
	case connect.CodeCanceled:
		return 499 // what nginx logs for a client that has gone
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition, connect.CodeOutOfRange:
		return http.StatusBadRequest
	case connect.CodeDeadlineExceeded:
		return http.StatusGatewayTimeout
	case connect.CodeNotFound:
		return http.StatusNotFound
	case connect.CodeAlreadyExists, connect.CodeAborted:
		return http.StatusConflict
	case connect.CodePermissionDenied:
		return http.StatusForbidden
	case connect.CodeResourceExhausted:
		return http.StatusTooManyRequests
	case connect.CodeUnimplemented:
		return http.StatusNotImplemented
	case connect.CodeUnavailable:
		return http.StatusServiceUnavailable
	case connect.CodeUnauthenticated:
		return http.StatusUnauthorized
	default: // unknown, internal, data loss
		return http.StatusInternalServerError
	}
}
