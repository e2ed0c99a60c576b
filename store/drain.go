package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// WorkerRow is a living worker, as people see it.
type WorkerRow struct {
	ID string
	// Host and Version are what it said of itself; Host may be "".
	Host      string
	Version   string
	StartedAt time.Time
	// Runs is how many it holds.
	Runs int
	// DrainedBy is who asked for its drain, "" if nobody did.
	DrainedBy string
}

const selectWorkers = `
	SELECT w.id::text, w.host, w.version, w.started_at,
		(SELECT count(*) FROM agentd.runs AS r WHERE r.worker_id = w.id AND r.status = 'running'),
		coalesce(w.drain_requested_by, '')
	FROM `

func collectWorkers(rows pgx.Rows) ([]WorkerRow, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (w WorkerRow, err error) {
		err = row.Scan(&w.ID, &w.Host, &w.Version, &w.StartedAt, &w.Runs, &w.DrainedBy)
		return w, err
	})
}

// Workers returns the workers that are alive, the oldest first.
func (s *Store) Workers(ctx context.Context) ([]WorkerRow, error) {
	rows, _ := s.pool.Query(ctx, selectWorkers+`agentd.workers AS w
		WHERE w.dead_at IS NULL AND w.stopped_at IS NULL AND w.alive_until > agentd.clock()
		ORDER BY w.started_at, w.id`) // rows has the error
	list, err := collectWorkers(rows)
	if err != nil {
		return nil, failed("list workers", err)
	}
	return list, nil
}

// Drain asks a worker, or for "" every one that is alive, to hand back its runs
// and take no more until its process is started anew. They hear of it with their
// next heartbeat. It returns those that were asked, now or before; none means
// that no such worker is alive.
func (s *Store) Drain(ctx context.Context, workerID string, by event.Actor) ([]WorkerRow, error) {
	id, ok := canonicalID(workerID)
	if workerID != "" && !ok {
		return nil, loop.ErrNotFound
	}
	rows, _ := s.pool.Query(ctx, `
		WITH w AS (
			UPDATE agentd.workers SET
				drain_requested_at = coalesce(drain_requested_at, agentd.clock()),
				drain_requested_by = coalesce(drain_requested_by, $2)
			WHERE ($1 = '' OR id = nullif($1, '')::uuid)
				AND dead_at IS NULL AND stopped_at IS NULL AND alive_until > agentd.clock()
			RETURNING id, host, version, started_at, drain_requested_by)`+selectWorkers+`w ORDER BY w.started_at, w.id`,
		id, string(by.Kind)+":"+by.ID) // rows has the error
	list, err := collectWorkers(rows)
	if err != nil {
		return nil, failed("drain", err)
	}
	return list, nil
}
