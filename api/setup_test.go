package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

const tenant = "default"

// backend is the in-memory log with the loop's real commands before it, and
// what the API reads folded from it.
type backend struct {
	*looptest.Log
	*loop.Commands
	pauses *pauses

	mu sync.Mutex
	// sessions are in order of creation.
	sessions []string
	// fail is what every call returns, if it is set.
	fail error
	// approvers may answer what the runs of withHooks ask; nil is everybody.
	approvers []string
	// brokenSets fails reading hook sets.
	brokenSets bool
	// failPages is what reading a page of events returns, if it is set.
	failPages error
	// reads counts the events that were handed out by Next.
	reads int
}

func newBackend() *backend {
	log := looptest.NewLog()
	return &backend{Log: log, pauses: &pauses{}, Commands: &loop.Commands{
		Log: log, Agents: []string{"main", "other"}, NewID: uuid.NewString, Now: time.Now,
	}}
}

func (b *backend) failWith(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

func (b *backend) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fail
}

func (b *backend) CreateSession(ctx context.Context, cmd loop.CreateSession) (loop.SessionRef, error) {
	if err := b.failure(); err != nil {
		return loop.SessionRef{}, err
	}
	ref, err := b.Commands.CreateSession(ctx, cmd)
	if ref.Created {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.sessions = append(b.sessions, ref.SessionID)
	}
	return ref, err
}

func (b *backend) DeleteSession(ctx context.Context, tenantID, sessionID string, actor event.Actor) error {
	if err := b.failure(); err != nil {
		return err
	}
	return b.Commands.DeleteSession(ctx, tenantID, sessionID, actor)
}

