package store

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-2ca4966b/agentd/loop"
)

// trouble is a state of the database, or of the way to it, that is no fault of
// what was asked: asked later, the same may succeed.
type trouble struct {
	// code is the SQLSTATE, or how it begins.
	code string
	// again says that the committer sends an append again by itself, some times,
	// before its caller is told. The caller may always repeat it.
	again bool
	// fresh says that the connection is thrown away, although the server would
	// go on with it.
	fresh bool
	// reason and problem are what clients are told.
	reason, problem string
}

const (
	unreachable = "the database cannot be reached right now: try again"
	lacking     = "the database server has run out of something: look at its log, and try again"
	inTheWay    = "somebody else holds what the request needs in the database: try again"
)

// troubles is searched from the top. What is not in it is a fault of the
// statement, and is never sent again. A server that ends a session (FATAL) takes
// the connection with it, whatever the code.
var troubles = []trouble{
	{"08", true, true, loop.ReasonUnavailable, unreachable},
	{"25006", true, true, loop.ReasonReadOnly, "the database takes no writes, as one that is not the primary any more or is switched to read-only: try again, and check where AGENTD_DATABASE_URL leads"},
	{"25P03", true, true, loop.ReasonUnavailable, unreachable},
	{"40", true, false, loop.ReasonUnavailable, inTheWay},
	{"53100", true, false, loop.ReasonFull, "the disk of the database is full: make room there; the request may be sent again"},
	{"53300", true, false, loop.ReasonConnections, "the database has no connection left (max_connections): close some, or raise it; the request may be sent again"},
	{"53", true, false, loop.ReasonUnavailable, lacking},
	{"55P03", true, false, loop.ReasonUnavailable, inTheWay},
	// Not again: what has taken too long would take as long once more.
	{"57014", false, false, loop.ReasonUnavailable, "the database has taken too long: try again"},
	{"57P03", true, true, loop.ReasonStarting, "the database is starting up, shutting down or recovering: try again in a moment"},
	{"57", true, true, loop.ReasonUnavailable, unreachable},
	{"58", true, false, loop.ReasonUnavailable, lacking},
}

var (
	noAnswer      = trouble{"", true, true, loop.ReasonUnavailable, unreachable}
	poolExhausted = trouble{"", false, false, loop.ReasonPool, "all database connections of this agentd are in use: try again; if that lasts, raise pool_max_conns in AGENTD_DATABASE_URL"}
)

// troubleIn says which trouble an error is, if it is one. That the caller's
// time is over, or the caller gone, is none.
func troubleIn(err error) (trouble, bool) {
	if errors.Is(err, errPoolExhausted) {
		return poolExhausted, true
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		if t, ok := troubleOf(pg.Code); ok {
			return t, true
		}
	}
	if broken := new(connectionError); errors.As(err, &broken) || errors.Is(err, errNoAnswer) {
		return noAnswer, true
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return trouble{}, false
	}
	var connect *pgconn.ConnectError
	var network net.Error
	if errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return noAnswer, true
	}
	return trouble{}, false
}

func troubleOf(code string) (trouble, bool) {
	for _, t := range troubles {
		if strings.HasPrefix(code, t.code) {
			return t, true
		}
	}
	return trouble{}, false
}

// transient says whether the committer sends the same append again by itself.
// An error that says nothing of the connection is not one: it came from the
// queue, or from the encoding of a value.
func transient(err error) bool {
	var pg *pgconn.PgError
	broken := new(connectionError)
	if !errors.As(err, &broken) && !errors.As(err, &pg) {
		return false
	}
	t, ok := troubleIn(err)
	return ok && t.again
}
