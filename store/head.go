package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// headRow is where a session stands. One statement has one snapshot, so the
// active run is the one at last_seq.
type headRow struct {
	ID          string            `db:"id"`
	TenantID    string            `db:"tenant_id"`
	ExternalID  *string           `db:"external_id"`
	Title       *string           `db:"title"`
	UserID      *string           `db:"user_id"`
	Metadata    map[string]string `db:"metadata"`
	LastSeq     int64             `db:"last_seq"`
	Epoch       int64             `db:"run_epoch"`
	Deleted     bool              `db:"deleted"`
	ActiveRunID *string           `db:"active_run_id"`
	LastRunID   *string           `db:"last_run_id"`
	Waiting     bool              `db:"waiting"`
	LedgerSeq   int64             `db:"ledger_seq"`
	LedgerHead  []byte            `db:"ledger_head"`
}

func (r headRow) ledger() loop.LedgerHead {
	h := loop.LedgerHead{Seq: r.LedgerSeq}
	copy(h.Hash[:], r.LedgerHead) // the column has 32 bytes or none
	return h
}

const selectHead = `
	SELECT s.id::text, s.tenant_id, s.external_id, s.title, s.user_id, nullif(s.metadata, '{}') AS metadata, s.last_seq, s.run_epoch,
		s.deleted_at IS NOT NULL AS deleted, r.id::text AS active_run_id,
		-- It said what was said last.
		(SELECT l.run_id::text FROM agentd.messages AS l WHERE l.session_id = s.id AND l.run_id IS NOT NULL AND NOT l.enqueued ORDER BY l.position DESC LIMIT 1) AS last_run_id,
		r.status IS NOT DISTINCT FROM 'waiting' AS waiting, s.ledger_seq, s.ledger_head
	FROM agentd.sessions AS s
	LEFT JOIN agentd.runs AS r ON r.session_id = s.id AND r.status IN ('queued', 'running', 'waiting')
	WHERE s.tenant_id = $1 AND `

// Head implements [loop.Log].
func (s *Store) Head(ctx context.Context, tenantID, sessionID string) (loop.Head, error) {
	id, ok := canonicalID(sessionID)
	if !ok {
		return loop.Head{}, loop.ErrNotFound
	}
	return s.head(ctx, selectHead+`s.id = $2`, tenantID, id)
}

// HeadByExternalID implements [loop.Log].
func (s *Store) HeadByExternalID(ctx context.Context, tenantID, externalID string) (loop.Head, error) {
	if !storable(externalID) {
		return loop.Head{}, loop.ErrNotFound
	}
	return s.head(ctx, selectHead+`s.external_id = $2 AND s.deleted_at IS NULL`, tenantID, externalID)
}

func (s *Store) head(ctx context.Context, query, tenantID, id string) (loop.Head, error) {
	if !storable(tenantID) {
		return loop.Head{}, loop.ErrNotFound
	}
	rows, _ := s.pool.Query(ctx, query, tenantID, id) // rows has the error
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[headRow])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return loop.Head{}, loop.ErrNotFound
	case err != nil:
		return loop.Head{}, failed("read head", err)
	}
	return loop.Head{
		TenantID: r.TenantID, SessionID: r.ID, ExternalID: orZero(r.ExternalID),
		Title: orZero(r.Title), User: orZero(r.UserID), Metadata: r.Metadata,
		LastSeq: r.LastSeq, Epoch: r.Epoch, Deleted: r.Deleted,
		ActiveRunID: orZero(r.ActiveRunID), LastRunID: orZero(r.LastRunID), Waiting: r.Waiting,
		Ledger: r.ledger(),
	}, nil
}

// storable says that a text can be compared with a column: what Postgres
// cannot store, it has not stored.
func storable(text string) bool {
	_, changed := event.CleanText(text)
	return !changed
}
