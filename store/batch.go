package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
)

// Plans are kept for as long as a connection lives. One that was made while
// the tables were small reads them whole, and goes on doing so when they are
// large; every statement of a group is meant to go by its index. Left to
// itself, Postgres also plans each statement anew for each small group, which
// costs more than to execute it.
const planByIndex = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_mergejoin', 'off', true),
	set_config('plan_cache_mode', 'force_generic_plan', true)`

// createSessions does nothing where the id or the external id is taken. The
// order keeps two groups that create the same external ids from a deadlock.
const createSessions = `
INSERT INTO agentd.sessions (id, tenant_id, external_id, created_at, updated_at, deleted_at, last_seq, run_epoch, append_id, ledger_seq, ledger_head)
SELECT c.id, c.tenant_id, c.external_id, c.created_at, c.updated_at, c.deleted_at, c.last_seq, coalesce(c.run_epoch, 0), c.append_id,
	coalesce(c.ledger_seq, 0), c.ledger_head
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[], $8::bigint[], $9::bigint[],
	$10::bigint[], $11::bytea[])
	AS c (id, append_id, tenant_id, external_id, created_at, updated_at, deleted_at, last_seq, run_epoch, ledger_seq, ledger_head)
JOIN agentd.tenants AS t ON t.id = c.tenant_id
ORDER BY c.tenant_id, c.external_id, c.id
ON CONFLICT DO NOTHING
RETURNING id`

// The compare-and-set locks first, in order of id: the order of an array in an
// UPDATE's FROM is not the order of its locks, and groups deadlocked. What was
// locked is a hashed set, which IS TRUE makes of it: as a join it becomes a
// nested loop, which compares every row of a group with every lock. Both
// variants return every session that was locked, and again with true when it
// was set.
const (
	compareAndSet     = setLocked + `SKIP LOCKED` + setMatching
	compareAndSetWait = setLocked + setMatching

	setLocked = `
