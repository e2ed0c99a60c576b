package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// troubled is a process with one connection in its pool, over a line.
type troubled struct {
	line *storetest.Line
	log  *store.Store
	pool *pgxpool.Pool
	id   string
}

func newTroubled(t *testing.T, db *storetest.DB, limits store.Limits, tryFor time.Duration) *troubled {
	t.Helper()
	line := storetest.NewLine(t, db.URL)
	config, err := pgxpool.ParseConfig(line.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	store.Guard(config, limits)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	// The test point makes every COMMIT a request by itself.
	log := store.New(pool, store.Options{BeforeCommit: func(context.Context) {}, PollEvery: never})
	store.TryFor(log, tryFor)
	if err := log.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		_ = log.Stop(ctx)
	})
	return &troubled{line: line, log: log, pool: pool, id: newSession(t, log)}
}

// backend is the process that serves the pool's connection.
func (p *troubled) backend(t *testing.T) (pid int) {
	t.Helper()
	if err := p.pool.QueryRow(limit(t), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

// times has the next n commits come to the same end.
func (p *troubled) times(n int32, f storetest.Fault) *atomic.Int32 {
	var seen atomic.Int32
	p.line.Faults(func(request []byte) storetest.Fault {
		if storetest.IsCommit(request) && seen.Add(1) <= n {
			return f
		}
		return storetest.Fault{}
	})
	return &seen
}

// TestEachTroubleIsMetAsTheTableSays: for each kind of trouble what the server
// would say comes in place of the answer to a COMMIT, which was rolled back.
func TestEachTroubleIsMetAsTheTableSays(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	cases := []struct {
		code         string
		fatal        bool
		again, fresh bool
		reason       string // "" for what is no trouble
	}{
		{"08006", false, true, true, loop.ReasonUnavailable},
		{"08P01", true, true, true, loop.ReasonUnavailable}, // as a pooler says it
		{"25006", false, true, true, loop.ReasonReadOnly},
		{"25P03", true, true, true, loop.ReasonUnavailable},
		{"40001", false, true, false, loop.ReasonUnavailable},
		{"40P01", false, true, false, loop.ReasonUnavailable},
		{"53000", false, true, false, loop.ReasonUnavailable},
		{"53100", false, true, false, loop.ReasonFull},
		{"53200", false, true, false, loop.ReasonUnavailable},
		{"53300", true, true, true, loop.ReasonConnections},
		{"55P03", false, true, false, loop.ReasonUnavailable},
		{"57014", false, false, false, loop.ReasonUnavailable},
		{"57P01", true, true, true, loop.ReasonUnavailable},
		{"57P02", true, true, true, loop.ReasonUnavailable},
		{"57P03", true, true, true, loop.ReasonStarting},
		{"58030", false, true, false, loop.ReasonUnavailable},
		{"22001", false, false, false, ""},
		{"42501", false, false, false, ""},
	}
	for _, code := range store.Troubles() {
		if !slices.ContainsFunc(cases, func(c struct {
			code         string
			fatal        bool
			again, fresh bool
			reason       string
		}) bool {
			return strings.HasPrefix(c.code, code)
		}) {
			t.Errorf("nothing here is of the row %s", code)
		}
	}
	for _, c := range cases {
		t.Run(c.code, func(t *testing.T) {
			t.Parallel()
			p := newTroubled(t, db, store.Limits{Acquire: soon, Answer: soon}, soon)
			pid := p.backend(t)
			seen := p.times(1, storetest.Fault{Code: c.code, Fatal: c.fatal})
			a := say(t, p.id, 1)
			_, err := p.log.Append(limit(t), a)
			var away *loop.UnavailableError
			switch {
			case c.again && (err != nil || seen.Load() < 2):
				t.Errorf("append: %v after %d attempts; want it made again", err, seen.Load())
			case !c.again && (err == nil || errors.As(err, &away) != (c.reason != "") || away != nil && away.Reason != c.reason):
				t.Errorf("append: %v, %+v; want to be told", err, away)
			case !c.again && c.code != "57014" && seen.Load() != 1:
				t.Errorf("%d attempts; want one", seen.Load())
			}
			if (p.backend(t) != pid) != c.fresh {
				t.Errorf("another connection afterwards: %t, want %t", !c.fresh, c.fresh)
			}
			if got := mustAppend(t, p.log, a); got.LastSeq != 2 || headOf(t, p.log, p.id).LastSeq != 2 {
				t.Errorf("the same append again: %+v; want seq 2, once", got)
			}
			if !c.again || c.code == "55P03" { // a lock is waited for, below
				return
			}
			impatient := newTroubled(t, db, store.Limits{Acquire: soon, Answer: soon}, 0)
			impatient.times(100, storetest.Fault{Code: c.code, Fatal: c.fatal})
			_, err = impatient.log.Append(limit(t), say(t, impatient.id, 1))
			if !errors.Is(err, loop.ErrUnavailable) || !errors.As(err, &away) || away.Reason != c.reason || away.Problem == "" {
				t.Errorf("for ever: %v, %+v; want %s", err, away, c.reason)
			}
		})
	}
}

func TestARowThatSomebodyHoldsForTooLongIsTold(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["lock_timeout"] = "20ms"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	log := store.New(pool, store.Options{})
	store.TryFor(log, 200*time.Millisecond)
	if err := log.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Stop(context.Background()) })
	id := newSession(t, log)
	tx, err := db.Pool.Begin(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(limit(t), `SELECT FROM agentd.sessions WHERE id = $1 FOR UPDATE`, id); err != nil {
		t.Fatal(err)
	}
	a := say(t, id, 1)
	_, err = log.Append(limit(t), a)
	if away := new(loop.UnavailableError); !errors.As(err, &away) {
		t.Errorf("append: %v; want that somebody holds the row", err)
	}
	if err := tx.Rollback(limit(t)); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, log, a)
}

