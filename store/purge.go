package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
)

// Tombstone is what is left of a session that was purged.
type Tombstone struct {
	SessionID string
	TenantID  string
	// Events and Decisions are how many rows left the log and the ledger.
	Events    int64
	Decisions int64
	// LedgerHead is the hash of the last decision in hex, "" if there was none.
	LedgerHead string
	PurgedAt   time.Time
	PurgedBy   string
	Reason     string
}

// ErrSessionBusy means that a session has a run that has not ended: it must be
// cancelled first.
var ErrSessionBusy = errors.New("a run of the session has not ended: cancel it first")

// errRehearsed ends a transaction that must not change anything.
var errRehearsed = errors.New("rehearsed")

// PurgeSession deletes everything of a session, for ever, and leaves a
// tombstone. Whoever appends to it meanwhile is waited for, or finds no
// session. by is who wants it, "" for the database user, and reason, which may
// not be empty, is why; both are kept. A session that is not there is
// [loop.ErrNotFound], one with a run that has not ended is [ErrSessionBusy].
// With rehearse, it does the same and takes it back.
func PurgeSession(ctx context.Context, pool *pgxpool.Pool, sessionID, by, reason string, rehearse bool) (Tombstone, error) {
	var t Tombstone
	err := onSession(ctx, pool, sessionID, rehearse, func(tx pgx.Tx, id string) error {
		return tx.QueryRow(ctx, `
			SELECT session_id::text, tenant_id, events, decisions, coalesce(encode(ledger_head, 'hex'), ''), purged_at, purged_by, reason
			FROM agentd.purge_session($1, $2, coalesce(nullif($3, ''), session_user))`, id, reason, by).
			Scan(&t.SessionID, &t.TenantID, &t.Events, &t.Decisions, &t.LedgerHead, &t.PurgedAt, &t.PurgedBy, &t.Reason)
	})
	if err != nil {
		return Tombstone{}, fmt.Errorf("purge session: %w", err)
	}
	return t, nil
}

// ErasePayloads deletes what hooks said in a session and what they changed, and
// returns how many payloads that were. The decisions stay, and so does the
// proof. A session that is not there is [loop.ErrNotFound]. With rehearse, it
// does the same and takes it back.
func ErasePayloads(ctx context.Context, pool *pgxpool.Pool, sessionID string, rehearse bool) (erased int64, err error) {
	err = onSession(ctx, pool, sessionID, rehearse, func(tx pgx.Tx, id string) error {
		return tx.QueryRow(ctx, `SELECT agentd.erase_payloads($1)`, id).Scan(&erased)
	})
	if err != nil {
		return 0, fmt.Errorf("erase payloads: %w", err)
	}
	return erased, nil
}

// onSession calls do in a transaction and translates what the functions of the
// database refuse.
func onSession(ctx context.Context, pool *pgxpool.Pool, sessionID string, rehearse bool, do func(tx pgx.Tx, id string) error) error {
	id, ok := canonicalID(sessionID)
	if !ok {
		return loop.ErrNotFound
	}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := do(tx, id); err != nil || !rehearse {
			return err
		}
		return errRehearsed
	})
	switch {
	case errors.Is(err, errRehearsed):
		return nil
	case hasCode(err, codeNoDataFound):
		return loop.ErrNotFound
	case hasCode(err, codeObjectInUse):
		return ErrSessionBusy
	}
	return err
}
