package api_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/seed-2ca4966b/agentd/api"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// pauses are kept in memory, oldest first.
type pauses struct {
	mu   sync.Mutex
	list loop.Pauses
	fail error
}

func (p *pauses) Pause(_ context.Context, x loop.Pause) (loop.Pause, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x.Since = time.Unix(1, 0).UTC()
	p.list = append(p.list, x)
	return x, p.fail
}

func (p *pauses) Resume(_ context.Context, tenantID, agent string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.list)
	p.list = slices.DeleteFunc(p.list, func(x loop.Pause) bool { return x.TenantID == tenantID && x.Agent == agent })
	return len(p.list) < n, p.fail
}

func (p *pauses) ListPauses(_ context.Context, tenantID string) (loop.Pauses, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out loop.Pauses
	for _, x := range p.list {
		if x.TenantID == "" || x.TenantID == tenantID {
			out = append(out, x)
		}
	}
	return out, p.fail
}

func (p *pauses) failWith(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

func (b *bundle) admin() agentdv1connect.AdminServiceClient {
	return agentdv1connect.NewAdminServiceClient(b.client, b.url)
}

const (
	scopeAll    = agentdv1.PauseScope_PAUSE_SCOPE_ALL
	scopeTenant = agentdv1.PauseScope_PAUSE_SCOPE_TENANT
	scopeAgent  = agentdv1.PauseScope_PAUSE_SCOPE_AGENT
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	b := setup(t, withKey("sesame"))
	admin := agentdv1connect.NewAdminServiceClient(b.client, b.url, connect.WithInterceptors(keyed("sesame")))
	for _, req := range []*agentdv1.PauseRequest{
		{Scope: scopeAll, Reason: "maintenance"}, {Scope: scopeTenant}, {Scope: scopeAgent, Agent: "main", Reason: "it spends too much"},
	} {
		res, err := admin.Pause(t.Context(), connect.NewRequest(req))
		if err != nil {
			t.Fatal(err)
		}
		got := res.Msg.GetPause()
		if got.GetScope() != req.GetScope() || got.GetAgent() != req.GetAgent() || got.GetReason() != req.GetReason() ||
			got.GetBy().GetKind() != "key" || got.GetSince().AsTime() != time.Unix(1, 0).UTC() {
			t.Errorf("paused %v for %v", got, req)
		}
	}
	list, err := admin.ListPauses(t.Context(), connect.NewRequest(&agentdv1.ListPausesRequest{}))
	if err != nil || len(list.Msg.GetPauses()) != 3 {
		t.Fatalf("list %v, %v", list, err)
	}
	for _, step := range []struct {
		req  *agentdv1.ResumeRequest
		was  bool
		left int
	}{
		{&agentdv1.ResumeRequest{Scope: scopeAgent, Agent: "other"}, false, 3},
		{&agentdv1.ResumeRequest{Scope: scopeTenant}, true, 2},
		{&agentdv1.ResumeRequest{Scope: scopeAll}, true, 1},
		{&agentdv1.ResumeRequest{Scope: scopeAgent, Agent: "main"}, true, 0},
	} {
		res, err := admin.Resume(t.Context(), connect.NewRequest(step.req))
		if err != nil || res.Msg.GetWasPaused() != step.was || len(res.Msg.GetLeft()) != step.left {
			t.Errorf("resume %v: %v, %v; want %v, %d left", step.req, res, err, step.was, step.left)
		}
	}
	if _, err := b.admin().ListPauses(t.Context(), connect.NewRequest(&agentdv1.ListPausesRequest{})); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("without the key: %v", err)
	}
}

// keyed sends an API key.
func keyed(key string) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			req.Header().Set("Authorization", "Bearer "+key)
			return next(ctx, req)
		}
	}
}

func TestPausesThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		field string
		req   *agentdv1.PauseRequest
	}{
		{"scope", &agentdv1.PauseRequest{}},
		{"scope", &agentdv1.PauseRequest{Scope: 9}},
		{"agent", &agentdv1.PauseRequest{Scope: scopeAgent}},
		{"agent", &agentdv1.PauseRequest{Scope: scopeAll, Agent: "main"}},
		{"agent", &agentdv1.PauseRequest{Scope: scopeAgent, Agent: strings.Repeat("a", 201)}},
		{"reason", &agentdv1.PauseRequest{Scope: scopeAll, Reason: strings.Repeat("r", 1001)}},
	} {
		_, err := b.admin().Pause(t.Context(), connect.NewRequest(c.req))
		if d := wantError(t, err, connect.CodeInvalidArgument, "invalid_argument"); d.GetField() != c.field {
			t.Errorf("%v: field %q, want %q", c.req, d.GetField(), c.field)
		}
	}
	_, err := b.admin().Resume(t.Context(), connect.NewRequest(&agentdv1.ResumeRequest{}))
	wantError(t, err, connect.CodeInvalidArgument, "invalid_argument")
	b.pauses.failWith(loop.ErrUnavailable)
	_, err = b.admin().Pause(t.Context(), connect.NewRequest(&agentdv1.PauseRequest{Scope: scopeAll}))
	wantError(t, err, connect.CodeUnavailable, "unavailable")
	_, err = b.admin().Resume(t.Context(), connect.NewRequest(&agentdv1.ResumeRequest{Scope: scopeAll}))
	wantError(t, err, connect.CodeUnavailable, "unavailable")
	_, err = b.admin().ListPauses(t.Context(), connect.NewRequest(&agentdv1.ListPausesRequest{}))
	wantError(t, err, connect.CodeUnavailable, "unavailable")
}

