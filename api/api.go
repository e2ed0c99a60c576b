package api

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/api/sse"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Commands change things. Implementations are safe for concurrent use.
type Commands interface {
	// CreateSession gives the session that has the external id, if there is one.
	CreateSession(ctx context.Context, cmd loop.CreateSession) (loop.SessionRef, error)
	// UpdateSession merges; what changes nothing is no error.
	UpdateSession(ctx context.Context, cmd loop.UpdateSession) error
	// DeleteSession refuses with [loop.ErrBusy] while a run is active.
	DeleteSession(ctx context.Context, tenantID, sessionID string, actor event.Actor) error
	// StartRun returns once the message and the run are durable. What a hook
	// refuses is [loop.ErrBlocked].
	StartRun(ctx context.Context, cmd loop.StartRun) (loop.StartedRun, error)
	// DecideApproval refuses with [loop.ErrDecided] if there is another answer.
	DecideApproval(ctx context.Context, cmd loop.DecideApproval) (loop.Decided, error)
	// RetryRun refuses with [loop.ErrNotRetryable] what has not failed, or for good.
	RetryRun(ctx context.Context, cmd loop.RetryRun) (loop.RetriedRun, error)
	// CancelRun may be repeated; [loop.ErrRunEnded] if the run ended otherwise.
	CancelRun(ctx context.Context, cmd loop.CancelRun) error
	// FailRun ends a run by force; [loop.ErrRunEnded] if it had ended.
	FailRun(ctx context.Context, cmd loop.FailRun) error
}

var _ Commands = (*loop.Commands)(nil)

// Reader reads what is shown. A foreign tenant's id, a deleted session and a
// page after an element that is not in the list are [loop.ErrNotFound].
// Implementations are safe for concurrent use.
type Reader interface {
	// GetSession finds a session by agentd's id.
	GetSession(ctx context.Context, tenantID, sessionID string) (loop.SessionInfo, error)
	// ListSessions returns the newest first.
	ListSessions(ctx context.Context, tenantID string, filter loop.SessionFilter, page loop.Page) ([]loop.SessionInfo, error)
	// ListMessages returns them in order of position.
	ListMessages(ctx context.Context, tenantID, sessionID string, filter loop.MessageFilter, page loop.Page) ([]loop.MessageInfo, error)
	// GetRun finds a run by its id alone.
	GetRun(ctx context.Context, tenantID, runID string) (loop.RunInfo, error)
	// ListRuns returns the newest first; sessionID "" means all sessions.
	ListRuns(ctx context.Context, tenantID, sessionID string, page loop.Page) ([]loop.RunInfo, error)
	// GetApproval finds an approval by its id alone.
	GetApproval(ctx context.Context, tenantID, approvalID string) (loop.ApprovalInfo, error)
	// ListApprovals returns the newest first.
	ListApprovals(ctx context.Context, tenantID string, filter loop.ApprovalFilter, page loop.Page) ([]loop.ApprovalInfo, error)
	// ListDecisions returns them in the order of the ledger.
	ListDecisions(ctx context.Context, tenantID string, filter loop.DecisionFilter, page loop.Page) ([]loop.DecisionInfo, error)
	// HookSets returns those with the digests, without those that are not
	// stored. They are nobody's: whoever is shown hooks of them has to have
	// decisions of theirs.
	HookSets(ctx context.Context, digests []string) ([]hooks.HookSet, error)
}

// Feed reads the log. Implementations are safe for concurrent use.
type Feed interface {
	// Head also finds deleted sessions, and says that they are.
	Head(ctx context.Context, tenantID, sessionID string) (loop.Head, error)
	// HeadByExternalID finds a session that is not deleted by the client's id.
	HeadByExternalID(ctx context.Context, tenantID, externalID string) (loop.Head, error)
	// Events returns up to limit events with a seq above after, in order.
	Events(ctx context.Context, tenantID, sessionID string, after int64, limit int) ([]event.Event, error)
	// Next is Events that waits until there is one, or until ctx ends, which
	// is its error. A deleted session is [loop.ErrNotFound].
	Next(ctx context.Context, tenantID, sessionID string, after int64, limit int) ([]event.Event, error)
}

