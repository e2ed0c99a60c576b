package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// requestRow is what a key stands for; Seq is nil when it stands for nothing.
type requestRow struct {
	Seq                *int64  `db:"seq"`
	RunID              *string `db:"run_id"`
	MessageID          *string `db:"message_id"`
	AssistantMessageID *string `db:"assistant_message_id"`
	SHA256             *string `db:"request_sha256"`
	Reply              *string `db:"reply"`
	Position           *int64  `db:"position"`
}

// The newest use counts, since a key may be used again when it has run out.
const selectRequest = `
	SELECT q.seq, q.run_id, q.message_id, q.assistant_message_id, q.request_sha256, q.reply, q.position
	FROM agentd.sessions AS s
	LEFT JOIN LATERAL (
		(SELECT r.created_seq AS seq, r.id::text AS run_id, r.message_id::text, r.assistant_message_id::text, r.request_sha256,
			NULL AS reply, m.position
		FROM agentd.runs AS r
		LEFT JOIN agentd.messages AS m ON m.id = r.message_id AND m.session_id = r.session_id
		WHERE r.session_id = s.id AND r.idempotency_key = $3 AND r.created_at > agentd.clock() - interval '24 hours'
		ORDER BY r.created_seq DESC
		LIMIT 1)
		UNION ALL
		(SELECT e.seq, NULL, NULL, NULL, e.payload ->> 'request_sha256', coalesce(e.payload ->> 'reply', ''), e.seq
		FROM agentd.events AS e
		WHERE e.session_id = s.id AND e.type = 'input.handled' AND e.payload ->> 'idempotency_key' = $3
			AND e.at > agentd.clock() - interval '24 hours'
		ORDER BY e.seq DESC
		LIMIT 1)
		ORDER BY seq DESC
		LIMIT 1) AS q ON true
	WHERE s.id = $1 AND s.tenant_id = $2`

// Request implements [loop.Log].
func (s *Store) Request(ctx context.Context, tenantID, sessionID, key string) (loop.Request, bool, error) {
	id, ok := canonicalID(sessionID)
	if !ok || !storable(tenantID) {
		return loop.Request{}, false, loop.ErrNotFound
	}
	key, _ = event.CleanText(key)
	rows, _ := s.pool.Query(ctx, selectRequest, id, tenantID, key) // rows has the error
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[requestRow])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return loop.Request{}, false, loop.ErrNotFound
	case err != nil:
		return loop.Request{}, false, failed("look up request", err)
	case r.Seq == nil:
		return loop.Request{}, false, nil
	}
	return loop.Request{
		Handled: r.RunID == nil, Reply: orZero(r.Reply),
		RunID: orZero(r.RunID), MessageID: orZero(r.MessageID), AssistantMessageID: orZero(r.AssistantMessageID),
		RequestSHA256: orZero(r.SHA256), Seq: max(orZero(r.Position)-1, 0),
	}, true, nil
}
