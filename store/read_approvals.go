package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Approval implements [loop.Log].
func (s *Store) Approval(ctx context.Context, tenantID, approvalID string) (sessionID, runID string, err error) {
	id, ok := canonicalID(approvalID)
	if !ok || !storable(tenantID) {
		return "", "", loop.ErrNotFound
	}
	err = s.pool.QueryRow(ctx, `
		SELECT a.session_id::text, a.run_id::text
		FROM agentd.approvals AS a
		JOIN agentd.sessions AS s ON s.id = a.session_id AND s.deleted_at IS NULL
		WHERE a.id = $1 AND a.tenant_id = $2`, id, tenantID).Scan(&sessionID, &runID)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", loop.ErrNotFound
	}
	if err != nil {
		return "", "", failed("find approval", err)
	}
	return sessionID, runID, nil
}

type approvalRow struct {
	ID              string
	TenantID        string
	SessionID       string
	RunID           string
	TurnNo          int
	CallID          string
	Kind            string
	Name            string
	Arguments       string
	ArgumentsSHA256 string `db:"arguments_sha256"`
	RequestedBy     string
	Reason          *string
	Status          string
	DecidedByKind   *string
	DecidedByID     *string
	DecisionReason  *string
	RequestedAt     time.Time
	DecidedAt       *time.Time
	EditedArguments *string
	EditedSHA256    *string `db:"edited_sha256"`
	ChangedFrom     *string
	Approvers       []string
	ExpiresAt       *time.Time
}

func (r approvalRow) info() loop.ApprovalInfo {
	i := loop.ApprovalInfo{
		ID: r.ID, TenantID: r.TenantID, SessionID: r.SessionID, RunID: r.RunID, Turn: r.TurnNo,
		CallID: r.CallID, Name: r.Name, Arguments: r.Arguments, ArgumentsSHA256: r.ArgumentsSHA256,
		RequestedBy: r.RequestedBy, Reason: orZero(r.Reason), DecisionReason: orZero(r.DecisionReason),
		DecidedBy:   event.Actor{Kind: event.ActorKind(orZero(r.DecidedByKind)), ID: orZero(r.DecidedByID)},
		RequestedAt: r.RequestedAt.UTC(), DecidedAt: inUTC(r.DecidedAt),
		EditedArguments: r.EditedArguments, EditedSHA256: orZero(r.EditedSHA256), ChangedFrom: r.ChangedFrom,
		Approvers: r.Approvers, ExpiresAt: inUTC(r.ExpiresAt),
	}
	if r.Kind != kindOfCall {
		i.Kind = event.ApprovalKind(r.Kind)
	}
	if r.Status != approvalPending {
		i.Decision = event.ApprovalDecision(r.Status)
	}
	return i
}

const selectApprovals = `
	SELECT a.id::text AS id, a.tenant_id, a.session_id::text AS session_id, a.run_id::text AS run_id, a.turn_no, a.call_id::text AS call_id,
		a.kind, a.name, a.arguments, a.arguments_sha256, a.requested_by, a.reason, a.status,
		a.decided_by_kind, a.decided_by_id, a.decision_reason, a.requested_at, a.decided_at,
		a.edited_arguments, a.edited_sha256, a.changed_from, a.approvers, a.expires_at
	FROM agentd.approvals a
	JOIN agentd.sessions s ON s.id = a.session_id AND s.deleted_at IS NULL
	WHERE a.tenant_id = $1`

// GetApproval returns an approval; [loop.ErrNotFound] if the tenant has none of
// that id, or if its session was deleted.
func (s *Store) GetApproval(ctx context.Context, tenantID, approvalID string) (loop.ApprovalInfo, error) {
	id, ok := canonicalID(approvalID)
	if !ok || !storable(tenantID) {
		return loop.ApprovalInfo{}, loop.ErrNotFound
	}
	rows, _ := s.pool.Query(ctx, selectApprovals+` AND a.id = $2`, tenantID, id) // rows has the error
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[approvalRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return loop.ApprovalInfo{}, loop.ErrNotFound
	}
	if err != nil {
		return loop.ApprovalInfo{}, failed("get approval", err)
	}
	return row.info(), nil
}

// ListApprovals returns a page of the tenant's approvals, the newest first. A
// session or run that the tenant does not see, and a page after something that
// is no approval of the tenant, are [loop.ErrNotFound].
func (s *Store) ListApprovals(ctx context.Context, tenantID string, filter loop.ApprovalFilter, page loop.Page) ([]loop.ApprovalInfo, error) {
	if !storable(tenantID) {
		return nil, loop.ErrNotFound
	}
	query, args := selectApprovals, []any{tenantID, pageLimit(page.Limit)}
	and := func(condition string, arg any) {
		args = append(args, arg)
		query += fmt.Sprintf(` AND `+condition, len(args))
	}
	if filter.PendingOnly {
		query += ` AND a.status = 'pending'`
	}
	if filter.SessionID != "" {
		id, err := s.visibleSession(ctx, tenantID, filter.SessionID)
		if err != nil {
			return nil, failed("list approvals", err)
		}
		and(`a.session_id = $%d`, id)
	}
	if filter.RunID != "" {
		id, _, err := s.visibleRun(ctx, tenantID, filter.RunID)
		if err != nil {
			return nil, failed("list approvals", err)
		}
		and(`a.run_id = $%d`, id)
	}
	if page.After != "" {
		id, ok := canonicalID(page.After)
		if !ok {
			return nil, loop.ErrNotFound
		}
		if _, _, err := s.Approval(ctx, tenantID, id); err != nil {
			return nil, failed("list approvals", err)
		}
		// An answer takes it off the list of pending ones; its place remains.
		and(`(a.requested_at, a.id) < (SELECT requested_at, id FROM agentd.approvals WHERE id = $%d)`, id)
	}
	rows, _ := s.pool.Query(ctx, query+` ORDER BY a.requested_at DESC, a.id DESC LIMIT $2`, args...) // rows has the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[approvalRow])
	if err != nil {
		return nil, failed("list approvals", err)
	}
	infos := make([]loop.ApprovalInfo, len(found))
	for i, row := range found {
		infos[i] = row.info()
	}
	return infos, nil
}

// visibleRun returns the canonical ids of a run that the tenant sees and of its
// session, or [loop.ErrNotFound].
func (s *Store) visibleRun(ctx context.Context, tenantID, runID string) (id, sessionID string, err error) {
	id, ok := canonicalID(runID)
	if !ok {
		return "", "", loop.ErrNotFound
	}
	err = s.pool.QueryRow(ctx, `
		SELECT r.id::text, r.session_id::text
		FROM agentd.runs AS r
		JOIN agentd.sessions AS s ON s.id = r.session_id AND s.deleted_at IS NULL
		WHERE r.id = $1 AND r.tenant_id = $2`, id, tenantID).Scan(&id, &sessionID)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", loop.ErrNotFound
	}
	return id, sessionID, err
}
