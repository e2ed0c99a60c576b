package api

import (
	"context"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop"
)

// ledgerService implements agentd.v1.LedgerService.
type ledgerService struct{ *server }

var _ agentdv1connect.LedgerServiceHandler = (*ledgerService)(nil)

func (s *ledgerService) ListDecisions(ctx context.Context, req *connect.Request[agentdv1.ListDecisionsRequest]) (*connect.Response[agentdv1.ListDecisionsResponse], error) {
	m, tenantID := req.Msg, principalOf(ctx).tenantID
	var (
		filter loop.DecisionFilter
		err    error
	)
	switch of := m.GetOf().(type) {
	case *agentdv1.ListDecisionsRequest_SessionId:
		filter.SessionID, err = parseID("session_id", of.SessionId)
	case *agentdv1.ListDecisionsRequest_RunId:
		filter.RunID, err = parseID("run_id", of.RunId)
	default:
		err = invalid("run_id", "is empty, and so is session_id: send one of them")
	}
	if err != nil {
		return nil, err
	}
	pg, err := pageOf(m.GetPageSize(), m.GetPageToken(), defaultEventsPage, maxEventsPage)
	if err != nil {
		return nil, err
	}
	list, err := s.Reader.ListDecisions(ctx, tenantID, filter, pg)
	if err != nil {
		return nil, s.blamePageOfRun(ctx, err, tenantID, filter.SessionID, filter.RunID, pg)
	}
	page, next := cut(list, pg, func(d loop.DecisionInfo) string { return d.ID }, wireDecision)
	return connect.NewResponse(&agentdv1.ListDecisionsResponse{Decisions: page, NextPageToken: next}), nil
}
