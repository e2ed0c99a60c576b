package storetest

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop/audit"
	"github.com/seed-2ca4966b/agentd/store"
)

const (
	poolConns = 10
	// verifyLimit is for a log of hundreds of megabytes beside other tests.
	verifyLimit = 5 * time.Minute
	dropLimit   = 2 * time.Minute
)

// DB is a database of one test. It is safe for concurrent use.
type DB struct {
	// Name of the database, for people who look at a failed test.
	Name string
	// URL connects over TCP as a superuser; the password is in it.
	URL string
	// Pool is closed when the test ends.
	Pool *pgxpool.Pool
}

// Option changes what [New] does.
type Option func(*options)

type options struct{ empty, unverified bool }

// Empty makes a database without agentd's schema, which is not verified.
func Empty(o *options) { o.empty, o.unverified = true, true }

// Unverified is for a test that breaks what it stored.
func Unverified(o *options) { o.unverified = true }

var (
	counter  atomic.Int64
	notPlain = regexp.MustCompile(`[^a-z0-9]+`)
)

// New makes a database for t. When t ends, the database is verified, and t
// fails if its projections are not what its log folds to; then it is dropped,
// with whatever sessions are left. Cleanups run last in first out: what t
// starts on the database after New has stopped by then.
func New(t testing.TB, opts ...Option) *DB {
	t.Helper()
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	name := databaseName(t.Name(), counter.Add(1))
	ctx, cancel := withLimit(startLimit)
	defer cancel()
	url, err := shared.create(ctx, name, o.empty)
	if err != nil {
		t.Fatalf("storetest: %v", err)
	}
	pool, err := openPool(ctx, url)
	if err != nil {
		t.Fatalf("storetest: open pool: %v", err)
	}
	db := &DB{Name: name, URL: url, Pool: pool}
	t.Cleanup(func() { db.end(t, o) })
	return db
}

func openPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = poolConns
	return pgxpool.NewWithConfig(ctx, cfg)
}

// databaseName is at most 63 bytes and says which test it was.
func databaseName(test string, n int64) string {
	name := fmt.Sprintf("t%d_%s", n, notPlain.ReplaceAllString(strings.ToLower(test), "_"))
	return name[:min(len(name), 63)]
}

func (db *DB) end(t testing.TB, o options) {
	if !o.unverified {
		db.verify(t)
	}
	db.Pool.Close()
	ctx, cancel := withLimit(dropLimit)
	defer cancel()
	if err := shared.drop(ctx, db.Name); err != nil {
		t.Errorf("storetest: %v", err)
	}
}

// verify folds the log of every session and compares.
func (db *DB) verify(t testing.TB) {
	ctx, cancel := withLimit(verifyLimit)
	defer cancel()
	report, err := store.VerifyStrict(ctx, db.Pool)
	if err != nil {
		t.Errorf("storetest: %v", err)
	}
	for _, d := range honest(report.Differences) {
		t.Errorf("storetest: %s is not what its log says: %v", db.Name, d)
	}
	shared.databases.Add(1)
	shared.toolCalls.Add(report.ToolCalls)
}

// honest leaves out what breaks a rule in a session to which a test has written
// events by its own hand, as no worker does: that is known, and asks for nothing.
func honest(all []store.Difference) []store.Difference {
	byHand := map[string]bool{}
	for _, d := range all {
		if d.Column == string(audit.RuleLease) && d.Want == store.WantRule {
			byHand[session(d)] = true
		}
	}
	return slices.DeleteFunc(all, func(d store.Difference) bool { return d.Want == store.WantRule && byHand[session(d)] })
}

// session is that of an event or of a decision.
func session(d store.Difference) string {
	id, _, _ := strings.Cut(d.Row, "/")
	return id
}

// SetClock stops the database's clock at a time. The hosts' clocks, which
// stamp the events, go on.
func (db *DB) SetClock(t testing.TB, at time.Time) {
	t.Helper()
	db.replaceClock(t, fmt.Sprintf(`SELECT timestamptz '%s'`, at.UTC().Format("2006-01-02 15:04:05.999999Z07:00")))
}

// ShiftClock makes the database's clock run by so much ahead of the true time,
// or behind it; 0 makes it right again.
func (db *DB) ShiftClock(t testing.TB, by time.Duration) {
	t.Helper()
	db.replaceClock(t, fmt.Sprintf(`SELECT pg_catalog.clock_timestamp() + interval '%d microseconds'`, by.Microseconds()))
}

func (db *DB) replaceClock(t testing.TB, body string) {
	t.Helper()
	_, err := db.Pool.Exec(t.Context(), `
		CREATE OR REPLACE FUNCTION agentd.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$`+body+`$$`)
	if err != nil {
		t.Fatalf("storetest: set clock: %v", err)
	}
}
