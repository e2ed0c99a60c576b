package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
)

type messageInfoRow struct {
	ID          string
	RunID       *string
	TurnNo      *int
	Role        string
	Parts       []byte
	Partial     bool
	Position    int64
	CreatedAt   time.Time
	ReplacedSeq *int64
	Enqueued    bool
}

func (r messageInfoRow) info() (loop.MessageInfo, error) {
	m := loop.MessageInfo{
		Message: hooks.Message{
			ID:       r.ID,
			RunID:    orZero(r.RunID),
			Role:     hooks.Role(r.Role),
			Partial:  r.Partial,
			Position: r.Position,
		},
		Turn:        orZero(r.TurnNo),
		CreatedAt:   r.CreatedAt.UTC(),
		ReplacedSeq: orZero(r.ReplacedSeq),
		Enqueued:    r.Enqueued,
	}
	if m.Enqueued {
		m.Position = 0
	}
	if err := json.Unmarshal(r.Parts, &m.Parts); err != nil {
		return m, fmt.Errorf("parts of message %s: %w", r.ID, err)
	}
	return m, nil
}

// ListMessages returns a page of what was said in a session, in order of
// position, and behind it what is enqueued, the next one first. A session that the tenant does not see, and a page after a message
// that is not in it, are [loop.ErrNotFound]; one that was replaced since it
// ended the page before keeps its place.
func (s *Store) ListMessages(ctx context.Context, tenantID, sessionID string, filter loop.MessageFilter, page loop.Page) ([]loop.MessageInfo, error) {
	id, err := s.visibleSession(ctx, tenantID, sessionID)
	if err != nil {
		return nil, failed("list messages", err)
	}
	after, inQueue, err := s.messagePosition(ctx, id, page.After)
	if err != nil {
		return nil, failed("list messages", err)
	}
	// Each half goes by an index of its own.
	rows, err := s.pool.Query(ctx, `
		(SELECT `+messageColumns+`, false AS enqueued
		FROM agentd.messages
		WHERE session_id = $1 AND tenant_id = $2 AND position > $3 AND NOT $6 AND ($5 OR replaced_seq IS NULL)
			AND (NOT enqueued OR replaced_seq IS NOT NULL)
		ORDER BY position LIMIT $4)
		UNION ALL
		(SELECT `+messageColumns+`, true AS enqueued
		FROM agentd.messages
		WHERE session_id = $1 AND tenant_id = $2 AND (NOT $6 OR position > $3) AND enqueued AND replaced_seq IS NULL
		ORDER BY position LIMIT $4)
		ORDER BY enqueued, position LIMIT $4`, id, tenantID, after, pageLimit(page.Limit), filter.Replaced, inQueue)
	if err != nil {
		return nil, failed("list messages", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[messageInfoRow])
	if err != nil {
		return nil, failed("list messages", err)
	}
	infos := make([]loop.MessageInfo, len(found))
	for i, row := range found {
		if infos[i], err = row.info(); err != nil {
			return nil, failed("list messages", err)
		}
	}
	return infos, nil
}

const messageColumns = `id::text AS id, run_id::text AS run_id, turn_no, role, parts, partial, position, created_at, replaced_seq`

// messagePosition is where a message stands: in the conversation, or in the
// queue behind it. It is 0 for "".
func (s *Store) messagePosition(ctx context.Context, sessionID, messageID string) (position int64, inQueue bool, err error) {
	if messageID == "" {
		return 0, false, nil
	}
	id, ok := canonicalID(messageID)
	if !ok {
		return 0, false, loop.ErrNotFound
	}
	err = s.pool.QueryRow(ctx, `
		SELECT position, enqueued AND replaced_seq IS NULL FROM agentd.messages
		WHERE id = $1 AND session_id = $2`, id, sessionID).Scan(&position, &inQueue)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, loop.ErrNotFound
	}
	return position, inQueue, err
}
