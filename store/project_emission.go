package store

// emissionRow is an emission of the log, which is its whole content: the row adds
// the transaction that stored it.
type emissionRow struct{ seq int64 }

const insertEmissions = `
INSERT INTO agentd.emission_order (session_id, seq, tenant_id, xid)
SELECT s.id, c.seq, s.tenant_id, pg_catalog.pg_current_xact_id()
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS c (session_id, append_id, seq)
` + ownSession

func emissionArgs(rows []row[emissionRow]) []any {
	sessions, appends := owners(rows)
	return []any{sessions, appends, column(rows, func(e *emissionRow) int64 { return e.seq })}
}
