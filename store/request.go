package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// requestRow is what a key stands for; Seq is nil when it stands for nothing.
// It has a run, or the event that says what else became of the message.
type requestRow struct {
	Seq                *int64  `db:"seq"`
	RunID              *string `db:"run_id"`
	MessageID          *string `db:"message_id"`
	AssistantMessageID *string `db:"assistant_message_id"`
	SHA256             *string `db:"request_sha256"`
	Status             *string `db:"status"`
	FirstSeq           *int64  `db:"first_seq"`
	Type               *string `db:"type"`
	Payload            []byte  `db:"payload"`
}

// The newest use counts, since a key may be used again when it has run out.
const selectRequest = `
	SELECT q.seq, q.run_id, q.message_id, q.assistant_message_id, q.request_sha256, q.status, q.first_seq, q.type, q.payload
	FROM agentd.sessions AS s
	LEFT JOIN LATERAL (
		(SELECT r.created_seq AS seq, r.id::text AS run_id, r.message_id::text, r.assistant_message_id::text, r.request_sha256, r.status,
			(SELECT min(f.seq) FROM agentd.events AS f WHERE f.run_id = r.id AND f.type <> 'assistant.delta') AS first_seq,
			NULL AS type, NULL::json AS payload
		FROM agentd.runs AS r
		WHERE r.session_id = s.id AND r.idempotency_key = $3 AND r.created_at > agentd.clock() - interval '24 hours'
		ORDER BY r.created_seq DESC
		LIMIT 1)
		UNION ALL
		(SELECT e.seq, NULL, NULL, NULL, NULL, NULL, e.seq, e.type, e.payload
		FROM agentd.events AS e
		WHERE e.session_id = s.id AND e.type IN ('input.handled', 'input.blocked', 'input.rejected')
			AND e.payload ->> 'idempotency_key' = $3 AND e.at > agentd.clock() - interval '24 hours'
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
	out, err := r.request()
	if err != nil {
		return loop.Request{}, false, failed("look up request", err)
	}
	return out, true, nil
}

func (r requestRow) request() (loop.Request, error) {
	out := loop.Request{
		RunID: orZero(r.RunID), MessageID: orZero(r.MessageID), AssistantMessageID: orZero(r.AssistantMessageID),
		Enqueued: orZero(r.Status) == string(loop.RunEnqueued), RequestSHA256: orZero(r.SHA256), Seq: max(orZero(r.FirstSeq)-1, 0),
	}
	if r.Type == nil {
		return out, nil
	}
	p, err := event.Decode(event.Event{Type: event.Type(*r.Type), Payload: r.Payload})
	switch p := p.(type) {
	case event.InputHandled:
		out.Handled, out.Reply, out.RequestSHA256 = true, p.Reply, p.RequestSHA256
	case event.InputBlocked:
		out.Blocked, out.RequestSHA256 = &loop.BlockedError{ReasonCode: p.ReasonCode, Reason: p.Reason}, p.RequestSHA256
	case event.InputRejected:
		out.Rejected, out.RequestSHA256 = loop.Busy(p), p.RequestSHA256
	}
	return out, err
}
