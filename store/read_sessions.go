package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
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
	Title       *string
	UserID      *string
	Metadata    map[string]string
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
		Title:       orZero(r.Title),
		User:        orZero(r.UserID),
		Metadata:    r.Metadata,
		CreatedAt:   r.CreatedAt.UTC(),
		UpdatedAt:   r.UpdatedAt.UTC(),
		LastSeq:     r.LastSeq,
		ActiveRunID: orZero(r.ActiveRunID),
	}
}

const selectSession = `
	SELECT s.id::text AS id, s.tenant_id, s.external_id, s.title, s.user_id, nullif(s.metadata, '{}') AS metadata, s.created_at, s.updated_at, s.last_seq, r.id::text AS active_run_id
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

// ListSessions returns a page of those of the tenant's sessions that pass the
// filter, the newest first. They are in order of creation, which nothing
// changes: while sessions come, go and are written to, page after page shows
// each that was there all the time once. A page after something that never was
// a session of the tenant is [loop.ErrNotFound]; one that was deleted since, or
// does not pass the filter any more, keeps its place.
func (s *Store) ListSessions(ctx context.Context, tenantID string, filter loop.SessionFilter, page loop.Page) ([]loop.SessionInfo, error) {
	if err := checkFilter(filter); err != nil {
		return nil, err
	}
	if !storable(tenantID) {
		return nil, nil
	}
	query, args := selectSession, []any{tenantID, pageLimit(page.Limit)}
	and := func(condition string, arg any) {
		args = append(args, arg)
		query += ` AND ` + strings.ReplaceAll(condition, "$", "$"+strconv.Itoa(len(args)))
	}
	if filter.User != "" {
		and(`s.user_id = $`, cleaned(filter.User))
	}
	for _, word := range strings.Fields(searchable(cleaned(filter.Query))) {
		and(`strpos(s.title_search, $) > 0`, word)
	}
	if len(filter.Metadata) > 0 {
		wanted := map[string]string{}
		for k, v := range filter.Metadata {
			wanted[cleaned(k)] = cleaned(v)
		}
		and(`s.metadata <> '{}' AND s.metadata @> $::jsonb`, wanted)
	}
	if filter.ActiveOnly {
		query += ` AND r.id IS NOT NULL`
	}
	if page.After != "" {
		id, at, err := s.sessionCursor(ctx, tenantID, page.After)
		if err != nil {
			return nil, failed("list sessions", err)
		}
		args = append(args, at, id)
		query += fmt.Sprintf(` AND (s.created_at, s.id) < ($%d, $%d)`, len(args)-1, len(args))
	}
	rows, _ := s.pool.Query(ctx, query+` ORDER BY s.created_at DESC, s.id DESC LIMIT $2`, args...) // rows has the error
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

func checkFilter(f loop.SessionFilter) error {
	if n := utf8.RuneCountInString(f.Query); n > loop.MaxTitle {
		return &loop.InvalidError{Field: "query", Problem: fmt.Sprintf("has %d characters: send at most %d", n, loop.MaxTitle)}
	}
	if n := len(f.Metadata); n > loop.MaxMetadataKeys {
		return &loop.InvalidError{Field: "metadata", Problem: fmt.Sprintf("has %d keys: send at most %d", n, loop.MaxMetadataKeys)}
	}
	return nil
}

// cleaned is text as it would have been stored.
func cleaned(text string) string {
	text, _ = event.CleanText(text)
	return text
}

// sessionCursor finds the place of a session that ended a page. It may have been
// deleted since.
func (s *Store) sessionCursor(ctx context.Context, tenantID, after string) (id string, at time.Time, err error) {
	id, ok := canonicalID(after)
	if !ok {
		return "", at, loop.ErrNotFound
	}
	err = s.pool.QueryRow(ctx, `SELECT created_at FROM agentd.sessions WHERE id = $1 AND tenant_id = $2`, id, tenantID).Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) {
		err = loop.ErrNotFound
	}
	return id, at, err
}
