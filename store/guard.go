package store

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// connectLimit is for a host that answers nothing, unless the URL has a
	// connect_timeout.
	connectLimit = 5 * time.Second
	// What was sent and not acknowledged for so long ends the connection, and so
	// does a silence in which no keepalive is answered: together about 25 s.
	unacknowledgedLimit = 15 * time.Second
	keepAliveIdle       = 10 * time.Second
	keepAliveInterval   = 5 * time.Second
	keepAliveCount      = 3
	// pingIdle is how long a connection may have been idle that is used as if it
	// were alive, if nothing has come over it since.
	pingIdle = time.Second
)

// Limits are how long the users of a pool wait. A zero field waits for as long
// as the caller does.
type Limits struct {
	// Acquire is for a connection, while all of them are in use or no new one
	// comes about.
	Acquire time.Duration
	// Answer is for a statement, or a batch of them. It is for a server that is
	// silent: one that works ends long statements by itself, so it should be
	// longer than the statement_timeout.
	Answer time.Duration
}

var (
	errPoolExhausted = errors.New("all connections of the pool are in use")
	errNoAnswer      = errors.New("the database does not answer")
)

// Guard prepares a pool for a database that may fail over, run full, or fall
// silent: its users wait for a limited time, connections that are dead or lead
// to a server that takes no writes any more are thrown away. Call it before
// the pool is made. A tracer that the config has already stays, and then there
// are no limits.
func Guard(config *pgxpool.Config, limits Limits) {
	c := config.ConnConfig
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = connectLimit
	}
	dialer := &net.Dialer{
		Timeout:         c.ConnectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount},
		Control: func(network, _ string, conn syscall.RawConn) error {
			if !strings.HasPrefix(network, "tcp") {
				return nil
			}
			return limitUnacknowledged(conn, unacknowledgedLimit)
		},
	}
	c.DialFunc = dialer.DialContext
	c.OnPgError = func(_ *pgconn.PgConn, err *pgconn.PgError) bool {
		t, ok := troubleOf(err.Code)
		return !strings.EqualFold(err.Severity, "FATAL") && (!ok || !t.fresh)
	}
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		// After a restart of the server every connection is dead, and would fail
		// a request.
		return p.IdleDuration > pingIdle || !silentSoFar(p.Conn.PgConn().Conn())
	}
	if c.Tracer == nil {
		c.Tracer = guard{limits}
	}
}

// guard puts limits on what is done with a pool.
type guard struct{ limits Limits }

var (
	_ pgx.QueryTracer       = guard{}
	_ pgx.BatchTracer       = guard{}
	_ pgxpool.AcquireTracer = guard{}
)

// limitedContext ends with its parent, whose end is not the fault of anybody
// here, or after the limit, which is what why says.
type limitedContext struct {
	context.Context //nolint:containedctx // it is one
	parent          context.Context
	cancel          context.CancelFunc
	why             func() error
}

func limited(parent context.Context, limit time.Duration, why func() error) context.Context {
	if limit <= 0 {
		return parent
	}
	ctx, cancel := context.WithTimeout(parent, limit)
	return &limitedContext{ctx, parent, cancel, why}
}

func (c *limitedContext) Err() error {
	switch {
	case c.Context.Err() == nil:
		return nil
	case c.parent.Err() != nil:
		return c.parent.Err()
	}
	return c.why()
}

func freeLimit(ctx context.Context) {
	if c, ok := ctx.(*limitedContext); ok {
		c.cancel()
	}
}

// TraceAcquireStart implements [pgxpool.AcquireTracer].
func (g guard) TraceAcquireStart(ctx context.Context, pool *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return limited(ctx, g.limits.Acquire, func() error {
		if s := pool.Stat(); s.AcquiredConns() == s.MaxConns() {
			return errPoolExhausted
		}
		return errNoAnswer
	})
}

// TraceAcquireEnd implements [pgxpool.AcquireTracer].
func (guard) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	freeLimit(ctx)
}

func silent() error { return errNoAnswer }

// TraceQueryStart implements [pgx.QueryTracer].
func (g guard) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return limited(ctx, g.limits.Answer, silent)
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (guard) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) { freeLimit(ctx) }

// TraceBatchStart implements [pgx.BatchTracer].
func (g guard) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return limited(ctx, g.limits.Answer, silent)
}

// TraceBatchQuery implements [pgx.BatchTracer].
func (guard) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements [pgx.BatchTracer].
func (guard) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) { freeLimit(ctx) }
