package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/seed-2ca4966b/agentd/api"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// errorCases are all errors that cross from the loop, as a store wraps them.
var errorCases = []struct {
	err    error
	code   connect.Code
	reason string
	status int
}{
	{loop.ErrNotFound, connect.CodeNotFound, "not_found", 404},
	{loop.ErrInvalid, connect.CodeInvalidArgument, "invalid_argument", 400},
	{&loop.InvalidError{Field: "f", Problem: "is wrong"}, connect.CodeInvalidArgument, "invalid_argument", 400},
	{loop.ErrBusy, connect.CodeAborted, "session_busy", 409},
	{&loop.BusyError{ActiveRunID: "r"}, connect.CodeAborted, "session_busy", 409},
	{loop.ErrBlocked, connect.CodePermissionDenied, "input_blocked", 403},
	{&loop.BlockedError{ReasonCode: "c", Reason: "no"}, connect.CodePermissionDenied, "input_blocked", 403},
	{loop.ErrDecided, connect.CodeAborted, "already_decided", 409},
	{&loop.DecidedError{Decision: event.DecisionDenied}, connect.CodeAborted, "already_decided", 409},
	{loop.ErrKeyReused, connect.CodeAlreadyExists, "idempotency_key_reused", 409},
	{loop.ErrRunEnded, connect.CodeFailedPrecondition, "run_ended", 400},
	{loop.ErrBadState, connect.CodeFailedPrecondition, "bad_state", 400},
	{&loop.BadStateError{Seq: 7, Problem: "no"}, connect.CodeFailedPrecondition, "bad_state", 400},
	{loop.ErrNotRetryable, connect.CodeFailedPrecondition, "not_retryable", 400},
	{&loop.RetryError{RunID: "r", Problem: "it is running"}, connect.CodeFailedPrecondition, "not_retryable", 400},
	{loop.ErrConflict, connect.CodeAborted, "conflict", 409},
	{loop.ErrUnavailable, connect.CodeUnavailable, "unavailable", 503},
	{&loop.TransitionError{Entity: "run"}, connect.CodeFailedPrecondition, "not_allowed", 400},
	{loop.ErrLeaseLost, connect.CodeInternal, "internal", 500},
	{context.DeadlineExceeded, connect.CodeInternal, "internal", 500},
	{errors.New("password=hunter2"), connect.CodeInternal, "internal", 500},
}

func TestErrorsOfTheLoopBecomeCodes(t *testing.T) {
	t.Parallel()
	for _, tt := range errorCases {
		t.Run(tt.err.Error(), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			id := b.newSession(t)
			b.failWith(fmt.Errorf("select from a secret table: %w", tt.err))

			clients := map[string]agentdv1connect.SessionServiceClient{
				"connect":  b.sessions,
				"grpc-web": agentdv1connect.NewSessionServiceClient(b.client, b.url, connect.WithGRPCWeb()),
			}
			for name, c := range clients {
				_, err := c.DeleteSession(t.Context(), connect.NewRequest(&agentdv1.DeleteSessionRequest{SessionId: id}))
				d := wantError(t, err, tt.code, tt.reason)
				if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("%s: %v tells what is inside", name, err)
				}
				if tt.code == connect.CodeInternal {
					wantLogged(t, b, d.GetErrorId(), tt.err)
				}
			}
			_, err := b.sessions.CreateSession(t.Context(), connect.NewRequest(&agentdv1.CreateSessionRequest{}))
			wantError(t, err, tt.code, tt.reason)
			_, err = b.sessions.ListEvents(t.Context(), connect.NewRequest(&agentdv1.ListEventsRequest{SessionId: id}))
			wantError(t, err, tt.code, tt.reason)
			err = b.watch(t.Context(), t, b.sessions, &agentdv1.WatchEventsRequest{SessionId: id}).end()
			wantError(t, err, tt.code, tt.reason)
		})
	}
}

