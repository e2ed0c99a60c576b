package api

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop"
)

// approvalService implements agentd.v1.ApprovalService.
type approvalService struct{ *server }

var _ agentdv1connect.ApprovalServiceHandler = (*approvalService)(nil)

func (s *approvalService) ListApprovals(ctx context.Context, req *connect.Request[agentdv1.ListApprovalsRequest]) (*connect.Response[agentdv1.ListApprovalsResponse], error) {
	m, tenantID := req.Msg, principalOf(ctx).tenantID
	filter := loop.ApprovalFilter{PendingOnly: m.GetPendingOnly()}
	var err error
	if m.GetSessionId() != "" {
		if filter.SessionID, err = parseID("session_id", m.GetSessionId()); err != nil {
			return nil, err
		}
	}
	if m.GetRunId() != "" {
		if filter.RunID, err = parseID("run_id", m.GetRunId()); err != nil {
			return nil, err
		}
	}
	pg, err := page(m.GetPageSize(), m.GetPageToken())
	if err != nil {
		return nil, err
	}
	list, err := s.Reader.ListApprovals(ctx, tenantID, filter, pg)
	if err != nil {
		return nil, s.blamePageOfRun(ctx, err, tenantID, filter.SessionID, filter.RunID, pg)
	}
	page, next := cut(list, pg, func(a loop.ApprovalInfo) string { return a.ID }, wireApproval(principalOf(ctx)))
	return connect.NewResponse(&agentdv1.ListApprovalsResponse{Approvals: page, NextPageToken: next}), nil
}

// blamePageOfRun is blamePage for a list that may be of a run.
func (s *server) blamePageOfRun(ctx context.Context, err error, tenantID, sessionID, runID string, pg loop.Page) error {
	if errors.Is(err, loop.ErrNotFound) && pg.After != "" && runID != "" {
		if _, runErr := s.Reader.GetRun(ctx, tenantID, runID); runErr != nil {
			return runErr
		}
	}
	return s.blamePage(ctx, err, tenantID, sessionID, pg)
}

func (s *approvalService) GetApproval(ctx context.Context, req *connect.Request[agentdv1.GetApprovalRequest]) (*connect.Response[agentdv1.GetApprovalResponse], error) {
	id, err := parseID("approval_id", req.Msg.GetApprovalId())
	if err != nil {
		return nil, err
	}
	p := principalOf(ctx)
	a, err := s.Reader.GetApproval(ctx, p.tenantID, id)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.GetApprovalResponse{Approval: wireApproval(p)(a)}), nil
}

func (s *approvalService) DecideApproval(ctx context.Context, req *connect.Request[agentdv1.DecideApprovalRequest]) (*connect.Response[agentdv1.DecideApprovalResponse], error) {
	m := req.Msg
	id, err := parseID("approval_id", m.GetApprovalId())
	if err != nil {
		return nil, err
	}
	p := principalOf(ctx)
	cmd := loop.DecideApproval{
		TenantID: p.tenantID, ApprovalID: id, Reason: m.GetReason(), Actor: p.actor,
		ArgumentsSHA256: strings.ToLower(m.GetArgumentsSha256()), Sanitized: proseRepaired(ctx),
	}
	if err := checkDecision(m, &cmd); err != nil {
		return nil, err
	}
	if err := checkLength("reason", m.GetReason(), maxReason); err != nil {
		return nil, err
	}
	// Reading first hides the approvals of deleted sessions.
	if _, err := s.Reader.GetApproval(ctx, p.tenantID, id); err != nil {
		return nil, err
	}
	if _, err := s.Commands.DecideApproval(ctx, cmd); err != nil {
		return nil, err
	}
	a, err := s.Reader.GetApproval(ctx, p.tenantID, id)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.DecideApprovalResponse{Approval: wireApproval(p)(a)}), nil
}
