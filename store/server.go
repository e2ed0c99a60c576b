package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Server is what a Postgres says of itself, as a session of agentd's role sees it.
type Server struct {
	// Version is such as 15; MinServerVersion is the oldest that will do.
	Version int
	// Encoding is that of the database, such as UTF8.
	Encoding string
	// Recovery is that it follows another server and takes no writes, ReadOnly that
	// transactions of this role begin as read only.
	Recovery, ReadOnly bool
	// SynchronousCommit, Fsync and FullPageWrites are the settings of that name.
	SynchronousCommit, Fsync, FullPageWrites string
	// Connections are how many are open now, MaxConnections how many a role without
	// special rights can open.
	Connections, MaxConnections int
	// Ahead is how much later it is there than here; half of Trip, how long it took to
	// ask, is how wrong that may be.
	Ahead, Trip time.Duration
}

// MinServerVersion is the oldest Postgres that agentd works with.
const MinServerVersion = 15

// ReadServer asks a Postgres about itself, in a transaction that changes nothing. It
// needs no schema.
func ReadServer(ctx context.Context, pool *pgxpool.Pool) (s Server, err error) {
	var now time.Time
	asked := time.Now()
	if err := pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return s, fmt.Errorf("read server: %w", err)
	}
	s.Trip = time.Since(asked)
	s.Ahead = now.Sub(asked.Add(s.Trip / 2))
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			SELECT current_setting('server_version_num')::integer / 10000, current_setting('server_encoding'),
				pg_is_in_recovery(), current_setting('default_transaction_read_only')::boolean,
				current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'),
				(SELECT coalesce(sum(numbackends), 0)::integer FROM pg_catalog.pg_stat_database),
				current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
					- coalesce(current_setting('reserved_connections', true)::integer, 0)`).Scan(
			&s.Version, &s.Encoding, &s.Recovery, &s.ReadOnly, &s.SynchronousCommit, &s.Fsync, &s.FullPageWrites, &s.Connections, &s.MaxConnections)
	})
	if err != nil {
		return s, fmt.Errorf("read server: %w", err)
	}
	return s, nil
}
