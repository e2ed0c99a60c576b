package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// troubleLease leaves a loaded machine the time for a heartbeat, and for one
// behind a restart of Postgres, so that nobody is declared dead. troubleAway is
// longer.
const (
	troubleLease = 5 * time.Second
	troubleAway  = 6 * time.Second
)

// troubledFleet is a fleet with one process before people and two that work.
type troubledFleet struct {
	*fleet
	front *server
	round int
}

func newTroubledFleet(t *testing.T, db *storetest.DB) *troubledFleet {
	t.Helper()
	f := &troubledFleet{fleet: newFleetOn(t, db)}
	f.env = append(f.env, "AGENTD_TOOL_PERMISSIONS=pay=ask", "AGENTD_LEASE="+troubleLease.String())
	f.spawn(t, "--roles", "api")
	f.spawn(t, "--roles", "worker")
	f.spawn(t, "--roles", "worker")
	f.ready(t)
	f.front = f.alive[0]
	return f
}

// inTheMiddle is a run that is being worked on.
type inTheMiddle struct {
	say, run, session string
	after             int64
	client            *follower
}

// begin starts one run of each kind and returns when all of them are in the
// middle: the text and the tool go on once the gate is open, and the third
// waits for a person.
func (f *troubledFleet) begin(t *testing.T) (runs []*inTheMiddle) {
	t.Helper()
	if err := os.Remove(f.gate); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	f.round++
	for _, say := range []string{"pause", toolCharge + " " + f.gate, toolPay + " " + holdNever} {
		r := &inTheMiddle{say: say, session: newSession(t, f.front)}
		r.run, r.after = startRun(t, f.front, r.session, fmt.Sprintf("%s r%d", say, f.round))
		r.client = follow(t, f.front.url, r.session, r.after)
		runs = append(runs, r)
	}
	awaitRow(t, f.db, fmt.Sprintf(`SELECT 'x' FROM agentd.events WHERE run_id = '%s' AND type = 'assistant.delta'`, runs[0].run))
	awaitEffect(t, f.effects, runs[1].run)
	f.pending(t, runs[2].run)
	return runs
}

