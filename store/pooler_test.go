package store_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestAPoolerInTransactionModeIsRecognised(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for name, c := range map[string]struct {
		url  string
		want bool
	}{
		"no pooler":        {db.URL, false},
		"session mode":     {storetest.NewBouncer(t, db.URL, storetest.BouncerSession), false},
		"transaction mode": {storetest.NewBouncer(t, db.URL, storetest.BouncerTransaction), true},
	} {
		config, err := pgx.ParseConfig(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := store.Pooled(t.Context(), config); err != nil || got != c.want {
			t.Errorf("%s: %t, %v; want %t", name, got, err, c.want)
		}
	}
}

// TestAPoolerIsRecognisedWhateverItHasAtHand: somebody else has come and gone
// between the two sessions of the test for it, and what he had is used next, by
// turns with what the first of them had.
func TestAPoolerIsRecognisedWhateverItHasAtHand(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	config, err := pgx.ParseConfig(storetest.NewBouncer(t, db.URL, storetest.BouncerTransaction) + "?sslmode=disable") // one dial for each session
	if err != nil {
		t.Fatal(err)
	}
	plain := config.Copy()
	plain.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	var others [2]*pgx.Conn
	for i := range others {
		if others[i], err = pgx.ConnectConfig(t.Context(), plain); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = others[i].Close(context.Background()) })
	}
	sessions, dial := 0, config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if sessions++; sessions == 2 {
			for _, statement := range []string{`BEGIN`, `SELECT 1`, `ROLLBACK`} {
				for _, other := range others {
					if _, err := other.Exec(ctx, statement); err != nil {
						return nil, err
					}
				}
			}
		}
		return dial(ctx, network, addr)
	}
	if got, err := store.Pooled(t.Context(), config); err != nil || !got || sessions != 2 {
		t.Errorf("%t, %v, in %d sessions", got, err, sessions)
	}
}

func TestMigrateRefusesAPooler(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Empty)
	pooler := storetest.NewBouncer(t, db.URL, storetest.BouncerTransaction)
	err := store.Migrate(t.Context(), pooler, slog.New(slog.DiscardHandler))
	if !errors.Is(err, store.ErrPooled) || !strings.Contains(err.Error(), "give the address of Postgres itself") {
		t.Errorf("migrate: %v; want that it is refused", err)
	}
	if err := store.Migrate(t.Context(), db.URL, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("migrate without it: %v", err)
	}
}

// pooledStore is a store behind a pooler, which another one shares.
func pooledStore(t *testing.T, pooler string, opts store.Options) *store.Store {
	t.Helper()
	config, err := pgxpool.ParseConfig(pooler)
	if err != nil {
		t.Fatal(err)
	}
	store.Guard(config, store.Limits{Acquire: soon, Answer: soon})
	store.Adapt(config.ConnConfig, false)
	opts.Pooled = true
	return startStoreOn(t, config, opts)
}

func TestEventsArriveBehindAPoolerByPolling(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	pooler := storetest.NewBouncer(t, db.URL, storetest.BouncerTransaction)
	here, there := pooledStore(t, pooler, store.Options{}), pooledStore(t, pooler, store.Options{})
	id := newSession(t, here)
	mustFollow(t, there, id, 0, 1)
	for seq := int64(1); seq < 10; seq++ {
		mustAppend(t, here, say(t, id, seq))
		mustFollow(t, there, id, seq, seq+1)
	}
	var listening int
	if err := db.Pool.QueryRow(t.Context(), `
		SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'`).Scan(&listening); err != nil || listening != 0 {
		t.Errorf("%d sessions listen where nobody hears, %v", listening, err)
	}
}

// TestEventsArrivePastAPooler: nothing polls here, so they were heard of.
func TestEventsArrivePastAPooler(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	pooler := storetest.NewBouncer(t, db.URL, storetest.BouncerTransaction)
	direct, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	here := pooledStore(t, pooler, store.Options{PollEvery: never, Direct: direct})
	there := pooledStore(t, pooler, store.Options{PollEvery: never, Direct: direct})
	id := newSession(t, here)
	mustFollow(t, there, id, 0, 1)
	listeners(t, db, 2, []int32{})
	mustAppend(t, here, say(t, id, 1))
	mustFollow(t, there, id, 1, 2)
}

func TestAWorkerBehindAPoolerLivesByItsLeaseAlone(t *testing.T) {
	t.Parallel()
	w := newWorkers(t)
	pooler := storetest.NewBouncer(t, w.URL, storetest.BouncerTransaction)
	other := w.join()
	behind := one{store.NewLeases(pooledStore(t, pooler, store.Options{PollEvery: never})), looptest.NewID()}
	t.Cleanup(behind.Close)
	if _, err := behind.Join(t.Context(), loop.Joining{ID: behind.id, Version: "v1"}, lease); err != nil {
		t.Fatal(err)
	}
	w.beat(behind)
	if !w.holds(`SELECT pooled FROM agentd.workers WHERE id = $1`, behind.id) || w.holds(`SELECT pooled FROM agentd.workers WHERE id = $1`, other.id) {
		t.Error("the table does not say who is behind a pooler")
	}
	if n := w.holds(`SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); !n {
		t.Error("a lock was left in a server process that is anybody's")
	}
	w.pass(lease / 2)
	w.beat(other)
	w.pass(lease / 2)
	w.beat(other)
	w.beat(behind)
	w.wantDead(other)
	// Its heartbeat is late, as that of one whose connection is gone.
	w.pass(stale + time.Millisecond)
	w.beat(other)
	w.wantDead(other)
	w.wantDead(other)
	w.pass(lease - stale)
	w.beat(other)
	w.wantDead(other, behind.id)
}

func TestRolesAreConfiguredThroughAPooler(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	pooler := storetest.NewBouncer(t, db.URL, storetest.BouncerTransaction)
	for range 3 {
		if err := store.ConfigureRole(t.Context(), pooler, store.RoleSettings{LockTimeout: 4 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	conn := connect(t, db.URL)
	var limit string
	if err := conn.QueryRow(context.Background(), `SHOW lock_timeout`).Scan(&limit); err != nil || limit != "4s" {
		t.Errorf("lock_timeout is %s, %v; want 4s", limit, err)
	}
}

// TestLogConformanceBehindAPooler: one pooler for all of its databases.
func TestLogConformanceBehindAPooler(t *testing.T) {
	t.Parallel()
	if os.Getenv("AGENTD_FULL_SIZE") == "" {
		t.Skip("make test-full-size runs this")
	}
	bouncer, err := url.Parse(storetest.NewBouncer(t, storetest.New(t).URL, storetest.BouncerTransaction))
	if err != nil {
		t.Fatal(err)
	}
	looptest.TestLog(t, func(t *testing.T) loop.Log {
		db := storetest.New(t)
		own, err := url.Parse(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		own.Host = bouncer.Host
		return clocked{pooledStore(t, own.String(), store.Options{Queue: jobs{}}), db}
	})
}