func TestAPoolWithoutAConnectionIsToldAtOnce(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	p := newTroubled(t, db, store.Limits{Acquire: time.Second, Answer: soon}, soon)
	const many = 10
	sessions := make([]string, many)
	for i := range sessions {
		sessions[i] = newSession(t, p.log)
	}
	conn, err := p.pool.Acquire(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, id := range sessions {
		all.Go(func() {
			_, err := p.log.Append(limit(t), say(t, id, 1))
			var away *loop.UnavailableError
			if !errors.As(err, &away) || away.Reason != loop.ReasonPool {
				t.Errorf("append: %v; want that the pool is exhausted", err)
			}
		})
	}
	_, err = p.log.Head(limit(t), looptest.Tenant, p.id)
	if away := new(loop.UnavailableError); !errors.As(err, &away) || away.Reason != loop.ReasonPool {
		t.Errorf("read: %v; want that the pool is exhausted", err)
	}
	all.Wait()
	conn.Release()
	mustAppend(t, p.log, say(t, p.id, 1))
}

func TestADatabaseThatIsSilentIsToldAsUnavailable(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	p := newTroubled(t, db, store.Limits{Acquire: time.Second, Answer: time.Second}, soon)
	p.line.Hang()
	_, err := p.log.Head(limit(t), looptest.Tenant, p.id)
	if !errors.Is(err, loop.ErrUnavailable) {
		t.Errorf("read: %v; want ErrUnavailable", err)
	}
	a := say(t, p.id, 1)
	if _, err := p.log.Append(limit(t), a); !errors.Is(err, loop.ErrUnavailable) {
		t.Errorf("append: %v; want ErrUnavailable", err)
	}
	p.line.Speak()
	if got := mustAppend(t, p.log, a); got.LastSeq != 2 {
		t.Errorf("the same append later: %+v; want seq 2", got)
	}
}

// TestAReadOnlyDatabaseIsLeft: after a fail-over the old connections lead to a
// server that takes no writes any more.
func TestAReadOnlyDatabaseIsLeft(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	store.Guard(config, store.Limits{})
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var old []*pgxpool.Conn
	for range config.MaxConns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), `SET default_transaction_read_only = on`); err != nil {
			t.Fatal(err)
		}
		old = append(old, conn)
	}
	for _, conn := range old {
		conn.Release()
	}
	log := store.New(pool, store.Options{PollEvery: never})
	if err := log.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Stop(context.Background()) })
	newSession(t, log)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	var readOnly string
	if err := conn.QueryRow(t.Context(), `SHOW default_transaction_read_only`).Scan(&readOnly); err != nil || readOnly != "off" {
		t.Errorf("a connection to the old server is left: %s, %v", readOnly, err)
	}
}
