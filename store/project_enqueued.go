package store

import "github.com/jackc/pgx/v5/pgtype"

// joinedRow is a run that was enqueued and begins: its message joins the
// conversation.
type joinedRow struct {
	runID pgtype.UUID
	seq   int64
}

// putFirst gives an enqueued message, which is of the same append as its run, its
// position among the others: before them, and before those that were put there.
func (p *projector) putFirst(message pgtype.UUID) {
	for i := range p.messages {
		if m := &p.messages[i]; m.id == message && m.enqueued {
			m.position = bigint(-m.seq)
		}
	}
}

// The run may be of the same append.
const joinMessages = `
UPDATE agentd.messages AS m SET position = c.seq, enqueued = false
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[]) AS c (session_id, append_id, run_id, seq)
` + ownSession + `
JOIN agentd.runs AS r ON r.id = c.run_id AND r.session_id IS NOT DISTINCT FROM s.id
WHERE m.id = r.message_id AND m.session_id IS NOT DISTINCT FROM s.id AND m.enqueued`

func joinedArgs(rows []row[joinedRow]) []any {
	sessions, appends := owners(rows)
	return []any{
		sessions, appends,
		column(rows, func(j *joinedRow) pgtype.UUID { return j.runID }),
		column(rows, func(j *joinedRow) int64 { return j.seq }),
	}
}
