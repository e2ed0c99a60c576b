package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	guards "github.com/seed-2ca4966b/agentd/hooks/guard"
	"github.com/seed-2ca4966b/agentd/loop"
)

var _ guards.Slots = (*Store)(nil)

const (
	// Whoever takes a slot of a limit has the limit for itself. The lock comes
	// in a statement of its own: one that waits for it would not see what those
	// before it have written.
	lockLimit = `SELECT pg_advisory_xact_lock(hashtextextended('agentd.guard/' || $1 || '/' || $2 || '/' || $3, 0))`

	// Nobody waits for the disk with the limit locked: that comes afterwards.
	lazyCommit = `SELECT set_config('synchronous_commit', 'off', true)`

	// takeSlot reads no more rows than the limit has places.
	takeSlot = `
WITH t AS MATERIALIZED (SELECT agentd.clock() AS now),
mine AS MATERIALIZED (
	SELECT g.taken_at FROM agentd.guard_slots AS g, t
	WHERE g.session_id = $4 AND g.call_id = $5 AND g.guard = $2 AND (g.expires_at IS NULL OR g.expires_at > t.now)
),
used AS MATERIALIZED (
	SELECT g.taken_at FROM agentd.guard_slots AS g
	WHERE g.tenant_id = $1 AND g.guard = $2 AND g.counted_for = $3
		AND g.taken_at > coalesce((SELECT now FROM t) - $7::interval, '-infinity')
	ORDER BY g.taken_at DESC LIMIT $6
),
taken AS (
	INSERT INTO agentd.guard_slots AS g (session_id, call_id, guard, tenant_id, counted_for, taken_at, expires_at)
	SELECT $4, $5, $2, $1, $3, t.now, t.now + $7::interval FROM t
	WHERE NOT EXISTS (SELECT FROM mine) AND (SELECT count(*) FROM used) < $6
	ON CONFLICT (session_id, call_id, guard) DO UPDATE SET taken_at = excluded.taken_at, expires_at = excluded.expires_at
	RETURNING 1
)
SELECT (SELECT count(*) FROM mine) + (SELECT count(*) FROM taken) > 0,
	(SELECT count(*) FROM used) + (SELECT count(*) FROM taken), (SELECT min(taken_at) FROM used) + $7::interval, t.now
FROM t`

	// keepSlot is a transaction with an id, so its commit waits until everything
	// before it is durable. A database that has come back meanwhile may have lost
	// the slot.
	keepSlot = `
SELECT EXISTS (SELECT FROM agentd.guard_slots WHERE session_id = $1 AND call_id = $2 AND guard = $3)
	AND pg_current_xact_id() IS NOT NULL`

	// dropSlots removes more than one slot that counts no more for each that is
	// taken, so that they do not gather.
	dropSlots = `
DELETE FROM agentd.guard_slots AS g USING (
	SELECT session_id, call_id, guard FROM agentd.guard_slots
	WHERE expires_at <= (SELECT agentd.clock()) ORDER BY expires_at LIMIT 10 FOR UPDATE SKIP LOCKED
) AS old WHERE g.session_id = old.session_id AND g.call_id = old.call_id AND g.guard = old.guard`
)

var errSlotLost = errors.New("the slot that was taken is gone: the database has lost it")

// TakeSlot implements [guards.Slots]. A call of a session that there is not is
// [loop.ErrNotFound].
func (s *Store) TakeSlot(ctx context.Context, slot guards.Slot) (guards.Taken, error) {
	session, ok := canonicalID(slot.SessionID)
	call, ok2 := canonicalID(slot.CallID)
	if !ok || !ok2 || !storable(slot.TenantID) || !storable(slot.Guard) {
		return guards.Taken{}, loop.ErrNotFound
	}
	whose, err := s.countedFor(ctx, slot)
	if err != nil {
		return guards.Taken{}, failed("take a slot", err)
	}
	var window pgtype.Interval
	if slot.Window > 0 {
		window = pgtype.Interval{Microseconds: slot.Window.Microseconds(), Valid: true}
	}
	var got guards.Taken
	var free *time.Time
	b := &pgx.Batch{}
	b.Queue(planByIndex)
	b.Queue(lazyCommit)
	b.Queue(lockLimit, slot.TenantID, slot.Guard, whose)
	b.Queue(takeSlot, slot.TenantID, slot.Guard, whose, session, call, slot.Calls, window).QueryRow(func(row pgx.Row) error {
		return row.Scan(&got.OK, &got.Used, &free, &got.Now)
	})
	b.Queue(dropSlots)
	// Outside a transaction it is one, and one round trip.
	err = s.pool.SendBatch(ctx, b).Close()
	switch {
	case hasCode(err, codeForeignKeyViolation):
		return guards.Taken{}, loop.ErrNotFound
	case err != nil:
		return guards.Taken{}, failed("take a slot", err)
	}
	if got.OK {
		var kept bool
		if err := s.pool.QueryRow(ctx, keepSlot, session, call, slot.Guard).Scan(&kept); err != nil {
			return guards.Taken{}, failed("keep a slot", err)
		}
		if !kept {
			return guards.Taken{}, errSlotLost
		}
	}
	if free != nil {
		got.FreeAt = free.UTC()
	}
	got.Now = got.Now.UTC()
	return got, nil
}

// countedFor names whose limit it is.
func (s *Store) countedFor(ctx context.Context, slot guards.Slot) (string, error) {
	id := ""
	switch slot.Per {
	case guards.PerRun:
		id = slot.RunID
	case guards.PerSession:
		id = slot.SessionID
	case guards.PerAgent:
		id = slot.Agent
	case guards.PerTenant:
		id = slot.TenantID
	case guards.PerUser:
		run, ok := canonicalID(slot.RunID)
		if !ok {
			return "", loop.ErrNotFound
		}
		err := s.pool.QueryRow(ctx, `
			SELECT actor_kind || ':' || actor_id FROM agentd.events
			WHERE run_id = $1 AND tenant_id = $2 AND type = 'run.created' AND type <> 'assistant.delta' ORDER BY seq LIMIT 1`,
			run, slot.TenantID).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return "", loop.ErrNotFound
		}
		if err != nil {
			return "", err
		}
	default:
		return "", fmt.Errorf("a limit per %q", slot.Per)
	}
	whose := string(slot.Per) + " " + id
	if slot.Tool != "" {
		whose += ", tool " + slot.Tool
	}
	if !storable(whose) {
		return "", loop.ErrNotFound
	}
	return whose, nil
}
