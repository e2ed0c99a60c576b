package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/worker"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// listen returns what is said on River's channel, one payload per call.
func listen(t *testing.T, db *storetest.DB) func() string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `LISTEN "agentd.river_insert"`); err != nil {
		t.Fatal(err)
	}
	return func() string {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return n.Payload
	}
}

func insert(t *testing.T, db *storetest.DB, jobs ...loop.Job) {
	t.Helper()
	q := worker.NewQueue()
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error { return q.InsertTx(t.Context(), tx, jobs) })
	if err != nil {
		t.Fatal(err)
	}
}

func TestInsertNotifiesNobodyInTheTransaction(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	next := listen(t, db)
	insert(t, db, loop.Job{RunID: looptest.NewID(), Ticket: 1})
	run(t, db, `SELECT pg_notify('agentd.river_insert', 'afterwards')`)
	if got := next(); got != "afterwards" {
		t.Errorf("the insert said %q", got)
	}
}

// TestAnAppendWakesRiver: the store sends the wake-up that River understands,
// where River's fetching client listens. Nothing else finds the jobs of this
// test.
func TestAnAppendWakesRiver(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	p := setup(t, db, callsTool("look"), looptest.Says("look", "seen"))
	p.work(t, func(c *worker.Config) { c.Poll, c.Sweep = 100*limit, 100*limit })
	eventually(t, "River listens", func() bool {
		return scalar[bool](t, db, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'LISTEN "agentd.river_%')`)
	})
	next := listen(t, db)
	for range 5 {
		j := p.Start(t, p.Session(t), "hello")
		if got := next(); got != `{"queue": "runs"}` {
			t.Fatalf("woken with %q", got)
		}
		p.await(t, j, ended)
	}
}

func TestInsertedJobs(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	soon, late := time.Now().Add(30*time.Second), time.Now().Add(time.Hour)
	insert(t, db)
	insert(t, db,
		loop.Job{TenantID: "default", SessionID: "s", RunID: "r1", Ticket: 7},
		loop.Job{RunID: "r2", Ticket: 1, NotBefore: soon},
		loop.Job{RunID: "r3", Ticket: 1, NotBefore: late})
	rows, err := db.Pool.Query(t.Context(), `
		SELECT args ->> 'run_id' AS run, state::text AS state, scheduled_at <= now() - interval '1 day' AS due,
			kind, queue, max_attempts AS attempts, unique_key IS NULL AS free
		FROM agentd.river_job ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	type job struct {
		Run, State  string
		Due         bool
		Kind, Queue string
		Attempts    int
		Free        bool
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByName[job])
	if err != nil {
		t.Fatal(err)
	}
	want := []job{
		{"r1", "available", true, "agentd_advance", "runs", 1, true},
		// r2 is the sweeper's: River's mover would be late.
		{"r3", "scheduled", false, "agentd_advance", "runs", 1, true},
	}
	if len(got) != len(want) {
		t.Fatalf("got %d jobs, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("job %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	args := scalar[string](t, db, `SELECT args::text FROM agentd.river_job ORDER BY id LIMIT 1`)
	if want := `{"run_id": "r1", "ticket": 7, "tenant_id": "default", "session_id": "s"}`; args != want {
		t.Errorf("args are %s, want %s", args, want)
	}
}

func TestAnInsertThatFailsSaysSo(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	q := worker.NewQueue()
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := q.InsertTx(t.Context(), tx, []loop.Job{{RunID: "r"}}); err == nil {
		t.Error("an insert in a transaction that has ended succeeded")
	}
}
