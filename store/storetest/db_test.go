package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestNewGivesEachTestAMigratedDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	const n = 4
	dbs := make([]*DB, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { dbs[i] = New(t) })
	}
	all.Wait()
	for i, db := range dbs {
		if db == nil {
			t.Fatal("no database")
		}
		if _, err := db.Pool.Exec(t.Context(), `INSERT INTO agentd.tenants (id, name) VALUES ('mine', $1)`, fmt.Sprint(i)); err != nil {
			t.Error(err)
		}
	}
}

func TestEndDropsTheDatabaseWithTheSessionsThatAreLeft(t *testing.T) {
	t.Parallel()
	r := &recorder{name: "left"}
	db := New(r, Empty)
	left, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.end()
	if err := left.Ping(t.Context()); err == nil {
		t.Error("the session outlived its database")
	}
	_, err = pgx.Connect(t.Context(), db.URL)
	if pgErr := new(pgconn.PgError); !errors.As(err, &pgErr) || pgErr.Code != "3D000" {
		t.Errorf("connect after the end: %v, want no such database", err)
	}
}

func TestAnInterruptedClusterDoesNotStart(t *testing.T) {
	t.Parallel()
	c := &cluster{}
	if err := c.abandon(); err != nil {
		t.Error(err)
	}
	if _, err := c.create(t.Context(), "x", false); !errors.Is(err, errOver) {
		t.Errorf("create after the end: %v", err)
	}
}

func TestNewSaysWhatIsWrongWithTheDatabase(t *testing.T) {
	t.Parallel()
	db := New(t, Empty)
	if _, err := shared.create(t.Context(), db.Name, true); err == nil || !strings.Contains(err.Error(), "create database") {
		t.Errorf("a second database of the same name: %v", err)
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	db := New(t)
	now := func() (at time.Time) {
		t.Helper()
		if err := db.Pool.QueryRow(t.Context(), `SELECT agentd.clock()`).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	fixed := time.Date(2031, 2, 3, 4, 5, 6, 789000, time.UTC)
	db.SetClock(t, fixed)
	if got := now(); !got.Equal(fixed) {
		t.Errorf("clock = %v, want %v", got, fixed)
	}
	db.ShiftClock(t, -time.Hour)
	if behind := time.Since(now()); behind < time.Hour || behind > time.Hour+time.Minute {
		t.Errorf("clock is %v behind, want an hour", behind)
	}
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	name     string
	errors   []string
	cleanups []func()
}

func (r *recorder) Name() string             { return r.name }
func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return context.Background() }
func (r *recorder) Cleanup(f func())         { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (r *recorder) Error(args ...any)                 { r.errors = append(r.errors, fmt.Sprint(args...)) }
func (r *recorder) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (r *recorder) end() {
	for _, f := range r.cleanups {
		f()
	}
}

// A session whose row says more than its log.
const wrongProjection = `
	INSERT INTO agentd.sessions (id, tenant_id, created_at, updated_at, last_seq, append_id)
	VALUES (gen_random_uuid(), 'default', agentd.clock(), agentd.clock(), 7, gen_random_uuid())`

func TestEndVerifies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		opts  []Option
		fails bool
	}{{"verified", nil, true}, {"unverified", []Option{Unverified}, false}} {
		r := &recorder{name: test.name}
		db := New(r, test.opts...)
		if _, err := db.Pool.Exec(t.Context(), wrongProjection); err != nil {
			t.Fatal(err)
		}
		r.end()
		if failed := len(r.errors) > 0; failed != test.fails {
			t.Errorf("%s: failed = %t: %q", test.name, failed, r.errors)
		}
	}
}

func TestEndSaysThatTheDatabaseIsGone(t *testing.T) {
	t.Parallel()
	r := &recorder{name: "gone"}
	db := New(r)
	if err := shared.drop(t.Context(), db.Name); err != nil {
		t.Fatal(err)
	}
	r.end()
	for _, want := range []string{"verify", "drop database"} {
		if !strings.Contains(strings.Join(r.errors, "\n"), want) {
			t.Errorf("no error about %q in %q", want, r.errors)
		}
	}
}

func TestDatabaseNameFitsAndTellsTheTest(t *testing.T) {
	t.Parallel()
	got := databaseName("TestX/"+strings.Repeat("A b", 40), 12)
	if len(got) != 63 || !strings.HasPrefix(got, "t12_testx_a_ba_b") {
		t.Errorf("databaseName = %q", got)
	}
}