// Events fails as it is told to.
func (b *backend) Events(ctx context.Context, tenantID, sessionID string, after int64, limit int) ([]event.Event, error) {
	if err := b.failure(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	err := b.failPages
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return b.Log.Events(ctx, tenantID, sessionID, after, limit)
}

// Next is what a store makes of Watch and Events.
func (b *backend) Next(ctx context.Context, tenantID, sessionID string, after int64, limit int) ([]event.Event, error) {
	changed, stop := b.Watch(sessionID)
	defer stop()
	for {
		if err := b.failure(); err != nil {
			return nil, err
		}
		if h, err := b.Head(ctx, tenantID, sessionID); err != nil || h.Deleted {
			return nil, loop.ErrNotFound
		}
		events, err := b.Events(ctx, tenantID, sessionID, after, limit)
		if err != nil || len(events) > 0 {
			b.mu.Lock()
			b.reads += len(events)
			b.mu.Unlock()
			return events, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (b *backend) state(ctx context.Context, tenantID, sessionID string) (loop.State, []event.Event, error) {
	events, err := b.Events(ctx, tenantID, sessionID, 0, 1<<20)
	if err != nil {
		return loop.State{}, nil, err
	}
	s := loop.FoldAll(loop.State{}, events)
	if s.Deleted {
		return loop.State{}, nil, loop.ErrNotFound
	}
	return s, events, nil
}

func (b *backend) GetSession(ctx context.Context, tenantID, sessionID string) (loop.SessionInfo, error) {
	if err := b.failure(); err != nil {
		return loop.SessionInfo{}, err
	}
	s, events, err := b.state(ctx, tenantID, sessionID)
	if err != nil {
		return loop.SessionInfo{}, err
	}
	head, err := b.Head(ctx, tenantID, sessionID)
	return loop.SessionInfo{
		ID: s.SessionID, TenantID: s.TenantID, ExternalID: s.ExternalID, LastSeq: s.LastSeq, ActiveRunID: head.ActiveRunID,
		Title: s.Title, User: s.User, Metadata: s.Metadata,
		CreatedAt: events[0].At, UpdatedAt: events[len(events)-1].At,
	}, err
}

// each calls f for the sessions that are there, the newest first.
func (b *backend) each(f func(sessionID string)) {
	b.mu.Lock()
	ids := slices.Clone(b.sessions)
	b.mu.Unlock()
	for _, id := range slices.Backward(ids) {
		f(id)
	}
}

func pageOf[T any](list []T, p loop.Page, id func(T) string) ([]T, error) {
	if p.After != "" {
		i := slices.IndexFunc(list, func(v T) bool { return id(v) == p.After })
		if i < 0 {
			return nil, loop.ErrNotFound
		}
		list = list[i+1:]
	}
	return list[:min(len(list), p.Limit)], nil
}

func (b *backend) ListSessions(ctx context.Context, tenantID string, f loop.SessionFilter, p loop.Page) ([]loop.SessionInfo, error) {
	var list []loop.SessionInfo
	b.each(func(id string) {
		if info, err := b.GetSession(ctx, tenantID, id); err == nil && passes(info, f) {
			list = append(list, info)
		}
	})
	return pageOf(list, p, func(i loop.SessionInfo) string { return i.ID })
}

func passes(i loop.SessionInfo, f loop.SessionFilter) bool {
	for k, v := range f.Metadata {
		if i.Metadata[k] != v {
			return false
		}
	}
	return (f.User == "" || i.User == f.User) && strings.Contains(strings.ToLower(i.Title), f.Query) && (!f.ActiveOnly || i.ActiveRunID != "")
}

func (b *backend) ListMessages(ctx context.Context, tenantID, sessionID string, f loop.MessageFilter, p loop.Page) ([]loop.MessageInfo, error) {
	_, events, err := b.state(ctx, tenantID, sessionID)
	if err != nil {
		return nil, err
	}
	var (
		list []loop.MessageInfo
		s    loop.State
	)
	for _, e := range events {
		s = loop.Fold(s, e)
		for i := range list {
			if there := slices.ContainsFunc(s.Messages, func(m hooks.Message) bool { return m.ID == list[i].ID }); !there && list[i].ReplacedSeq == 0 {
				list[i].ReplacedSeq = e.Seq
			}
		}
		if n := len(s.Messages); n > 0 && s.Messages[n-1].Position == e.Seq {
			list = append(list, loop.MessageInfo{Message: s.Messages[n-1], Turn: e.Turn, CreatedAt: e.At})
		}
	}
	list = slices.DeleteFunc(list, func(m loop.MessageInfo) bool { return m.ReplacedSeq > 0 && !f.Replaced })
	return pageOf(list, p, func(m loop.MessageInfo) string { return m.ID })
}

func (b *backend) runs(ctx context.Context, tenantID, sessionID string) ([]loop.RunInfo, error) {
	s, _, err := b.state(ctx, tenantID, sessionID)
	var list []loop.RunInfo
	for _, r := range slices.Backward(s.Runs) {
		info := loop.RunInfo{
			ID: r.ID, SessionID: sessionID, Agent: r.Agent, Status: r.Status, Reason: r.Reason, Error: r.Error,
			MessageID: r.MessageID, AssistantMessageID: r.AssistantMessageID, CancelRequested: r.CancelRequested,
			Turns: len(r.Turns), CreatedAt: r.CreatedAt, EndedSeq: r.EndedSeq, Retries: r.Retries,
		}
		for _, t := range r.Turns {
			info.InputTokens += t.Usage.InputTokens
			info.OutputTokens += t.Usage.OutputTokens
		}
		if !r.EndedAt.IsZero() {
			info.EndedAt = &r.EndedAt
		}
		list = append(list, info)
	}
	return list, err
}

func (b *backend) GetRun(ctx context.Context, tenantID, runID string) (loop.RunInfo, error) {
	list, err := b.ListRuns(ctx, tenantID, "", loop.Page{Limit: 1 << 20})
	for _, r := range list {
		if r.ID == runID {
			return r, nil
		}
	}
	return loop.RunInfo{}, errors.Join(loop.ErrNotFound, err)
}

func (b *backend) ListRuns(ctx context.Context, tenantID, sessionID string, p loop.Page) ([]loop.RunInfo, error) {
	var list []loop.RunInfo
	var err error
	if sessionID != "" {
		if list, err = b.runs(ctx, tenantID, sessionID); err != nil {
			return nil, err
		}
	} else {
		b.each(func(id string) {
			rs, _ := b.runs(ctx, tenantID, id)
			list = append(list, rs...)
		})
	}
	return pageOf(list, p, func(r loop.RunInfo) string { return r.ID })
}

// append writes payloads behind what the session has.
func (b *backend) append(t *testing.T, sessionID, runID string, turn int, payloads ...event.Payload) {
	t.Helper()
	h, err := b.Head(t.Context(), tenant, sessionID)
	if err != nil {
		t.Fatal(err)
	}
	a := loop.Append{ID: uuid.NewString(), TenantID: tenant, SessionID: sessionID, Expected: h.LastSeq}
	for _, p := range payloads {
		e, err := event.New(event.Scope{SessionID: sessionID, RunID: runID, Turn: turn, At: time.Now(), Actor: event.System("test")}, p)
		if err != nil {
			t.Fatal(err)
		}
		a.Events = append(a.Events, e)
	}
	if _, err := b.Append(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

// begin lets a worker take the run and call the model.
func (b *backend) begin(t *testing.T, sessionID, runID string) {
	t.Helper()
	h, err := b.Head(t.Context(), tenant, sessionID)
	if err != nil {
		t.Fatal(err)
	}
	b.append(t, sessionID, runID, 0, event.RunStarted{WorkerID: "w", Epoch: h.Epoch + 1, Ticket: 1})
	b.append(t, sessionID, runID, 1, event.TurnStarted{}, event.ModelRequested{Attempt: 1, Model: "m"})
}

func (b *backend) delta(t *testing.T, sessionID, runID, text string) {
	t.Helper()
	b.append(t, sessionID, runID, 1, event.AssistantDelta{Attempt: 1, Lane: stream.LaneText, BlockID: "0", Text: text})
}

// complete ends the model call, the turn and the run.
func (b *backend) complete(t *testing.T, sessionID, runID, text string) {
	t.Helper()
	b.append(t, sessionID, runID, 1, event.AssistantCompleted{
		Attempt: 1, MessageID: uuid.NewString(), Finish: stream.FinishStop,
		Parts: []hooks.Part{{Type: hooks.PartReasoning, Text: "hm"}, {Type: hooks.PartText, Text: text}},
		Usage: stream.Usage{InputTokens: 3, OutputTokens: 5},
	}, event.TurnCompleted{})
	b.append(t, sessionID, runID, 0, event.RunCompleted{Reason: stream.FinishStop})
}

type bundle struct {
	*backend
	url      string
	client   *http.Client
	sessions agentdv1connect.SessionServiceClient
	runs     agentdv1connect.RunServiceClient
	ledger   agentdv1connect.LedgerServiceClient
	logged   *lockedBuffer

	approvalsClient agentdv1connect.ApprovalServiceClient
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type option func(*api.Config, *http.Server)

// setup serves the API over HTTP/1.1 and cleartext HTTP/2.
func setup(t *testing.T, options ...option) *bundle {
	t.Helper()
	b := &bundle{backend: newBackend(), logged: &lockedBuffer{}}
	c := api.Config{
		Commands: b.backend, Reader: b.backend, Feed: b.backend, Pauses: b.pauses,
		Log: slog.New(slog.NewJSONHandler(b.logged, nil)),
	}
	server := httptest.NewUnstartedServer(nil)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	for _, o := range options {
		o(&c, server.Config)
	}
	h := api.New(c)
	if wrap := server.Config.Handler; wrap != nil {
		server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wrap.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), innerKey{}, h)))
		})
	} else {
		server.Config.Handler = h
	}
	server.Start()
	t.Cleanup(server.Close)
	b.url, b.client = server.URL, server.Client()
	b.sessions = agentdv1connect.NewSessionServiceClient(b.client, b.url)
	b.runs = agentdv1connect.NewRunServiceClient(b.client, b.url)
	b.approvalsClient = agentdv1connect.NewApprovalServiceClient(b.client, b.url)
	b.ledger = agentdv1connect.NewLedgerServiceClient(b.client, b.url)
	return b
}

// innerKey finds the API's handler for a middleware.
type innerKey struct{}

func inner(r *http.Request) http.Handler { return r.Context().Value(innerKey{}).(http.Handler) }

func heartbeat(d time.Duration) option {
	return func(c *api.Config, _ *http.Server) { c.Heartbeat = d }
}

func withKey(key string) option {
	return func(c *api.Config, _ *http.Server) { c.APIKey = key }
}

// newSession makes a session behind the API's back.
func (b *bundle) newSession(t *testing.T) string {
	t.Helper()
	ref, err := b.CreateSession(t.Context(), loop.CreateSession{TenantID: tenant, Actor: event.System("test")})
	if err != nil {
		t.Fatal(err)
	}
	return ref.SessionID
}

// start starts a run behind the API's back.
func (b *bundle) start(t *testing.T, sessionID, text string) loop.StartedRun {
	t.Helper()
	run, err := b.StartRun(t.Context(), loop.StartRun{TenantID: tenant, SessionID: sessionID, Text: text, Actor: event.System("test")})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// finishedSession makes a session with one finished run.
func (b *bundle) finishedSession(t *testing.T) (sessionID, runID string) {
	t.Helper()
	sessionID = b.newSession(t)
	runID = b.start(t, sessionID, "hello").RunID
	b.begin(t, sessionID, runID)
	for _, w := range strings.Fields("Hello from the agent") {
		b.delta(t, sessionID, runID, w+" ")
	}
	b.complete(t, sessionID, runID, "Hello from the agent ")
	return sessionID, runID
}

func (b *bundle) events(t *testing.T, sessionID string) []event.Event {
	t.Helper()
	events, err := b.Events(t.Context(), tenant, sessionID, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// wantError checks everything that an RPC's error promises.
func wantError(t *testing.T, err error, code connect.Code, reason string) *agentdv1.ErrorReason {
	t.Helper()
	var e *connect.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want a connect error with code %s", err, code)
	}
	if e.Code() != code || e.Message() == "" {
		t.Errorf("code %s, message %q, want code %s and a message", e.Code(), e.Message(), code)
	}
	if got := e.Meta().Get("agentd-reason"); got != reason {
		t.Errorf("header agentd-reason %q, want %q", got, reason)
	}
	if len(e.Details()) != 1 {
		t.Fatalf("%d details, want 1", len(e.Details()))
	}
	v, err := e.Details()[0].Value()
	if err != nil {
		t.Fatal(err)
	}
	detail, ok := v.(*agentdv1.ErrorReason)
	if !ok || detail.GetReason() != reason {
		t.Fatalf("detail %v, want reason %q", v, reason)
	}
	return detail
}

// wantJSONError checks everything that another route's error promises.
func wantJSONError(t *testing.T, res answer, status int, code, reason string) map[string]string {
	t.Helper()
	var body map[string]string
	if err := json.NewDecoder(res.body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	if res.status != status || body["code"] != code || body["reason"] != reason || body["message"] == "" {
		t.Errorf("status %d, body %v, want status %d, code %s, reason %s and a message", res.status, body, status, code, reason)
	}
	if res.header.Get("Agentd-Reason") != reason || res.header.Get("Content-Type") != "application/json" {
		t.Errorf("headers %v, want reason %q and JSON", res.header, reason)
	}
	return body
}
