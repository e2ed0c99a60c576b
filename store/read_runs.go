package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
)

// runRow is a run with the sums of its turns.
type runRow struct {
	ID                 string
	TenantID           string
	SessionID          string
	Agent              string
	Status             string
	Reason             *string
	Error              *string
	MessageID          string
	AssistantMessageID string
	CancelRequested    bool
	Ahead              int
	Turns              int
	InputTokens        int64
	OutputTokens       int64
	CostMicros         int64
	CreatedAt          time.Time
	StartedAt          *time.Time
	EndedAt            *time.Time
	EndedSeq           *int64
	Retries            int
}

func (r runRow) info() loop.RunInfo {
	return loop.RunInfo{
		ID:                 r.ID,
		TenantID:           r.TenantID,
		SessionID:          r.SessionID,
		Agent:              r.Agent,
		Status:             loop.RunStatus(r.Status),
		Reason:             orZero(r.Reason),
		Error:              orZero(r.Error),
		MessageID:          r.MessageID,
		AssistantMessageID: r.AssistantMessageID,
		CancelRequested:    r.CancelRequested,
		Ahead:              r.Ahead,
		Turns:              r.Turns,
		InputTokens:        r.InputTokens,
		OutputTokens:       r.OutputTokens,
		CostMicros:         r.CostMicros,
		CreatedAt:          r.CreatedAt.UTC(),
		StartedAt:          inUTC(r.StartedAt),
		EndedAt:            inUTC(r.EndedAt),
		EndedSeq:           orZero(r.EndedSeq),
		Retries:            r.Retries,
	}
}

func inUTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	utc := t.UTC()
	return &utc
}

// selectRuns cuts the page first, so that only its runs have their turns summed.
// The condition is on the run r; $1 is the tenant and $2 the limit.
func selectRuns(condition string) string {
	return `
		SELECT r.id::text AS id, r.tenant_id, r.session_id::text AS session_id, r.agent, r.status, r.reason, r.error,
			r.message_id::text AS message_id, r.assistant_message_id::text AS assistant_message_id,
			r.cancel_requested_at IS NOT NULL AS cancel_requested,
			CASE r.status WHEN 'enqueued' THEN (
				SELECT count(*) FROM agentd.messages AS m JOIN agentd.messages AS q ON q.session_id = m.session_id AND q.position < m.position
				WHERE m.id = r.message_id AND q.enqueued AND q.replaced_seq IS NULL)
			ELSE 0 END AS ahead,
			t.turns, t.input_tokens, t.output_tokens, t.cost_micros, r.created_at, r.started_at, r.ended_at, r.ended_seq, r.retries
		FROM (
			SELECT r.id, r.tenant_id, r.session_id, r.agent, r.status, r.reason, r.error, r.message_id,
				r.assistant_message_id, r.cancel_requested_at, r.created_at, r.started_at, r.ended_at, r.ended_seq, r.retries
			FROM agentd.runs r
			JOIN agentd.sessions s ON s.id = r.session_id AND s.deleted_at IS NULL
			WHERE r.tenant_id = $1` + condition + `
			ORDER BY r.created_at DESC, r.id DESC LIMIT $2) r
		CROSS JOIN LATERAL (
			SELECT count(*) AS turns, coalesce(sum(input_tokens), 0)::bigint AS input_tokens,
				coalesce(sum(output_tokens), 0)::bigint AS output_tokens,
				coalesce(sum(cost_micros), 0)::bigint AS cost_micros
			FROM agentd.turns WHERE run_id = r.id) t
		ORDER BY r.created_at DESC, r.id DESC`
}

// GetRun returns a run; [loop.ErrNotFound] if the tenant has none of that id,
// or if its session was deleted.
func (s *Store) GetRun(ctx context.Context, tenantID, runID string) (loop.RunInfo, error) {
	id, ok := canonicalID(runID)
	if !ok || !storable(tenantID) {
		return loop.RunInfo{}, loop.ErrNotFound
	}
	rows, err := s.pool.Query(ctx, selectRuns(` AND r.id = $3`), tenantID, 1, id)
	if err != nil {
		return loop.RunInfo{}, failed("get run", err)
	}
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[runRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return loop.RunInfo{}, loop.ErrNotFound
	}
	if err != nil {
		return loop.RunInfo{}, failed("get run", err)
	}
	return row.info(), nil
}

// ListRuns returns a page of the runs of a session, or with sessionID "" of
// all the tenant's sessions, the newest first. A session that the tenant does
// not see, and a page after something that never was in the list, are
// [loop.ErrNotFound].
func (s *Store) ListRuns(ctx context.Context, tenantID, sessionID string, page loop.Page) ([]loop.RunInfo, error) {
	if !storable(tenantID) {
		return nil, loop.ErrNotFound
	}
	condition, args := "", []any{tenantID, pageLimit(page.Limit)}
	if sessionID != "" {
		id, err := s.visibleSession(ctx, tenantID, sessionID)
		if err != nil {
			return nil, failed("list runs", err)
		}
		args = append(args, id)
		condition += ` AND r.session_id = $3`
	}
	if page.After != "" {
		at, id, err := s.runCursor(ctx, tenantID, sessionID, page.After)
		if err != nil {
			return nil, failed("list runs", err)
		}
		condition += fmt.Sprintf(` AND (r.created_at, r.id) < ($%d, $%d)`, len(args)+1, len(args)+2)
		args = append(args, at, id)
	}
	rows, err := s.pool.Query(ctx, selectRuns(condition), args...)
	if err != nil {
		return nil, failed("list runs", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[runRow])
	if err != nil {
		return nil, failed("list runs", err)
	}
	infos := make([]loop.RunInfo, len(found))
	for i, row := range found {
		infos[i] = row.info()
	}
	return infos, nil
}

func (s *Store) runCursor(ctx context.Context, tenantID, sessionID, after string) (at time.Time, id string, err error) {
	id, ok := canonicalID(after)
	if !ok {
		return at, "", loop.ErrNotFound
	}
	var of string
	err = s.pool.QueryRow(ctx, `SELECT created_at, session_id::text FROM agentd.runs WHERE id = $1 AND tenant_id = $2`, id, tenantID).Scan(&at, &of)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && sessionID != "" && sessionID != of {
		return at, "", loop.ErrNotFound
	}
	return at, id, err
}

// visibleSession returns the canonical id of a session that the tenant sees,
// or [loop.ErrNotFound].
func (s *Store) visibleSession(ctx context.Context, tenantID, sessionID string) (string, error) {
	id, ok := canonicalID(sessionID)
	if !ok || !storable(tenantID) {
		return "", loop.ErrNotFound
	}
	err := s.pool.QueryRow(ctx, `
		SELECT id::text FROM agentd.sessions
		WHERE id = $1 AND tenant_id = $2 AND deleted_at IS NULL`, id, tenantID).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", loop.ErrNotFound
	}
	return id, err
}
