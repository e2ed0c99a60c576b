package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-2ca4966b/agentd/api/client"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
)

// forgetful carries out what it is asked for and dies, so many times, before it
// has said so.
type forgetful struct {
	agentdv1connect.UnimplementedRunServiceHandler
	agentdv1connect.UnimplementedSessionServiceHandler
	agentdv1connect.UnimplementedAdminServiceHandler
	t     *testing.T
	lives atomic.Int32
	asked chan string
}

func newForgetful(t *testing.T, times int32) *forgetful {
	f := &forgetful{t: t, asked: make(chan string, 10)}
	f.lives.Store(times)
	return f
}

func (f *forgetful) die(what string) {
	f.asked <- what
	if f.lives.Add(-1) >= 0 {
		panic(http.ErrAbortHandler)
	}
}

func (f *forgetful) StartRun(_ context.Context, r *connect.Request[agentdv1.StartRunRequest]) (*connect.Response[agentdv1.StartRunResponse], error) {
	f.die(r.Msg.GetIdempotencyKey())
	return connect.NewResponse(&agentdv1.StartRunResponse{RunId: "r"}), nil
}

func (f *forgetful) DeleteSession(_ context.Context, r *connect.Request[agentdv1.DeleteSessionRequest]) (*connect.Response[agentdv1.DeleteSessionResponse], error) {
	f.die(r.Msg.GetSessionId())
	return nil, refusal(f.t, connect.CodeNotFound, &agentdv1.ErrorReason{Reason: "not_found"})
}

func TestAMessageKeepsItsKeyUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	f := newForgetful(t, 2)
	var said []string
	c := serve(t, handlers{runs: f}, client.WithPatience(patience),
		client.WithOutage(func() { said = append(said, "away") }, func() { said = append(said, "back") }))
	request := &agentdv1.StartRunRequest{Text: "hi"}
	if run, err := c.StartRun(t.Context(), request); err != nil || run.GetRunId() != "r" || !slices.Equal(said, []string{"away", "back"}) {
		t.Fatalf("%v, %v, said %v", run, err, said)
	}
	first := <-f.asked
	if first == "" || first != <-f.asked || first != <-f.asked {
		t.Error("each attempt had a key of its own")
	}
	if request.GetIdempotencyKey() != "" {
		t.Error("the caller's request was changed")
	}
	if _, err := c.StartRun(t.Context(), request); err != nil || <-f.asked == first {
		t.Errorf("%v, or another call had the same key", err)
	}
	if _, err := c.StartRun(t.Context(), &agentdv1.StartRunRequest{IdempotencyKey: "mine"}); err != nil || <-f.asked != "mine" {
		t.Errorf("%v, or the caller's key was not sent", err)
	}
}

func TestACallWithoutAPatienceIsMadeOnce(t *testing.T) {
	t.Parallel()
	f := newForgetful(t, 1)
	if _, err := serve(t, handlers{runs: f}).StartRun(t.Context(), &agentdv1.StartRunRequest{}); err == nil || client.ReasonOf(err) != "" || len(f.asked) != 1 {
		t.Errorf("%v after %d attempts", err, len(f.asked))
	}
}

func TestASessionThatALostAttemptDeletedIsDeleted(t *testing.T) {
	t.Parallel()
	f := newForgetful(t, 1)
	if err := serve(t, handlers{sessions: f}, client.WithPatience(patience)).DeleteSession(t.Context(), "s"); err != nil || len(f.asked) != 2 {
		t.Errorf("%v after %d attempts", err, len(f.asked))
	}
	if err := serve(t, handlers{sessions: newForgetful(t, 0)}, client.WithPatience(patience)).DeleteSession(t.Context(), "s"); client.ReasonOf(err) != "not_found" {
		t.Errorf("a session that was never there: %v", err)
	}
}

func (f *forgetful) FailRun(_ context.Context, r *connect.Request[agentdv1.FailRunRequest]) (*connect.Response[agentdv1.FailRunResponse], error) {
	f.die(r.Msg.GetRunId() + " " + r.Msg.GetReason())
	return nil, refusal(f.t, connect.CodeFailedPrecondition, &agentdv1.ErrorReason{Reason: "run_ended"})
}

func TestARunThatALostAttemptFailedHasFailed(t *testing.T) {
	t.Parallel()
	f := newForgetful(t, 1)
	if err := serve(t, handlers{admin: f}, client.WithPatience(patience)).FailRun(t.Context(), "r", "why"); err != nil || <-f.asked != "r why" || len(f.asked) != 1 {
		t.Errorf("%v after %d more attempts", err, len(f.asked))
	}
	if err := serve(t, handlers{admin: newForgetful(t, 0)}, client.WithPatience(patience)).FailRun(t.Context(), "r", "why"); client.ReasonOf(err) != "run_ended" {
		t.Errorf("a run that had ended: %v", err)
	}
}

