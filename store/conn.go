package store

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ownConn is a connection that one goroutine takes from the pool and keeps
// while it has work: with an acquire for each commit, a crowd of readers would
// be served before every group.
type ownConn struct {
	pool *pgxpool.Pool
	conn *pgxpool.Conn // nil when there is none
}

// use calls f with the connection, within commitTimeout. An error after which
// the connection is gone comes back as a connectionError. Whatever the error,
// the connection goes back to the pool, which throws a spoilt one away.
func (o *ownConn) use(ctx context.Context, f func(context.Context, *pgxpool.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if o.conn == nil {
		conn, err := o.pool.Acquire(ctx)
		if err != nil {
			return &connectionError{err}
		}
		o.conn = conn
	}
	err := f(ctx, o.conn)
	if err == nil {
		return nil
	}
	if o.conn.Conn().IsClosed() {
		err = &connectionError{err}
	}
	o.release()
	return err
}

// release gives the connection back, if there is one.
func (o *ownConn) release() {
	if o.conn != nil {
		o.conn.Release()
		o.conn = nil
	}
}
