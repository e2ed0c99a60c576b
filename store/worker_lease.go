package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
)

// Leases is the table of workers, as seen by one process. The lease of every
// run that a worker holds is the alive_until of the worker's row. Heartbeats
// have a connection of their own, so that an exhausted pool lets no lease run
// out; everything else goes through the store's pool. It is safe for
// concurrent use, and one worker at a time has the heartbeat.
type Leases struct {
	pool   *pgxpool.Pool
	config *pgx.ConnConfig
	// pooled says that the heartbeat has no session of its own, so that no lock
	// would mean anything.
	pooled bool
	hub    *hub

	mu   sync.Mutex // held for as long as a heartbeat takes
	conn *pgx.Conn  // nil when there is none
	// locked says that conn holds the worker's advisory lock.
	locked bool

	suspectsMu sync.Mutex
	// suspects are the workers whose lock the last look found free.
	suspects []string
}

// NewLeases returns the table of workers in the database of s, which need not
// be started.
func NewLeases(s *Store) *Leases {
	config := s.opts.session(s.pool)
	pooled := config == nil
	if pooled {
		config = s.pool.Config().ConnConfig
	}
	config.RuntimeParams["application_name"] = "agentd heartbeat"
	return &Leases{pool: s.pool, config: config, pooled: pooled, hub: s.delivery.hub}
}

// advisoryKey is the key of the lock that a worker holds while its heartbeat's
// connection is up: the random half of its id.
const advisoryKey = `('x' || right(replace(%s::text, '-', ''), 16))::bit(64)::bigint`

var (
	lockQuery = fmt.Sprintf(`SELECT pg_try_advisory_lock(`+advisoryKey+`)`, "$1")

	// lockIsFree is a condition on a worker w.
	lockIsFree = fmt.Sprintf(`NOT EXISTS (
		SELECT FROM pg_catalog.pg_locks AS l
		WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
			AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
			AND (l.classid::bigint << 32 | l.objid::bigint) = `+advisoryKey+`)`, "w.id")
)

// Join makes the row of a worker that starts now; its lease is the given one
// until the first heartbeat. A heartbeat of another worker's is over. It returns
// what a heartbeat would.
func (l *Leases) Join(ctx context.Context, w loop.Joining, lease time.Duration) (loop.Orders, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hangUp()
	if err := l.connect(ctx, w.ID); err != nil {
		return loop.Orders{}, fmt.Errorf("register worker: %w", err)
	}
	var orders loop.Orders
	var pauses []byte
	err := l.conn.QueryRow(ctx, `
		INSERT INTO agentd.workers (id, started_at, connected_since, heartbeat_at, alive_until, version, host,
			pooled, drain_requested_at, drain_requested_by)
		SELECT $1, c.now, c.now, c.now, c.now + $3::interval, $2, $4, $6, f.drain_requested_at, f.drain_requested_by
		FROM (SELECT agentd.clock() AS now) AS c
		LEFT JOIN agentd.workers AS f ON f.id = nullif($5, '')::uuid
		RETURNING drain_requested_at IS NOT NULL, `+allPauses,
		w.ID, w.Version, lease, w.Host, w.Former, l.pooled).Scan(&orders.Drain, &pauses)
	if err == nil {
		orders.Pauses, err = scanPauses(pauses)
	}
	if err != nil {
		l.hangUp()
		return loop.Orders{}, fmt.Errorf("register worker: %w", err)
	}
	return orders, nil
}

// Beat says that a worker is alive, for another lease. It returns false if the
// worker was declared dead, and else what the worker is to do. It connects again when the connection was lost,
// which starts the worker's time as a connected one anew; so does a heartbeat
// that comes when the lease has run out. An error says nothing about the
// worker.
func (l *Leases) Beat(ctx context.Context, workerID string, lease time.Duration) (alive bool, orders loop.Orders, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		if err != nil {
			l.hangUp()
			err = fmt.Errorf("heartbeat: %w", err)
		}
	}()
	fresh := l.conn == nil || l.conn.IsClosed()
	if fresh {
		l.hangUp()
		if err := l.connect(ctx, workerID); err != nil {
			return false, orders, err
		}
	}
	if !l.locked && !l.pooled {
		// The server still believes in a connection that is gone. When it finds
		// out, the lock must not stay free.
		if err := l.lock(ctx, workerID); err != nil {
			return false, orders, err
		}
	}
	var pauses []byte
	err = l.conn.QueryRow(ctx, `
		WITH beat AS (
			UPDATE agentd.workers AS w SET
				connected_since = CASE WHEN $3 OR w.alive_until < c.now THEN c.now ELSE w.connected_since END,
				heartbeat_at = c.now,
				alive_until = c.now + $2::interval
			FROM (SELECT agentd.clock() AS now) AS c
			WHERE w.id = $1 AND w.dead_at IS NULL AND w.stopped_at IS NULL
			RETURNING w.id, w.drain_requested_at)
		SELECT beat.drain_requested_at IS NOT NULL, `+allPauses+`, ARRAY(
			SELECT r.session_id::text FROM agentd.runs AS r
			WHERE r.worker_id = beat.id AND r.status = 'running' AND r.cancel_requested_at IS NOT NULL)
		FROM beat`, workerID, lease, fresh).Scan(&orders.Drain, &pauses, &orders.Cancelled)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, loop.Orders{}, nil
	}
	if err == nil {
		orders.Pauses, err = scanPauses(pauses)
	}
	return err == nil, orders, err
}

// Leave says that a worker has stopped by itself: what it still holds may be
// taken up by others at once. A worker that is dead stays so.
func (l *Leases) Leave(ctx context.Context, workerID string) error {
	_, err := l.pool.Exec(ctx, `
		UPDATE agentd.workers SET stopped_at = agentd.clock()
		WHERE id = $1 AND dead_at IS NULL AND stopped_at IS NULL`, workerID)
	if err != nil {
		return fmt.Errorf("unregister worker: %w", err)
	}
	return nil
}

// Close ends the heartbeat's connection. The next heartbeat makes another.
func (l *Leases) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hangUp()
}

// connect and what follows are called under the lock.
func (l *Leases) connect(ctx context.Context, workerID string) error {
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return err
	}
	l.conn = conn
	if l.pooled {
		return nil
	}
	if err := l.lock(ctx, workerID); err != nil {
		l.hangUp()
		return err
	}
	return nil
}

func (l *Leases) lock(ctx context.Context, workerID string) error {
	return l.conn.QueryRow(ctx, lockQuery, workerID).Scan(&l.locked)
}

func (l *Leases) hangUp() {
	if l.conn == nil {
		return
	}
	hangUp(l.conn)
	l.conn, l.locked = nil, false
}
