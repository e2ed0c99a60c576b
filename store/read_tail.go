package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
)

// selectTail reads the parts of the first message only.
const selectTail = `
	WITH asked AS (
		SELECT m.role, r.agent, f.position
		FROM agentd.messages AS m
		JOIN agentd.sessions AS s ON s.id = m.session_id AND s.deleted_at IS NULL
		LEFT JOIN agentd.runs AS r ON r.id = m.run_id
		JOIN agentd.messages AS f ON f.id = CASE m.role WHEN 'user' THEN m.id ELSE r.message_id END AND f.replaced_seq IS NULL
		WHERE m.id = $3 AND m.session_id = $2 AND m.tenant_id = $1 AND m.replaced_seq IS NULL AND NOT m.enqueued
	)
	SELECT m.id::text, a.role, a.agent, CASE WHEN m.position = a.position THEN m.parts END AS parts
	FROM asked AS a
	JOIN agentd.messages AS m ON m.session_id = $2 AND m.position >= a.position AND m.replaced_seq IS NULL AND NOT m.enqueued
	ORDER BY m.position`

// Tail implements [loop.Log].
func (s *Store) Tail(ctx context.Context, tenantID, sessionID, messageID string) (loop.Tail, error) {
	session, ok := canonicalID(sessionID)
	message, ok2 := canonicalID(messageID)
	if !ok || !ok2 || !storable(tenantID) {
		return loop.Tail{}, loop.ErrNotFound
	}
	var t loop.Tail
	rows, _ := s.pool.Query(ctx, selectTail, tenantID, session, message) // rows has the error
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var id string
		var agent *string
		var parts []byte
		if err := row.Scan(&id, &t.Role, &agent, &parts); err != nil {
			return struct{}{}, err
		}
		if t.Agent = orZero(agent); len(t.MessageIDs) == 0 {
			var first hooks.Message
			if err := json.Unmarshal(parts, &first.Parts); err != nil {
				return struct{}{}, fmt.Errorf("parts of message %s: %w", id, err)
			}
			t.Text = first.Text()
		}
		t.MessageIDs = append(t.MessageIDs, id)
		return struct{}{}, nil
	})
	switch {
	case err != nil:
		return loop.Tail{}, failed("read the end of the conversation", err)
	case len(t.MessageIDs) == 0:
		return loop.Tail{}, loop.ErrNotFound
	}
	return t, nil
}
