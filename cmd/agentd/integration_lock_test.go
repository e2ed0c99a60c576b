package main

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// lockSession takes the session's row and returns what it says, and a function
// that gives it back.
func lockSession(t *testing.T, db *storetest.DB, sessionID string) (lastSeq int64, release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0`); err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow(t.Context(), `SELECT last_seq FROM agentd.sessions WHERE id = $1 FOR UPDATE`, sessionID).Scan(&lastSeq); err != nil {
		t.Fatal(err)
	}
	return lastSeq, func() {
		t.Helper()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitWaits returns when somebody has begun to wait for a lock so many times:
// each but the last has ended in a timeout. Nobody signals that, so it polls.
func awaitWaits(t *testing.T, db *storetest.DB, times int) {
	t.Helper()
	seen := map[string]bool{}
	deadline, tick := time.After(patience), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for len(seen) < times {
		rows, err := db.Pool.Query(t.Context(), `
			SELECT pid || ' ' || query_start FROM pg_catalog.pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`)
		if err != nil {
			t.Fatal(err)
		}
		waits, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range waits {
			seen[w] = true
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("somebody waited for the row %d times, want %d", len(seen), times)
		}
	}
}

func TestNothingIsShownThatIsNotCommitted(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	if err := store.ConfigureRole(t.Context(), db.URL, store.RoleSettings{LockTimeout: 300 * time.Millisecond, IdleInTransaction: idleInTransaction}); err != nil {
		t.Fatal(err)
	}
	words := make(chan string)
	speak := func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		for {
			select {
			case word, ok := <-words:
				if !ok {
					yield(looptest.Finish(stream.FinishStop), nil)
					return
				}
				if !yield(looptest.Text(word), nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
	free := chatter(200)
	s := newStack(t, db)
	id, other := s.Session(t), s.Session(t)
	model := looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		if req.SessionID == other {
			free(ctx, req, yield)
			return
		}
		speak(ctx, req, yield)
	})
	s = s.again(t, playing(model))
	elsewhere := newStack(t, db)

	job, otherJob := s.Start(t, id, "speak"), s.Start(t, other, "speak")
	here, there := s.listen(t, id, "?until=idle", fromStart), elsewhere.listen(t, id, "?until=idle", fromStart)
	beside := s.listen(t, other, "?until=idle", fromStart)
	watching := s.watch(t, id, 0)
	run := s.advance(t, job)
	words <- "before "
	lastSeq, release := lockSession(t, db, id)
	for range 50 {
		words <- "while it is locked "
	}

	// Everything that is committed comes, and the other session goes on to its end.
	got, gotThere := here.facts(t, int(lastSeq)), there.facts(t, int(lastSeq))
	otherRun := s.advance(t, otherJob)
	besides := beside.facts(t, toTheEnd)
	otherRun.wait(t)
	sameStory(t, "the other session", besides, stored(t, db, other))
	if n := len(besides); n < 200 {
		t.Errorf("the other session has %d events", n)
	}

	more := make(chan sseFrame, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if fr, err := here.event(); err == nil {
			more <- fr
		}
	}()
	awaitWaits(t, db, 4)
	if n := scalar[int64](t, db, `SELECT count(*) FROM agentd.events WHERE session_id = $1`, id); n != lastSeq {
		t.Errorf("%d events are stored while the row is locked, want %d", n, lastSeq)
	}
	select {
	case fr := <-more:
		t.Errorf("%s was shown before it was committed", fr.data)
	case <-run.ended:
		t.Errorf("the run has given up: %v", run.err)
	default:
	}
	if n := len(s.listed(t, id, 0, 500)); n != int(lastSeq) {
		t.Errorf("%d events are listed, want %d", n, lastSeq)
	}

	release()
	words <- "after"
	close(words)
	run.wait(t)
	<-ended
	select {
	case fr := <-more:
		got = append(got, toldBySSE(t, fr))
	default:
		t.Error("the stream ended while the row was locked")
	}
	want := stored(t, db, id)
	sameStory(t, "stream", append(got, here.facts(t, toTheEnd)...), want)
	sameStory(t, "stream elsewhere", append(gotThere, there.facts(t, toTheEnd)...), want)
	sameStory(t, "watch", watched(t, watching), want)
	if above(want, lastSeq) == nil {
		t.Error("nothing was stored after the lock")
	}
}
