package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrNoAnchor means that an export names no session: it proves nothing.
var ErrNoAnchor = errors.New("it names no session")

// CompareLedger holds the database against an export that was made earlier and
// kept where the owner of the database cannot reach it: each ledger must still
// have the exported head at its place, or have been purged with it. That finds
// what no other check can, a ledger that was written anew from its first row
// with everything that speaks of it. The lines of sessions are enough, the
// others are passed over. It returns how many ledgers were compared;
// [ErrNoAnchor] if that is none.
func CompareLedger(ctx context.Context, pool *pgxpool.Pool, export io.Reader, report func(LedgerProblem) error) (compared int64, err error) {
	lines := json.NewDecoder(export)
	for {
		var l sessionLine
		switch err := lines.Decode(&l); {
		case errors.Is(err, io.EOF) && compared == 0:
			return 0, fmt.Errorf("compare ledger: %w", ErrNoAnchor)
		case errors.Is(err, io.EOF):
			return compared, nil
		case err != nil:
			return compared, fmt.Errorf("compare ledger: read the export: %w", err)
		}
		if l.Kind != "session" {
			continue
		}
		compared++
		p, err := compareHead(ctx, pool, l)
		if err == nil && p != nil {
			err = report(*p)
		}
		if err != nil {
			return compared, fmt.Errorf("compare ledger: session %s: %w", l.SessionID, err)
		}
	}
}

// compareHead returns what is wrong, nil for nothing.
func compareHead(ctx context.Context, pool *pgxpool.Pool, l sessionLine) (*LedgerProblem, error) {
	seq, head := orZero(l.LedgerSeq), orZero(l.LedgerHead)
	if t := l.Tombstone; t != nil {
		seq, head = t.LedgerSeq, orZero(t.LedgerHead)
	}
	id, ok := canonicalID(l.SessionID)
	if !ok {
		return nil, fmt.Errorf("%q is no id", l.SessionID)
	}
	var exists, purged bool
	var lastSeq int64
	var hash, last *string
	err := pool.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM agentd.sessions WHERE id = $1), t.session_id IS NOT NULL, coalesce(t.ledger_seq, 0),
			encode(t.ledger_head, 'hex'), encode(d.row_hash, 'hex')
		FROM (VALUES (1)) AS one
		LEFT JOIN agentd.tombstones AS t ON t.session_id = $1
		LEFT JOIN agentd.hook_decisions AS d ON d.session_id = $1 AND d.ledger_seq = $2`, id, seq).Scan(&exists, &purged, &lastSeq, &last, &hash)
	if err != nil {
		return nil, err
	}
	p := &LedgerProblem{SessionID: id, LedgerSeq: seq, Problem: problemAnchor, Want: orElse(nonEmpty(head), "a session") + ", as the export says"}
	switch {
	case l.Tombstone != nil && !purged:
		p.Got = "no tombstone"
	case purged && (lastSeq < seq || lastSeq == seq && orZero(last) != head):
		p.Got = fmt.Sprintf("a tombstone of %d rows with the head %s", lastSeq, orZero(last))
	case purged:
		return nil, nil // what is left of it says nothing else
	case !exists:
		p.Got = "no session"
	case orZero(hash) != head:
		p.Got = orElse(hash, "no row")
	default:
		return nil, nil
	}
	return p, nil
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
