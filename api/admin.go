package api

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop"
)

// Pauses hold runs back. Implementations are safe for concurrent use.
type Pauses interface {
	// Pause returns the pause as stored.
	Pause(ctx context.Context, p loop.Pause) (loop.Pause, error)
	// Resume reports whether exactly that was paused.
	Resume(ctx context.Context, tenantID, agent string) (bool, error)
	// ListPauses returns those that touch the tenant.
	ListPauses(ctx context.Context, tenantID string) (loop.Pauses, error)
}

// adminService implements agentd.v1.AdminService.
type adminService struct{ *server }

var _ agentdv1connect.AdminServiceHandler = (*adminService)(nil)

func (s *adminService) Pause(ctx context.Context, req *connect.Request[agentdv1.PauseRequest]) (*connect.Response[agentdv1.PauseResponse], error) {
	m, who := req.Msg, principalOf(ctx)
	tenantID, err := pauseOf(who.tenantID, m.GetScope(), m.GetAgent())
	if err == nil {
		err = checkLength("reason", m.GetReason(), maxReason)
	}
	if err != nil {
		return nil, err
	}
	p, err := s.Pauses.Pause(ctx, loop.Pause{TenantID: tenantID, Agent: m.GetAgent(), Reason: m.GetReason(), By: who.actor})
	if err != nil {
		return nil, err
	}
	s.pauseWatch.forget()
	s.Log.WarnContext(ctx, "runs are paused", "tenant", tenantID, "agent", m.GetAgent(), "by", who.actor.ID)
	return connect.NewResponse(&agentdv1.PauseResponse{Pause: wirePause(p)}), nil
}

func (s *adminService) Resume(ctx context.Context, req *connect.Request[agentdv1.ResumeRequest]) (*connect.Response[agentdv1.ResumeResponse], error) {
	m, who := req.Msg, principalOf(ctx)
	tenantID, err := pauseOf(who.tenantID, m.GetScope(), m.GetAgent())
	if err != nil {
		return nil, err
	}
	was, err := s.Pauses.Resume(ctx, tenantID, m.GetAgent())
	if err != nil {
		return nil, err
	}
	s.pauseWatch.forget()
	if was {
		s.Log.WarnContext(ctx, "runs are resumed", "tenant", tenantID, "agent", m.GetAgent(), "by", who.actor.ID)
	}
	left, err := s.Pauses.ListPauses(ctx, who.tenantID)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.ResumeResponse{WasPaused: was, Left: wirePauses(left)}), nil
}

func (s *adminService) ListPauses(ctx context.Context, _ *connect.Request[agentdv1.ListPausesRequest]) (*connect.Response[agentdv1.ListPausesResponse], error) {
	list, err := s.Pauses.ListPauses(ctx, principalOf(ctx).tenantID)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.ListPausesResponse{Pauses: wirePauses(list)}), nil
}

func (s *adminService) FailRun(ctx context.Context, req *connect.Request[agentdv1.FailRunRequest]) (*connect.Response[agentdv1.FailRunResponse], error) {
	id, err := parseID("run_id", req.Msg.GetRunId())
	if err == nil {
		err = checkLength("reason", req.Msg.GetReason(), maxReason)
	}
	if err != nil {
		return nil, err
	}
	who := principalOf(ctx)
	run, err := s.Reader.GetRun(ctx, who.tenantID, id)
	if err != nil {
		return nil, err
	}
	err = s.Commands.FailRun(ctx, loop.FailRun{
		TenantID: who.tenantID, SessionID: run.SessionID, RunID: run.ID, Reason: req.Msg.GetReason(), Actor: who.actor,
		Sanitized: proseRepaired(ctx),
	})
	if err != nil {
		return nil, err
	}
	s.Log.WarnContext(ctx, "run ended by force", "run", run.ID, "session", run.SessionID, "by", who.actor.ID)
	return connect.NewResponse(&agentdv1.FailRunResponse{}), nil
}

