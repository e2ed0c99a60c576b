package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
)

// DeclareDead declares dead, for good, every worker whose lease has run out,
// and returns those that it declared. A worker whose advisory lock was free at
// the last call too, and whose last heartbeat is older than stale, does not get
// the rest of its lease: its connection is gone and it made no other one. One
// behind a pooler, which has no lock, always does.
//
// The caller must itself have been connected for a whole lease. After an outage
// of the database nobody has, and so everybody gets the time to come back.
func (l *Leases) DeclareDead(ctx context.Context, workerID string, lease, stale time.Duration) ([]string, error) {
	l.suspectsMu.Lock()
	defer l.suspectsMu.Unlock()
	rows, err := l.pool.Query(ctx, `
		WITH c AS MATERIALIZED (SELECT agentd.clock() AS now),
		gone AS (
			SELECT w.id FROM agentd.workers AS w CROSS JOIN c
			WHERE w.dead_at IS NULL AND w.stopped_at IS NULL AND w.id <> $1
				AND (w.alive_until < c.now
					OR w.id = ANY ($4::uuid[]) AND w.heartbeat_at < c.now - $3::interval AND NOT w.pooled AND `+lockIsFree+`)
				AND EXISTS (
					SELECT FROM agentd.workers AS me
					WHERE me.id = $1 AND me.dead_at IS NULL AND me.stopped_at IS NULL
						AND me.connected_since <= c.now - $2::interval AND me.alive_until > c.now)
			ORDER BY w.id
			FOR UPDATE OF w SKIP LOCKED)
		UPDATE agentd.workers AS w SET dead_at = c.now, declared_by = $1
		FROM gone CROSS JOIN c
		WHERE w.id = gone.id
		RETURNING w.id::text`, workerID, lease, stale, l.suspects)
	if err != nil {
		return nil, fmt.Errorf("declare workers dead: %w", err)
	}
	dead, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("declare workers dead: %w", err)
	}
	rows, err = l.pool.Query(ctx, `
		SELECT w.id::text FROM agentd.workers AS w
		WHERE w.dead_at IS NULL AND w.stopped_at IS NULL AND w.id <> $1 AND NOT w.pooled AND `+lockIsFree, workerID)
	if err != nil {
		return dead, fmt.Errorf("look for free locks: %w", err)
	}
	l.suspects, err = pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return dead, fmt.Errorf("look for free locks: %w", err)
	}
	return dead, nil
}

// releaseColumns are the columns of [loop.Release], of a run r.
const releaseColumns = `r.tenant_id, r.session_id::text, r.id::text, r.worker_id::text, agentd.clock()`

func collectReleases(rows pgx.Rows, err error) ([]loop.Release, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r loop.Release, err error) {
		err = row.Scan(&r.TenantID, &r.SessionID, &r.RunID, &r.WorkerID, &r.Now)
		return r, err
	})
}

// Orphans returns up to limit runs that are leased by workers which are dead,
// have stopped, or are not known. A worker that was declared dead may have
// claimed a run since, so this is asked again and again, and not only once.
//
// With them come runs that were asked to stop longer than unheard ago, if their
// worker has sent no heartbeat since: who waits for the end of such a run need
// not wait for the end of a lease. Should the worker be alive, it loses a run
// that it was to end.
func (l *Leases) Orphans(ctx context.Context, unheard time.Duration, limit int) ([]loop.Release, error) {
	runs, err := collectReleases(l.pool.Query(ctx, `
		SELECT `+releaseColumns+`
		FROM agentd.runs AS r LEFT JOIN agentd.workers AS w ON w.id = r.worker_id
		WHERE r.status = 'running' AND (w.id IS NULL OR w.dead_at IS NOT NULL OR w.stopped_at IS NOT NULL
			OR w.heartbeat_at < r.cancel_requested_at AND r.cancel_requested_at < (SELECT agentd.clock()) - $2::interval)
		LIMIT $1`, limit, unheard))
	if err != nil {
		return nil, fmt.Errorf("look for runs of dead workers: %w", err)
	}
	return runs, nil
}

// Held returns the runs that a worker holds, but for those in except.
func (l *Leases) Held(ctx context.Context, workerID string, except []string) ([]loop.Release, error) {
	runs, err := collectReleases(l.pool.Query(ctx, `
		SELECT `+releaseColumns+`
		FROM agentd.runs AS r
		WHERE r.status = 'running' AND r.worker_id = $1 AND r.id <> ALL (coalesce($2::uuid[], '{}'))`, workerID, except))
	if err != nil {
		return nil, fmt.Errorf("look for runs that this worker holds: %w", err)
	}
	return runs, nil
}

// jobColumns are the columns of [loop.Job], of a run r.
const jobColumns = `r.tenant_id, r.session_id::text, r.id::text, r.ticket`

func collectJobs(rows pgx.Rows, err error) ([]loop.Job, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (j loop.Job, err error) {
		err = row.Scan(&j.TenantID, &j.SessionID, &j.RunID, &j.Ticket)
		return j, err
	})
}

// Due returns up to limit queued runs whose delay is over and that are not
// paused: neither by the table nor by known, since a worker that has not heard
// of the end of a pause would not claim what it queues.
func (l *Leases) Due(ctx context.Context, known loop.Pauses, limit int) ([]loop.Job, error) {
	tenants, agents := columnsOf(known)
	jobs, err := collectJobs(l.pool.Query(ctx, `
		SELECT `+jobColumns+`
		FROM agentd.runs AS r
		WHERE r.status = 'queued' AND r.not_before <= (SELECT agentd.clock()) AND `+notPaused("$2", "$3")+`
		ORDER BY r.not_before
		LIMIT $1`, limit, tenants, agents))
	if err != nil {
		return nil, fmt.Errorf("look for runs that are due: %w", err)
	}
	return jobs, nil
}

