package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// poolerRounds is how often the test for a pooler looks whether a session
	// stays on its server process while another one is busy. One look says
	// little: other clients take processes too.
	poolerRounds = 30
	// poolerWait is for a pooler that has a single connection: it makes the busy
	// session wait for the idle one, or the reverse.
	poolerWait = 2 * time.Second
)

// Pooled tests whether a pooler in transaction mode (PgBouncer, or one of its
// kind) stands between here and the database: there, each transaction may run in
// another server process, so prepared statements, LISTEN and advisory locks are
// not where they were left. A direct connection, and a pooler in session mode,
// are not pooled in this sense.
func Pooled(ctx context.Context, config *pgx.ConnConfig) (bool, error) {
	pooled, err := pooled(ctx, plain(config))
	if err != nil {
		return false, fmt.Errorf("look for a pooler: %w", err)
	}
	return pooled, nil
}

// plain is a config for single connections that works through any pooler.
func plain(config *pgx.ConnConfig) *pgx.ConnConfig {
	config = config.Copy()
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return config
}

func pooled(ctx context.Context, config *pgx.ConnConfig) (bool, error) {
	idle, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, err
	}
	defer hangUp(idle)
	at, err := backend(ctx, idle)
	// A pooler makes up the key by which its clients cancel.
	if err != nil || at == idle.PgConn().PID() {
		return false, err
	}
	busy, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, err
	}
	defer hangUp(busy)
	for range poolerRounds {
		// In transaction mode this takes the server process that was used last,
		// and the idle session gets another one.
		waiting, cancel := context.WithTimeout(ctx, poolerWait)
		other, err := begun(waiting, busy)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil && pgconn.Timeout(err):
			return false, nil // it waits for the idle one: that has a server of its own
		case err != nil:
			return false, err
		case other == at:
			return true, nil
		}
		waiting, cancel = context.WithTimeout(ctx, poolerWait)
		now, err := backend(waiting, idle)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil && pgconn.Timeout(err):
			return true, nil // it waits for the busy one
		case err != nil:
			return false, err
		case now != at:
			return true, nil
		}
		if _, err := busy.Exec(ctx, `ROLLBACK`); err != nil {
			return false, err
		}
		// The server process that was used last is the busy one's now. Nobody but
		// us may be there to take it, and then all rounds would be like this one.
		if now, err := backend(ctx, idle); err != nil || now != at {
			return err == nil, err
		}
	}
	return false, nil
}

// begun begins a transaction and says which process serves it.
func begun(ctx context.Context, conn *pgx.Conn) (uint32, error) {
	if _, err := conn.Exec(ctx, `BEGIN`); err != nil {
		return 0, err
	}
	return backend(ctx, conn)
}

func backend(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	err = conn.QueryRow(ctx, `SELECT pg_catalog.pg_backend_pid()`).Scan(&pid)
	return pid, err
}

// hangUp does not wait for a server that is silent.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = conn.Close(ctx) // it is of no use any more, whatever this says
}

// ErrPooled means that a pooler in transaction mode is in the way of something
// that needs a session of its own.
var ErrPooled = errors.New("the connection goes through a pooler in transaction mode")

// Adapt makes a pool's connections work through a pooler in transaction mode:
// nothing is prepared under a name, unless the URL asks for a mode itself, and
// notifications that were meant for others are dropped.
func Adapt(config *pgx.ConnConfig, asked bool) {
	if !asked {
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	// They would pile up: nobody waits for one on such a connection.
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
}