// Config is what the API is made of. Commands, Reader, Feed and Pauses
// are required.
type Config struct {
	Commands Commands
	Reader   Reader
	Feed     Feed
	Pauses   Pauses
	// APIKey guards every route but /healthz; "" lets everybody in who connects
	// from this machine (see the package comment).
	APIKey string
	// Heartbeat is how long a stream may be silent; 0 means 15 s. Proxies cut
	// silent connections after 30 s or so.
	Heartbeat time.Duration
	// WriteTimeout is how long a reader of a stream may take nothing before it
	// is given up; 0 means 30 s. It has every event when it comes back.
	WriteTimeout time.Duration
	// Stopping ends all streams when it is done; nil never is.
	Stopping context.Context //nolint:containedctx // nothing is done in it: thousands of streams hang on its end, each without a goroutine
	// Log gets what clients are not told; nil discards it.
	Log *slog.Logger
}

const (
	defaultHeartbeat    = 15 * time.Second
	defaultWriteTimeout = 30 * time.Second
	// maxBody bounds a request, in bytes.
	maxBody = 1 << 20
)

// rpcPrefix begins the path of every RPC, and of no other route.
const rpcPrefix = "/agentd.v1."

type server struct {
	Config
	pauseWatch pauseWatch
}

// New returns the handler of all routes. It starts nothing.
func New(c Config) http.Handler {
	if c.Heartbeat == 0 {
		c.Heartbeat = defaultHeartbeat
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = defaultWriteTimeout
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Stopping == nil {
		c.Stopping = context.Background()
	}
	s := &server{Config: c}

	options := connect.WithHandlerOptions(
		connect.WithInterceptors(errorInterceptor{s}),
		connect.WithRecover(s.recovered),
		connect.WithReadMaxBytes(maxBody),
		codecs(),
	)
	inner := http.NewServeMux()
	sessionPath, sessions := agentdv1connect.NewSessionServiceHandler(&sessionService{server: s}, options)
	inner.Handle(sessionPath, sessions)
	inner.Handle(agentdv1connect.SessionServiceWatchEventsProcedure, s.streamed(sessions))
	inner.Handle(agentdv1connect.NewRunServiceHandler(&runService{server: s}, options))
	inner.Handle(agentdv1connect.NewApprovalServiceHandler(&approvalService{server: s}, options))
	inner.Handle(agentdv1connect.NewLedgerServiceHandler(&ledgerService{server: s}, options))
	inner.Handle(agentdv1connect.NewAdminServiceHandler(&adminService{server: s}, options))
	inner.Handle("GET /v1/sessions/{id}/events", &sse.Handler{
		Open: s.openSSE, Fail: s.fail, WriteTimeout: c.WriteTimeout, Log: c.Log,
	})
	inner.Handle("GET /v1/runs/{id}/events", &sse.Handler{
		Open: s.openRunSSE, Fail: s.fail, WriteTimeout: c.WriteTimeout, Log: c.Log,
	})
	inner.HandleFunc("GET /openapi.json", serveDocument)
	inner.HandleFunc("/", s.noRoute)

	outer := http.NewServeMux()
	outer.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	outer.Handle("/", s.guard(s.edge(inner)))
	return outer
}

func (s *server) noRoute(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, rpcPrefix) {
		s.fail(w, r, errNoProcedure)
		return
	}
	s.fail(w, r, errNoRoute)
}

// openSSE follows a session for the event stream.
func (s *server) openSSE(ctx context.Context, sessionID string, q sse.Query) (sse.Stream, error) {
	keep, err := parseFilter(q.Types, q.Channel)
	if err != nil {
		return nil, err
	}
	return s.followOnly(ctx, sessionID, q.After, q.UntilIdle, keep)
}

// recovered makes a panic an error of its request.
func (s *server) recovered(ctx context.Context, spec connect.Spec, _ http.Header, p any) error {
	return s.failureOf(ctx, fmt.Errorf("panic in %s: %v\n%s", spec.Procedure, p, debug.Stack())).connectError()
}

// streamed prepares the response of a streaming RPC, whose handler cannot reach
// it.
func (s *server) streamed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := sse.NewWriter(w, s.WriteTimeout)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		next.ServeHTTP(out, r)
	})
}