// Expired returns up to limit approvals that nobody has answered in time.
func (l *Leases) Expired(ctx context.Context, limit int) ([]loop.ApprovalRef, error) {
	rows, _ := l.pool.Query(ctx, `
		SELECT a.tenant_id, a.id::text
		FROM agentd.approvals AS a
		WHERE a.status = 'pending' AND a.expires_at <= (SELECT agentd.clock())
		ORDER BY a.expires_at
		LIMIT $1`, limit) // rows has the error
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a loop.ApprovalRef, err error) {
		err = row.Scan(&a.TenantID, &a.ApprovalID)
		return a, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for approvals that have expired: %w", err)
	}
	return list, nil
}

// queuedJobs are the jobs that may still claim something. Their names are
// those that loop/worker gives them.
const queuedJobs = `
	SELECT j.args ->> 'run_id' AS run_id, j.args ->> 'ticket' AS ticket, j.state,
		j.attempted_by[array_upper(j.attempted_by, 1)] AS worker_id
	FROM agentd.river_job AS j
	WHERE j.kind = 'agentd_advance' AND j.queue = 'runs'`

// Lost returns up to limit queued runs that no job will claim: the worker that
// fetched it is dead, has stopped or is not known, or the job has ended without
// a claim, more than settle ago. The job and the run are written in one
// transaction, so in one snapshot a run that lacks its job has lost it. A run
// that is paused, as Due means it, needs none.
func (l *Leases) Lost(ctx context.Context, settle time.Duration, known loop.Pauses, limit int) ([]loop.Job, error) {
	tenants, agents := columnsOf(known)
	jobs, err := collectJobs(l.pool.Query(ctx, `
		WITH job AS MATERIALIZED (`+queuedJobs+`
				AND j.state IN ('available', 'pending', 'scheduled', 'retryable', 'running')
			UNION ALL `+queuedJobs+`
				AND j.state IN ('completed', 'cancelled', 'discarded')
				AND j.finalized_at > (SELECT agentd.clock()) - $1::interval)
		SELECT `+jobColumns+`
		FROM agentd.runs AS r
		WHERE r.status = 'queued' AND r.not_before IS NULL AND `+notPaused("$3", "$4")+`
			AND NOT EXISTS (
				SELECT FROM job
				LEFT JOIN agentd.workers AS w
					ON w.id::text = job.worker_id AND w.dead_at IS NULL AND w.stopped_at IS NULL
				WHERE job.run_id = r.id::text AND job.ticket = r.ticket::text
					AND (job.state <> 'running' OR w.id IS NOT NULL))
		LIMIT $2`, settle, limit, tenants, agents))
	if err != nil {
		return nil, fmt.Errorf("look for lost jobs: %w", err)
	}
	return jobs, nil
}

// Passed returns an enqueued run of each session that has some and no active
// one: whoever ended the last run did not begin the next. That takes one append,
// so in one snapshot it was passed over for good.
func (l *Leases) Passed(ctx context.Context, limit int) ([]loop.Job, error) {
	jobs, err := collectJobs(l.pool.Query(ctx, `
		SELECT DISTINCT ON (m.session_id) `+jobColumns+`
		FROM agentd.messages AS m
		JOIN agentd.runs AS r ON r.id = m.run_id AND r.status = 'enqueued'
		JOIN agentd.sessions AS s ON s.id = m.session_id AND s.deleted_at IS NULL
		WHERE m.enqueued AND m.replaced_seq IS NULL AND NOT EXISTS (
			SELECT FROM agentd.runs AS a WHERE a.session_id = m.session_id AND a.status IN ('queued', 'running', 'waiting'))
		ORDER BY m.session_id
		LIMIT $1`, limit))
	if err != nil {
		return nil, fmt.Errorf("look for runs that were passed over: %w", err)
	}
	return jobs, nil
}

// Fetched returns the queued runs whose job a worker has fetched, but for those
// in except. The worker is about to claim them, unless the answer to its fetch
// got lost on the way.
func (l *Leases) Fetched(ctx context.Context, workerID string, except []string) ([]loop.Job, error) {
	jobs, err := collectJobs(l.pool.Query(ctx, `
		WITH job AS MATERIALIZED (`+queuedJobs+` AND j.state = 'running')
		SELECT `+jobColumns+`
		FROM agentd.runs AS r JOIN job ON job.run_id = r.id::text AND job.ticket = r.ticket::text
		WHERE r.status = 'queued' AND job.worker_id = $1 AND r.id <> ALL (coalesce($2::uuid[], '{}'))`, workerID, except))
	if err != nil {
		return nil, fmt.Errorf("look for jobs that were fetched: %w", err)
	}
	return jobs, nil
}

// Forget deletes the rows of workers that are gone for longer than keep and
// hold nothing.
func (l *Leases) Forget(ctx context.Context, keep time.Duration) error {
	_, err := l.pool.Exec(ctx, `
		DELETE FROM agentd.workers AS w
		WHERE coalesce(w.dead_at, w.stopped_at) < (SELECT agentd.clock()) - $1::interval
			AND NOT EXISTS (SELECT FROM agentd.runs AS r WHERE r.worker_id = w.id AND r.status = 'running')`, keep)
	if err != nil {
		return fmt.Errorf("forget workers: %w", err)
	}
	return nil
}