// failsToList is where a pause ends, and what is left cannot be read.
type failsToList struct{ api.Pauses }

func (failsToList) ListPauses(context.Context, string) (loop.Pauses, error) {
	return nil, loop.ErrUnavailable
}

func TestResumeSaysIfWhatIsLeftCannotBeRead(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config, _ *http.Server) { c.Pauses = failsToList{c.Pauses} })
	_, err := b.admin().Resume(t.Context(), connect.NewRequest(&agentdv1.ResumeRequest{Scope: scopeAll}))
	wantError(t, err, connect.CodeUnavailable, "unavailable")
}

func TestAStartedRunSaysThatItIsPaused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if started, err := b.startRun(t, &agentdv1.StartRunRequest{SessionId: b.newSession(t), Text: "hi"}); err != nil || started.GetPause() != nil {
		t.Errorf("before the pause: %v, %v", started, err)
	}
	if _, err := b.admin().Pause(t.Context(), connect.NewRequest(&agentdv1.PauseRequest{Scope: scopeAgent, Agent: "main", Reason: "why"})); err != nil {
		t.Fatal(err)
	}
	for agent, paused := range map[string]bool{"": true, "main": true, "other": false} {
		started, err := b.startRun(t, &agentdv1.StartRunRequest{SessionId: b.newSession(t), Agent: agent, Text: "hi"})
		if err != nil || started.GetRunId() == "" || (started.GetPause() != nil) != paused || paused && started.GetPause().GetReason() != "why" {
			t.Errorf("agent %q: %v, %v; want paused %v", agent, started, err, paused)
		}
	}
}

// slowToList holds its first answer back until it is let go.
type slowToList struct {
	api.Pauses
	once        sync.Once
	asked, went chan struct{}
}

func (p *slowToList) ListPauses(ctx context.Context, tenantID string) (loop.Pauses, error) {
	list, err := p.Pauses.ListPauses(ctx, tenantID)
	p.once.Do(func() {
		close(p.asked)
		<-p.went
	})
	return list, err
}

func TestAnAnswerFromBeforeAPauseIsNotKept(t *testing.T) {
	t.Parallel()
	slow := &slowToList{asked: make(chan struct{}), went: make(chan struct{})}
	b := setup(t, func(c *api.Config, _ *http.Server) { slow.Pauses, c.Pauses = c.Pauses, slow })
	session, started := b.newSession(t), make(chan error, 1)
	go func() {
		_, err := b.startRun(t, &agentdv1.StartRunRequest{SessionId: session, Text: "hi"})
		started <- err
	}()
	<-slow.asked
	_, err := b.admin().Pause(t.Context(), connect.NewRequest(&agentdv1.PauseRequest{Scope: scopeAll}))
	close(slow.went)
	if err := errors.Join(err, <-started); err != nil {
		t.Fatal(err)
	}
	res, err := b.startRun(t, &agentdv1.StartRunRequest{SessionId: b.newSession(t), Text: "hi"})
	if err != nil || res.GetPause() == nil {
		t.Errorf("behind the pause: %v, %v; want it named", res, err)
	}
}

func TestARunIsStartedWhetherOrNotItsPauseCanBeRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.pauses.failWith(errors.New("away"))
	started, err := b.startRun(t, &agentdv1.StartRunRequest{SessionId: b.newSession(t), Text: "hi"})
	if err != nil || started.GetRunId() == "" || started.GetPause() != nil {
		t.Errorf("%v, %v", started, err)
	}
	if !strings.Contains(b.logged.String(), "read pauses") {
		t.Error("the log says nothing")
	}
}

func TestFailRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fail := func(id, reason string) error {
		_, err := b.admin().FailRun(t.Context(), connect.NewRequest(&agentdv1.FailRunRequest{RunId: id, Reason: reason}))
		return err
	}
	session := b.newSession(t)
	run := b.start(t, session, "hi").RunID
	wantError(t, fail(run, ""), connect.CodeInvalidArgument, "invalid_argument")
	wantError(t, fail(run, strings.Repeat("r", 1001)), connect.CodeInvalidArgument, "invalid_argument")
	wantError(t, fail("", "x"), connect.CodeInvalidArgument, "invalid_argument")
	wantError(t, fail(uuid.NewString(), "x"), connect.CodeNotFound, "not_found")
	if err := fail(run, "it hangs"); err != nil {
		t.Fatal(err)
	}
	events := b.events(t, session)
	if e := events[len(events)-1]; e.Type != event.TypeRunFailed || !strings.Contains(string(e.Payload), `"forced"`) || !strings.Contains(string(e.Payload), "it hangs") {
		t.Errorf("the last event is %v", e)
	}
	wantError(t, fail(run, "again"), connect.CodeFailedPrecondition, "run_ended")
}