// pauseOf returns the tenant of a pause, "" for all of them.
func pauseOf(tenantID string, scope agentdv1.PauseScope, agent string) (string, error) {
	if err := checkName("agent", agent); err != nil {
		return "", err
	}
	named := strings.TrimSpace(agent) != ""
	switch scope {
	case agentdv1.PauseScope_PAUSE_SCOPE_AGENT:
		if !named {
			return "", invalid("agent", "is empty: name the agent, or take another scope")
		}
		return tenantID, nil
	case agentdv1.PauseScope_PAUSE_SCOPE_ALL, agentdv1.PauseScope_PAUSE_SCOPE_TENANT:
		if agent != "" {
			return "", invalid("agent", "must be empty unless the scope is PAUSE_SCOPE_AGENT")
		}
		if scope == agentdv1.PauseScope_PAUSE_SCOPE_ALL {
			return "", nil
		}
		return tenantID, nil
	case agentdv1.PauseScope_PAUSE_SCOPE_UNSPECIFIED:
	}
	return "", invalid("scope", "is missing, or none that this server knows: send PAUSE_SCOPE_ALL, PAUSE_SCOPE_TENANT or PAUSE_SCOPE_AGENT")
}

func wirePauses(list loop.Pauses) []*agentdv1.Pause {
	out := make([]*agentdv1.Pause, 0, len(list))
	for _, p := range list {
		out = append(out, wirePause(p))
	}
	return out
}

func wirePause(p loop.Pause) *agentdv1.Pause {
	scope := agentdv1.PauseScope_PAUSE_SCOPE_ALL
	switch {
	case p.Agent != "":
		scope = agentdv1.PauseScope_PAUSE_SCOPE_AGENT
	case p.TenantID != "":
		scope = agentdv1.PauseScope_PAUSE_SCOPE_TENANT
	}
	return &agentdv1.Pause{Scope: scope, Agent: p.Agent, Reason: p.Reason, By: wireActor(p.By), Since: timestamppb.New(p.Since)}
}

// pausesAge is how old an answer about pauses may be. Runs start more often than
// somebody pauses.
const pausesAge = 500 * time.Millisecond

// pauseWatch knows whether a run that was started is paused. The zero value is
// ready; it is safe for concurrent use.
type pauseWatch struct {
	mu      sync.Mutex
	lists   map[string]pausesAt // by tenant
	changes int                 // how often lists was forgotten
}

// forget is for who has just changed them.
func (w *pauseWatch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists = nil
	w.changes++
}

type pausesAt struct {
	pauses loop.Pauses
	read   time.Time
}

// pauseOfRun returns the pause that covers a run; nil if none does, or if that
// cannot be found out: the run is stored either way.
func (s *server) pauseOfRun(ctx context.Context, tenantID, runID string) *agentdv1.Pause {
	pauses, err := s.pausesNow(ctx, tenantID)
	if err != nil {
		s.Log.WarnContext(ctx, "read pauses", slog.Any("error", err))
	}
	if len(pauses) == 0 || runID == "" {
		return nil
	}
	run, err := s.Reader.GetRun(ctx, tenantID, runID)
	if err != nil {
		s.Log.WarnContext(ctx, "read the agent of a run", slog.Any("error", err))
		return nil
	}
	if p, ok := pauses.Of(tenantID, run.Agent); ok && !run.Status.Terminal() {
		return wirePause(p)
	}
	return nil
}

func (s *server) pausesNow(ctx context.Context, tenantID string) (loop.Pauses, error) {
	w := &s.pauseWatch
	w.mu.Lock()
	known, ok := w.lists[tenantID]
	changes := w.changes
	w.mu.Unlock()
	if ok && time.Since(known.read) < pausesAge {
		return known.pauses, nil
	}
	read := time.Now()
	pauses, err := s.Pauses.ListPauses(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changes != changes {
		return pauses, nil // they may be those from before the change
	}
	if w.lists == nil {
		w.lists = map[string]pausesAt{}
	}
	w.lists[tenantID] = pausesAt{pauses, read}
	return pauses, nil
}