WITH l AS MATERIALIZED (
	SELECT id FROM agentd.sessions WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE `
	setMatching = `
), u AS (
	UPDATE agentd.sessions AS s SET
		append_id = c.append_id,
		last_seq = c.last_seq,
		run_epoch = coalesce(c.run_epoch, s.run_epoch),
		updated_at = c.updated_at,
		deleted_at = coalesce(c.deleted_at, s.deleted_at),
		ledger_seq = coalesce(c.ledger_seq, s.ledger_seq),
		ledger_head = coalesce(c.ledger_head, s.ledger_head)
	FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::timestamptz[], $9::timestamptz[],
		$10::bigint[], $11::bytea[], $12::bigint[], $13::bytea[], $14::uuid[])
		AS c (id, append_id, tenant_id, expected, epoch, last_seq, run_epoch, updated_at, deleted_at,
		ledger_from, ledger_prev, ledger_seq, ledger_head, answers)
	WHERE CASE WHEN (c.id IN (SELECT id FROM l)) IS TRUE THEN c.answers IS NULL OR ` + inTime + ` ELSE false END
		AND s.id = c.id AND s.tenant_id = c.tenant_id AND s.last_seq = c.expected AND (c.epoch = 0 OR s.run_epoch = c.epoch)
		AND (c.ledger_from IS NULL OR c.ledger_from = s.ledger_seq AND c.ledger_prev = coalesce(s.ledger_head, '` + zeroBytea + `'))
	RETURNING s.id
)
SELECT l.id, false FROM l UNION ALL SELECT u.id, true FROM u`
)

// inTime says of the approval that c answers whether there is still time to do
// so. It is asked once the session is locked: nobody answers in time and waits
// until it is over.
const inTime = `NOT EXISTS (SELECT FROM agentd.approvals AS a WHERE a.id = c.answers AND a.expires_at <= agentd.clock())`

// outcome is what the compare-and-set said of one request.
type outcome int

const (
	// outcomeSkipped: the row was locked by somebody else, or there is none.
	outcomeSkipped outcome = iota
	outcomeRefused
	outcomeWritten
)

// writing is one attempt to commit a group. A session is in it at most once.
type writing struct {
	group    []*request
	outcomes map[pgtype.UUID]outcome
	// wait says to wait for locked rows instead of skipping them.
	wait bool
}

// write commits the group in one transaction and says what became of each
// request. After an error nothing is known: it may have been committed.
func (s *Store) write(ctx context.Context, conn *pgxpool.Conn, group []*request, wait bool) (map[pgtype.UUID]outcome, error) {
	w := &writing{group: group, wait: wait, outcomes: make(map[pgtype.UUID]outcome, len(group))}
	if s.opts.BeforeCommit == nil && !w.hasJobs() {
		// A batch outside a transaction is one transaction, and one round trip.
		return w.outcomes, conn.SendBatch(ctx, w.batch()).Close()
	}
	return w.outcomes, w.inTransaction(ctx, conn, s.opts)
}

func (w *writing) inTransaction(ctx context.Context, conn *pgxpool.Conn, opts Options) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := tx.SendBatch(ctx, w.batch()).Close(); err != nil {
			return err
		}
		if jobs := w.jobs(); len(jobs) > 0 {
			if err := opts.Queue.InsertTx(ctx, tx, jobs); err != nil {
				return fmt.Errorf("insert jobs: %w", err)
			}
		}
		if opts.BeforeCommit != nil {
			opts.BeforeCommit(ctx)
		}
		return nil
	})
}

func (w *writing) hasJobs() bool {
	for _, r := range w.group {
		if len(r.append.Jobs) > 0 {
			return true
		}
	}
	return false
}

// jobs are those of the requests that were written.
func (w *writing) jobs() []loop.Job {
	var jobs []loop.Job
	for _, r := range w.group {
		if w.outcomes[r.sessionID] == outcomeWritten {
			jobs = append(jobs, r.append.Jobs...)
		}
	}
	return jobs
}

func (w *writing) batch() *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue(planByIndex)
	var created, moved []*request
	var events []row[eventRow]
	var p projections
	for _, r := range w.group {
		if r.creates {
			created = append(created, r)
		} else {
			moved = append(moved, r)
		}
		for i := range r.rows {
			events = append(events, row[eventRow]{r, &r.rows[i]})
		}
		p.add(r)
	}
	if len(created) > 0 {
		b.Queue(createSessions, createArgs(created)...).Query(w.readCreated)
	}
	if len(moved) > 0 {
		sql := compareAndSet
		if w.wait {
			sql = compareAndSetWait
		}
		b.Queue(sql, moveArgs(moved)...).Query(w.readLocked)
	}
	queue(b, insertEvents, events, eventArgs)
	p.queue(b)
	return b
}

func (w *writing) readCreated(rows pgx.Rows) error {
	for _, r := range w.group {
		if r.creates {
			w.outcomes[r.sessionID] = outcomeRefused
		}
	}
	var id pgtype.UUID
	_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
		w.outcomes[id] = outcomeWritten
		return nil
	})
	return err
}

func (w *writing) readLocked(rows pgx.Rows) error {
	var id pgtype.UUID
	var set bool
	_, err := pgx.ForEachRow(rows, []any{&id, &set}, func() error {
		if set {
			w.outcomes[id] = outcomeWritten
		} else {
			w.outcomes[id] = max(w.outcomes[id], outcomeRefused)
		}
		return nil
	})
	return err
}

// pick takes one value of every request, as a parameter of a statement.
func pick[V any](group []*request, value func(*request) V) values[V] {
	out := make(values[V], len(group))
	for i, r := range group {
		out[i] = value(r)
	}
	return out
}

func createArgs(group []*request) []any {
	return []any{
		pick(group, func(r *request) pgtype.UUID { return r.sessionID }),
		pick(group, func(r *request) pgtype.UUID { return r.id }),
		pick(group, func(r *request) string { return r.append.TenantID }),
		pick(group, func(r *request) pgtype.Text { return r.changes.session.externalID }),
		pick(group, func(r *request) time.Time { return r.changes.session.createdAt }),
		pick(group, func(r *request) time.Time { return r.changes.session.updatedAt }),
		pick(group, func(r *request) pgtype.Timestamptz { return r.changes.session.deletedAt }),
		pick(group, (*request).lastSeq),
		pick(group, func(r *request) pgtype.Int8 { return r.changes.session.epoch }),
		pick(group, (*request).ledgerSeq),
		pick(group, (*request).ledgerHead),
	}
}

func moveArgs(group []*request) []any {
	return []any{
		pick(group, func(r *request) pgtype.UUID { return r.sessionID }),
		pick(group, func(r *request) pgtype.UUID { return r.id }),
		pick(group, func(r *request) string { return r.append.TenantID }),
		pick(group, func(r *request) int64 { return r.append.Expected }),
		pick(group, func(r *request) int64 { return r.append.Epoch }),
		pick(group, (*request).lastSeq),
		pick(group, func(r *request) pgtype.Int8 { return r.changes.session.epoch }),
		pick(group, func(r *request) time.Time { return r.changes.session.updatedAt }),
		pick(group, func(r *request) pgtype.Timestamptz { return r.changes.session.deletedAt }),
		pick(group, (*request).ledgerFrom),
		pick(group, (*request).ledgerPrev),
		pick(group, (*request).ledgerSeq),
		pick(group, (*request).ledgerHead),
		pick(group, func(r *request) pgtype.UUID { return r.answers }),
	}
}

func eventArgs(rows []row[eventRow]) []any {
	type e = eventRow
	sessions, appends := owners(rows)
	return []any{
		sessions, appends,
		column(rows, func(e *e) int64 { return e.seq }),
		column(rows, func(e *e) pgtype.UUID { return e.runID }),
		column(rows, func(e *e) pgtype.Int4 { return e.turn }),
		column(rows, func(e *e) string { return e.kind }),
		column(rows, func(e *e) string { return e.payload }),
		column(rows, func(e *e) string { return e.actorKind }),
		column(rows, func(e *e) string { return e.actorID }),
		column(rows, func(e *e) time.Time { return e.at }),
	}
}