// paused is a server on which one thing is paused.
type paused struct {
	agentdv1connect.UnimplementedAdminServiceHandler
	on bool
}

func (p *paused) Pause(_ context.Context, r *connect.Request[agentdv1.PauseRequest]) (*connect.Response[agentdv1.PauseResponse], error) {
	p.on = true
	return connect.NewResponse(&agentdv1.PauseResponse{Pause: &agentdv1.Pause{Reason: r.Msg.GetReason()}}), nil
}

func (p *paused) ListPauses(context.Context, *connect.Request[agentdv1.ListPausesRequest]) (*connect.Response[agentdv1.ListPausesResponse], error) {
	return connect.NewResponse(&agentdv1.ListPausesResponse{Pauses: []*agentdv1.Pause{{Agent: "demo"}}}), nil
}

func (p *paused) Resume(context.Context, *connect.Request[agentdv1.ResumeRequest]) (*connect.Response[agentdv1.ResumeResponse], error) {
	return connect.NewResponse(&agentdv1.ResumeResponse{WasPaused: p.on}), nil
}

func TestPauses(t *testing.T) {
	t.Parallel()
	c := serve(t, handlers{admin: &paused{}})
	if p, err := c.Pause(t.Context(), &agentdv1.PauseRequest{Reason: "why"}); err != nil || p.GetReason() != "why" {
		t.Errorf("pause: %v, %v", p, err)
	}
	if list, err := c.Pauses(t.Context()); err != nil || len(list) != 1 || list[0].GetAgent() != "demo" {
		t.Errorf("pauses: %v, %v", list, err)
	}
	if r, err := c.Resume(t.Context(), &agentdv1.ResumeRequest{}); err != nil || !r.GetWasPaused() {
		t.Errorf("resume: %v, %v", r, err)
	}
}

func TestACallEndsWithItsContextAndItsPatience(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	c := dial(t, "http://127.0.0.1:1", client.WithPatience(patience), client.WithOutage(cancel, nil))
	if _, err := c.GetRun(ctx, "r"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that of the context", err)
	}
	var away *client.AwayError
	if err := c.With(client.WithPatience(time.Millisecond), client.WithOutage(nil, nil)).CancelRun(t.Context(), "r", ""); !errors.As(err, &away) || away.URL != "http://127.0.0.1:1" {
		t.Errorf("%v, want the end of the patience", err)
	}
}

func TestARefusalSaysWhatTheServerSaid(t *testing.T) {
	t.Parallel()
	c := serve(t, handlers{runs: &oneRun{err: refusal(t, connect.CodeAborted, &agentdv1.ErrorReason{Reason: "session_busy", ActiveRunId: "r"})}}, client.WithPatience(patience))
	_, err := c.GetRun(t.Context(), "r")
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Error() != string(errSentence) || refused.Detail.GetActiveRunId() != "r" || client.ReasonOf(err) != "session_busy" || connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("got %#v", err)
	}
	c = serve(t, handlers{runs: &oneRun{err: connect.NewError(connect.CodeNotFound, errSentence)}})
	if _, err := c.GetRun(t.Context(), "r"); !errors.As(err, &refused) || refused.Reason != "" || refused.Detail == nil {
		t.Errorf("without a detail: %#v", err)
	}
	if client.ReasonOf(nil) != "" || client.ReasonOf(errSentence) != "" {
		t.Error("found a reason where there is none")
	}
}

func TestTheKeyIsSentAndDoesNotFollowARedirect(t *testing.T) {
	t.Parallel()
	keys := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { keys <- "other " + r.Header.Get("Authorization") }))
	t.Cleanup(other.Close)
	redirect := http.RedirectHandler(other.URL, http.StatusTemporaryRedirect)
	c := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Authorization")
		redirect.ServeHTTP(w, r)
	}), client.WithAPIKey("sesame"))
	if _, err := c.CreateSession(t.Context(), &agentdv1.CreateSessionRequest{}); err == nil {
		t.Error("a redirect is no session")
	}
	if _, err := c.With(client.WithAPIKey("")).GetSession(t.Context(), "s"); err == nil {
		t.Error("a redirect is no session")
	}
	close(keys)
	var got []string
	for k := range keys {
		got = append(got, k)
	}
	if !slices.Equal(got, []string{"Bearer sesame", ""}) {
		t.Errorf("sent %q", got)
	}
}

func TestAnAddressThatCannotBeOneIsRefused(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "nowhere", "127.0.0.1:8080", "ftp://host", "http://", "http://[", "http:opaque"} {
		if _, err := client.New(address); err == nil || !strings.HasPrefix(err.Error(), "address of the server: ") {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := client.New("https://example.com/agentd"); err != nil {
		t.Error(err)
	}
}
