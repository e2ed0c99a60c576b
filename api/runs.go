package api

import (
	"context"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// runService implements agentd.v1.RunService.
type runService struct{ *server }

var _ agentdv1connect.RunServiceHandler = (*runService)(nil)

func (s *runService) StartRun(ctx context.Context, req *connect.Request[agentdv1.StartRunRequest]) (*connect.Response[agentdv1.StartRunResponse], error) {
	m := req.Msg
	id, err := parseID("session_id", m.GetSessionId())
	if err != nil {
		return nil, err
	}
	for _, err := range []error{
		checkName("agent", m.GetAgent()),
		checkText(m.GetText()),
		checkName("idempotency_key", m.GetIdempotencyKey()),
	} {
		if err != nil {
			return nil, err
		}
	}
	p := principalOf(ctx)
	run, err := s.Commands.StartRun(ctx, loop.StartRun{
		TenantID: p.tenantID, SessionID: id, Agent: m.GetAgent(), Text: m.GetText(),
		IdempotencyKey: m.GetIdempotencyKey(), ReplaceFrom: m.GetReplaceFrom(), Policy: event.Policy(m.GetPolicy()), Actor: p.actor,
		Sanitized: proseRepaired(ctx),
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.StartRunResponse{
		RunId: run.RunID, MessageId: run.MessageID, AssistantMessageId: run.AssistantMessageID,
		After: uint64(run.Seq), AlreadyStarted: run.Repeated, Handled: run.Handled, Reply: run.Reply, Enqueued: run.Enqueued,
		Pause: s.pauseOfRun(ctx, p.tenantID, run.RunID),
	}), nil
}

func (s *runService) GetRun(ctx context.Context, req *connect.Request[agentdv1.GetRunRequest]) (*connect.Response[agentdv1.GetRunResponse], error) {
	run, err := s.run(ctx, req.Msg.GetRunId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.GetRunResponse{Run: wireRun(run)}), nil
}

func (s *runService) run(ctx context.Context, runID string) (loop.RunInfo, error) {
	id, err := parseID("run_id", runID)
	if err != nil {
		return loop.RunInfo{}, err
	}
	return s.Reader.GetRun(ctx, principalOf(ctx).tenantID, id)
}

func (s *runService) ListRuns(ctx context.Context, req *connect.Request[agentdv1.ListRunsRequest]) (*connect.Response[agentdv1.ListRunsResponse], error) {
	tenantID, sessionID := principalOf(ctx).tenantID, req.Msg.GetSessionId()
	if sessionID != "" {
		var err error
		if sessionID, err = parseID("session_id", sessionID); err != nil {
			return nil, err
		}
	}
	pg, err := page(req.Msg.GetPageSize(), req.Msg.GetPageToken())
	if err != nil {
		return nil, err
	}
	list, err := s.Reader.ListRuns(ctx, tenantID, sessionID, pg)
	if err != nil {
		return nil, s.blamePage(ctx, err, tenantID, sessionID, pg)
	}
	page, next := cut(list, pg, func(r loop.RunInfo) string { return r.ID }, wireRun)
	return connect.NewResponse(&agentdv1.ListRunsResponse{Runs: page, NextPageToken: next}), nil
}

func (s *runService) CancelRun(ctx context.Context, req *connect.Request[agentdv1.CancelRunRequest]) (*connect.Response[agentdv1.CancelRunResponse], error) {
	if err := checkLength("reason", req.Msg.GetReason(), maxReason); err != nil {
		return nil, err
	}
	run, err := s.run(ctx, req.Msg.GetRunId())
	if err != nil {
		return nil, err
	}
	p := principalOf(ctx)
	err = s.Commands.CancelRun(ctx, loop.CancelRun{
		TenantID: p.tenantID, SessionID: run.SessionID, RunID: run.ID, Reason: req.Msg.GetReason(), Actor: p.actor,
		Sanitized: proseRepaired(ctx),
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.CancelRunResponse{}), nil
}

func (s *runService) RetryRun(ctx context.Context, req *connect.Request[agentdv1.RetryRunRequest]) (*connect.Response[agentdv1.RetryRunResponse], error) {
	run, err := s.run(ctx, req.Msg.GetRunId())
	if err != nil {
		return nil, err
	}
	p := principalOf(ctx)
	again, err := s.Commands.RetryRun(ctx, loop.RetryRun{TenantID: p.tenantID, SessionID: run.SessionID, RunID: run.ID, Actor: p.actor})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.RetryRunResponse{After: uint64(again.Seq), AlreadyRetried: again.Repeated}), nil
}
