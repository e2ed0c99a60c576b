package api

import (
	"context"
	"slices"

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
	res := &agentdv1.ListDecisionsResponse{Decisions: page, NextPageToken: next}
	if m.GetWithHooks() {
		if res.Hooks, err = s.hooksOf(ctx, page); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(res), nil
}

// hookName is a hook as a decision names it.
type hookName struct{ set, gate, id, version, digest string }

// hooksOf finds the hooks that made decisions, and no others: what else is in
// their sets may be about other tenants.
func (s *ledgerService) hooksOf(ctx context.Context, decisions []*agentdv1.Decision) ([]*agentdv1.Hook, error) {
	decided, digests := map[hookName]bool{}, []string{}
	for _, d := range decisions {
		decided[hookName{d.GetHookSetDigest(), d.GetGate(), d.GetHookId(), d.GetHookVersion(), d.GetHookDigest()}] = true
		if d.GetHookSetDigest() != "" && !slices.Contains(digests, d.GetHookSetDigest()) {
			digests = append(digests, d.GetHookSetDigest())
		}
	}
	sets, err := s.Reader.HookSets(ctx, digests)
	if err != nil {
		return nil, err
	}
	var list []*agentdv1.Hook
	for _, set := range sets {
		for _, r := range set.Hooks {
			name := hookName{set.Digest, string(r.Gate), r.ID, r.Version, r.Digest}
			if decided[name] {
				delete(decided, name)
				list = append(list, wireHook(set.Digest, r))
			}
		}
	}
	return list, nil
}
