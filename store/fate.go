package store

import (
	"bytes"
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// fate is what the database says of a request that a group did not write.
type fate int

const (
	// fateOpen: nothing stands against the append; its row was locked.
	fateOpen fate = iota
	// fateMine: an earlier attempt of the same append was committed.
	fateMine
	fateConflict
	fateLeaseLost
	fateNotFound
	// fateExpired: there is no time any more to answer the approval.
	fateExpired
)

// standing is where the session of a request stands, from one snapshot.
type standing struct {
	Ordinal  int64       `db:"n"`
	TenantOK bool        `db:"tenant_ok"`
	Owner    pgtype.Text `db:"owner"`
	LastSeq  pgtype.Int8 `db:"last_seq"`
	Epoch    pgtype.Int8 `db:"run_epoch"`
	// Ledger is where its ledger stands.
	LedgerSeq  pgtype.Int8 `db:"ledger_seq"`
	LedgerHead []byte      `db:"ledger_head"`
	// InTime is false if the approval that it answers has expired.
	InTime bool `db:"in_time"`
	// AppendID is the append that wrote the event at expected+1.
	AppendID pgtype.UUID `db:"append_id"`
}

// fates finds out what became of requests that were not written. A row that
// is locked says enough once it has moved on: its seq and epoch only grow.
func fates(ctx context.Context, conn *pgxpool.Conn, requests []*request) ([]fate, error) {
	rows, _ := conn.Query(ctx, `
		SELECT c.n, t.id IS NOT NULL AS tenant_ok, s.tenant_id AS owner, s.last_seq, s.run_epoch, s.ledger_seq, coalesce(s.ledger_head, '`+zeroBytea+`') AS ledger_head, e.append_id,
			`+inTime+` AS in_time
		FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::uuid[]) WITH ORDINALITY AS c (id, tenant_id, expected, answers, n)
		LEFT JOIN agentd.tenants AS t ON t.id = c.tenant_id
		LEFT JOIN agentd.sessions AS s ON s.id = c.id
		LEFT JOIN agentd.events AS e ON e.session_id = c.id AND e.seq = c.expected + 1`,
		pick(requests, func(r *request) pgtype.UUID { return r.sessionID }),
		pick(requests, func(r *request) string { return r.append.TenantID }),
		pick(requests, func(r *request) int64 { return r.append.Expected }),
		pick(requests, func(r *request) pgtype.UUID { return r.answers })) // rows has the error
	standings, err := pgx.CollectRows(rows, pgx.RowToStructByName[standing])
	if err != nil {
		return nil, err
	}
	out := make([]fate, len(requests))
	for _, st := range standings {
		out[st.Ordinal-1] = st.fate(requests[st.Ordinal-1])
	}
	return out, nil
}

func (st standing) fate(r *request) fate {
	switch {
	case !st.TenantOK:
		return fateNotFound
	case !st.Owner.Valid && r.creates:
		return fateConflict // its external id is taken
	case !st.Owner.Valid || st.Owner.String != r.append.TenantID:
		return fateNotFound
	case st.AppendID == r.id:
		return fateMine
	case r.append.Epoch != 0 && st.Epoch.Int64 > r.append.Epoch:
		return fateLeaseLost
	case st.LastSeq.Int64 != r.append.Expected || r.append.Epoch != 0 && st.Epoch.Int64 != r.append.Epoch:
		return fateConflict
	case r.ledgerFrom().Valid && (r.ledgerFrom() != st.LedgerSeq || !bytes.Equal(r.ledgerPrev(), st.LedgerHead)):
		return fateConflict // at its seq, so it was planned on no state that ever was
	case !st.InTime:
		return fateExpired
	}
	return fateOpen
}