func (f *troubledFleet) open(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(f.gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// end gives the answer that is waited for, and looks at everything: no run has
// failed or changed its worker, and nothing is lost or there twice.
func (f *troubledFleet) end(t *testing.T, runs []*inTheMiddle) {
	t.Helper()
	f.db.Pool.Reset()
	f.approve(t, f.front, runs[2].run)
	for _, r := range runs {
		if status := f.awaitEnd(t, r.run); status != "completed" {
			t.Errorf("%s: the run is %s", r.say, status)
		}
		all := checkSession(t, f.fleet, r.session)
		facts := ofRun(all, r.run)
		checkRun(t, facts)
		if r != runs[0] {
			if s := checkTool(t, f.fleet, facts); s.effects != 1 || s.result.IsError {
				t.Errorf("%s: %d effects, and the result is %+v", r.say, s.effects, s.result)
			}
		}
		if n := len(decoded[event.RunReleased](t, facts)); n != 0 {
			t.Errorf("%s: the run was taken away %d times", r.say, n)
		}
		// The stream ends when the session is idle, as it was for one that waited.
		client := r.client
		if r == runs[2] {
			<-client.done
			client = follow(t, f.front.url, r.session, r.after)
		}
		seen, _ := client.all(t)
		sameStory(t, "the client of "+r.say, seen, above(all, r.after))
	}
	if n := scalar[int](t, f.db, `SELECT count(*) FROM agentd.workers WHERE dead_at IS NOT NULL OR stopped_at IS NOT NULL`); n != 0 {
		t.Errorf("%d workers were given up", n)
	}
	f.verify(t)
}

// wantUnavailable asks for something, and expects to be told in time that the
// database is in this kind of trouble.
func wantUnavailable(t *testing.T, at *server, session, text string, reasons ...string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		_, err := startKeyed(t.Context(), at, session, text)
		var e *connect.Error
		if !errors.As(err, &e) || e.Code() != connect.CodeUnavailable {
			t.Fatalf("a message in trouble: %v; want to be told", err)
		}
		reason := e.Meta().Get("Agentd-Reason")
		switch {
		case slices.Contains(reasons, reason):
			return
		case reason != loop.ReasonUnavailable && reason != loop.ReasonStarting: // of a connection that has just broken
			t.Fatalf("a message in trouble: %v (%s); want one of %v", err, reason, reasons)
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("a message in trouble: %v; want one of %v", err, reasons)
		}
	}
}

// persist sends a message again for as long as the database is in trouble.
func persist(ctx context.Context, at *server, session, text string) (*agentdv1.StartRunResponse, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := startKeyed(ctx, at, session, text)
		if connect.CodeOf(err) != connect.CodeUnavailable {
			return got, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// TestRunsOutliveTheirPostgres: in the middle of runs it is stopped, politely
// and not, for a moment and for longer than every lease, and has no connection
// left for anybody.
func TestRunsOutliveTheirPostgres(t *testing.T) { //nolint:tparallel // there is one Postgres, which they stop in turns
	t.Parallel()
	pg := storetest.NewServer(t, "", map[string]string{"max_connections": "60"})
	f := newTroubledFleet(t, pg.DB(t))
	stop := func(how syscall.Signal) func(t *testing.T) func() {
		return func(t *testing.T) func() {
			t.Helper()
			pg.Stop(t, how)
			return func() { pg.Start(t) }
		}
	}
	for i, test := range []struct {
		name    string
		trouble func(t *testing.T) (over func())
		away    time.Duration
		reason  string // that a client is told meanwhile, "" if there is no time for one
		long    bool
	}{
		{"AFastRestart", stop(storetest.StopFast), 0, "", true},
		{"AnImmediateRestart", stop(storetest.StopImmediate), 0, "", false},
		{"AnOutageThatIsLongerThanTheLease", stop(storetest.StopImmediate), troubleAway, loop.ReasonUnavailable, true},
		{"NoConnectionIsLeft", f.takeConnections, troubleAway, loop.ReasonConnections, true},
		{"NoWriteIsTaken", f.takeNoWrites, troubleAway, loop.ReasonReadOnly, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.long {
				takesLong(t)
			}
			idle, text := newSession(t, f.front), fmt.Sprintf("say r%d", i)
			runs := f.begin(t)
			over := test.trouble(t)
			// What the model says and the tool returns has to wait for the database.
			f.open(t)
			if test.reason != "" {
				out := time.After(test.away) // every lease runs out, and there is nobody who could tell
				wantUnavailable(t, f.front, idle, text, test.reason)
				<-out
			}
			over()
			f.end(t, runs)
			if got, err := persist(t.Context(), f.front, idle, text); err != nil || f.awaitEnd(t, got.GetRunId()) != "completed" {
				t.Errorf("the message that was refused: %v, %v", got, err)
			}
		})
	}
}

// takeConnections takes all that the server has but for those of heartbeats.
func (f *troubledFleet) takeConnections(t *testing.T) (over func()) {
	t.Helper()
	var taken []*pgx.Conn
	take := func() {
		for {
			conn, err := pgx.Connect(t.Context(), f.db.URL)
			if err != nil {
				return
			}
			taken = append(taken, conn)
		}
	}
	take()
	// Whoever comes first gets what becomes free.
	for range 100 {
		n := len(taken)
		var ended int
		if err := taken[0].QueryRow(t.Context(), `
			SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'agentd'`).Scan(&ended); err != nil {
			t.Fatal(err)
		}
		if take(); ended == 0 && len(taken) == n {
			break
		}
	}
	return func() {
		for _, conn := range taken {
			_ = conn.Close(context.Background())
		}
	}
}

// takeNoWrites is what a fail-over leads to: every session that begins is on a
// server that takes no writes, and the old ones end.
func (f *troubledFleet) takeNoWrites(t *testing.T) (over func()) {
	t.Helper()
	name := pgx.Identifier{f.db.Name}.Sanitize()
	execute(t, f.db, `ALTER DATABASE `+name+` SET default_transaction_read_only = on`)
	execute(t, f.db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'agentd%'`)
	return func() {
		conn, err := pgx.Connect(t.Context(), f.db.URL)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{`SET default_transaction_read_only = off`, `ALTER DATABASE ` + name + ` RESET default_transaction_read_only`} {
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		_ = conn.Close(t.Context())
	}
}

// TestRunsOutliveTheEndOfAnyConnection: for some seconds, every connection of
// every process may be ended at any time.
func TestRunsOutliveTheEndOfAnyConnection(t *testing.T) {
	t.Parallel()
	rounds, runs := 40, 6
	if fullSize() {
		rounds, runs = 200, 60
	}
	f := newFleet(t)
	f.env = append(f.env, "AGENTD_LEASE="+troubleLease.String())
	f.spawn(t, "--roles", "api")
	f.spawn(t, "--roles", "worker")
	f.spawn(t, "--roles", "worker")
	f.ready(t)
	front := f.alive[0]
	sessions := make([]string, runs)
	for i := range sessions {
		sessions[i] = newSession(t, front)
	}
	began := make([]*agentdv1.StartRunResponse, runs)
	clients := make([]*follower, runs)
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() {
			var err error
			say := []string{"say", "stream", toolPut + " " + holdNever}[i%3]
			if say == "stream" { // whose first attempt does not end by itself
				say = toolCharge + " " + holdNever
			}
			if began[i], err = persist(t.Context(), front, sessions[i], fmt.Sprintf("%s r%d", say, i)); err != nil {
				t.Errorf("start: %v", err)
			}
		})
	}
	tick := time.NewTicker(50 * time.Millisecond)
	t.Cleanup(tick.Stop)
	ended := 0
	for range rounds {
		ended += scalar[int](t, f.db, `
			SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'agentd%' AND random() < 0.3`)
		<-tick.C
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for i, session := range sessions {
		clients[i] = follow(t, front.url, session, int64(began[i].GetAfter()))
		if status := f.awaitEnd(t, began[i].GetRunId()); status != "completed" {
			t.Errorf("run %d is %s", i, status)
		}
		facts := checkSession(t, f, session)
		checkRun(t, ofRun(facts, began[i].GetRunId()))
		if i%3 != 0 {
			checkTool(t, f, ofRun(facts, began[i].GetRunId()))
		}
		seen, _ := clients[i].all(t)
		sameStory(t, "a client", seen, above(facts, int64(began[i].GetAfter())))
	}
	if n := scalar[int](t, f.db, `SELECT count(*) FROM agentd.runs`); n != runs {
		t.Errorf("%d runs, want %d", n, runs)
	}
	if t.Logf("%d connections were ended", ended); ended < 5 {
		t.Error("next to none was ended")
	}
	f.verify(t)
}