func wantLogged(t *testing.T, b *bundle, id string, cause error) {
	t.Helper()
	if uuid.Validate(id) != nil {
		t.Fatalf("error id %q, want a UUID", id)
	}
	for line := range strings.Lines(b.logged.String()) {
		if strings.Contains(line, id) && strings.Contains(line, cause.Error()) {
			return
		}
	}
	t.Errorf("the log says nothing of %q under %s:\n%s", cause, id, b.logged)
}

// headFails is a feed that cannot tell where a session stands.
type headFails struct {
	api.Feed
	err error
}

func (f headFails) Head(context.Context, string, string) (loop.Head, error) {
	return loop.Head{}, f.err
}

func TestErrorsOfPlainRoutesHaveTheSameWords(t *testing.T) {
	t.Parallel()
	for _, tt := range errorCases {
		t.Run(tt.err.Error(), func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *api.Config, _ *http.Server) { c.Feed = headFails{c.Feed, tt.err} })
			res := b.get(t, "/v1/sessions/"+uuid.NewString()+"/events", nil)
			body := wantJSONError(t, res, tt.status, tt.code.String(), tt.reason)
			if tt.code == connect.CodeInternal {
				wantLogged(t, b, body["error_id"], tt.err)
			}
			var invalid *loop.InvalidError
			if errors.As(tt.err, &invalid) && body["field"] != "f" {
				t.Errorf("body %v, want the field", body)
			}
			var busy *loop.BusyError
			if errors.As(tt.err, &busy) && body["active_run_id"] != "r" {
				t.Errorf("body %v, want the active run", body)
			}
		})
	}
}

func TestRequestsThatEndSayHow(t *testing.T) {
	t.Parallel()
	gone, cancelGone := context.WithCancel(t.Context())
	cancelGone()
	late, cancelLate := context.WithTimeout(t.Context(), 0)
	t.Cleanup(cancelLate)
	request := func(ctx context.Context) answer {
		b := newBackend()
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/v1/sessions/x/events?after=x", http.NoBody)
		w := httptest.NewRecorder()
		api.New(api.Config{Commands: b, Reader: b, Feed: b}).ServeHTTP(w, req)
		return answer{w.Code, w.Header(), io.NopCloser(w.Body)}
	}
	wantJSONError(t, request(gone), 499, "canceled", "canceled")
	wantJSONError(t, request(late), http.StatusGatewayTimeout, "deadline_exceeded", "deadline_exceeded")
}

// panics is a command that has a bug.
type panics struct{ api.Commands }

func (panics) DeleteSession(context.Context, string, string, event.Actor) error { panic("a bug") }

func TestAPanicIsAnInternalError(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config, _ *http.Server) { c.Commands = panics{c.Commands} })
	_, err := b.sessions.DeleteSession(t.Context(), connect.NewRequest(&agentdv1.DeleteSessionRequest{SessionId: uuid.NewString()}))
	d := wantError(t, err, connect.CodeInternal, "internal")
	wantLogged(t, b, d.GetErrorId(), errors.New("a bug"))
}

func TestUnknownRoutes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wantJSONError(t, b.get(t, "/v1/nothing", nil), 404, "not_found", "no_route")
	for _, procedure := range []string{"/agentd.v1.RunService/Nothing", "/agentd.v1.NoService/Nothing"} {
		c := connect.NewClient[agentdv1.GetRunRequest, agentdv1.GetRunResponse](b.client, b.url+procedure)
		_, err := c.CallUnary(t.Context(), connect.NewRequest(&agentdv1.GetRunRequest{}))
		if connect.CodeOf(err) != connect.CodeUnimplemented {
			t.Errorf("%s: %v, want unimplemented", procedure, err)
		}
	}
}

// answer is what came back from a plain route. Its body is closed with the test.
type answer struct {
	status int
	header http.Header
	body   io.ReadCloser
}

// get sends a GET with headers, and a Host if there is one among them.
func (b *bundle) get(t *testing.T, path string, header http.Header) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, header)
	return b.do(t, req)
}

func (b *bundle) do(t *testing.T, req *http.Request) answer {
	t.Helper()
	if h := req.Header.Get("Host"); h != "" {
		req.Host = h
	}
	res, err := b.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return answer{res.StatusCode, res.Header, res.Body}
}
