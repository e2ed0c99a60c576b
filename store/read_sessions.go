package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
)

const (
	defaultPage = 50
	maxPage     = 1000
)

func pageLimit(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return min(limit, maxPage)
}

// sessionRow is a session with its active run.
type sessionRow struct {
	ID          string
	TenantID    string
	ExternalID  *string
	CreatedAt   time.Time
	UpdatedAt   time.Time
	LastSeq     int64
	ActiveRunID *string
}

func (r sessionRow) info() loop.SessionInfo {
	return loop.SessionInfo{
		ID:          r.ID,
		TenantID:    r.TenantID,
		ExternalID:  orZero(r.ExternalID),
		CreatedAt:   r.CreatedAt.UTC(),
		UpdatedAt:   r.UpdatedAt.UTC(),
		LastSeq:     r.LastSeq,
		ActiveRunID: orZero(r.ActiveRunID),
	}
}

const selectSession = `
	SELECT s.id::text AS id, s.tenant_id, s.external_id, s.created_at, s.updated_at, s.last_seq, r.id::text AS active_run_id
	FROM agentd.sessions s
	LEFT JOIN agentd.runs r ON r.session_id = s.id AND r.status IN ('queued', 'running', 'waiting')
	WHERE s.tenant_id = $1 AND s.deleted_at IS NULL`

// GetSession returns the session with that id, or else the one to which the
// client gave it as its external id; [loop.ErrNotFound] if there is neither.
func (s *Store) GetSession(ctx context.Context, tenantID, idOrExternalID string) (loop.SessionInfo, error) {
	var id *string
	if canonical, ok := canonicalID(idOrExternalID); ok {
		id = &canonical
	}
	if !storable(idOrExternalID) || !storable(tenantID) {
		return loop.SessionInfo{}, loop.ErrNotFound
	}
	rows, err := s.pool.Query(ctx, selectSession+`
		AND (s.id = $2 OR s.external_id = $3)
		ORDER BY s.id = $2 DESC NULLS LAST LIMIT 1`, tenantID, id, idOrExternalID)
	if err != nil {
		return loop.SessionInfo{}, failed("get session", err)
	}
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[sessionRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return loop.SessionInfo{}, loop.ErrNotFound
	}
	if err != nil {
		return loop.SessionInfo{}, failed("get session", err)
	}
	return row.info(), nil
}

// ListSessions returns a page of the tenant's sessions, the newest first. A
// page after something that never was in the list is [loop.ErrNotFound].
func (s *Store) ListSessions(ctx context.Context, tenantID string, page loop.Page) ([]loop.SessionInfo, error) {
	if !storable(tenantID) {
		return nil, nil
	}
	query, args := selectSession, []any{tenantID, pageLimit(page.Limit)}
	if page.After != "" {
		id, ok := canonicalID(page.After)
		if !ok {
			return nil, loop.ErrNotFound
		}
		var at time.Time
		// The session may have been deleted since it ended the page before.
		err := s.pool.QueryRow(ctx, `SELECT created_at FROM agentd.sessions WHERE id = $1 AND tenant_id = $2`, id, tenantID).Scan(&at)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, loop.ErrNotFound
		}
		if err != nil {
			return nil, failed("list sessions", err)
		}
		query += ` AND (s.created_at, s.id) < ($3, $4)`
		args = append(args, at, id)
	}
	rows, err := s.pool.Query(ctx, query+` ORDER BY s.created_at DESC, s.id DESC LIMIT $2`, args...)
	if err != nil {
		return nil, failed("list sessions", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[sessionRow])
	if err != nil {
		return nil, failed("list sessions", err)
	}
	infos := make([]loop.SessionInfo, len(found))
	for i, row := range found {
		infos[i] = row.info()
	}
	return infos, nil
}
