package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func emission(attempt int, channel string, n int) event.Emission {
	return event.Emission{Attempt: attempt, Observer: "counter", Channel: channel, Envelope: json.RawMessage(fmt.Sprintf(`{"n":%d,"n":%d.0}`, n, n)), Chunk: n}
}

// calling is a run whose model is being called.
func calling(t *testing.T, log loop.Log) (sessionID, runID string) {
	t.Helper()
	sessionID, runID = started(t, log)
	mustAppend(t, log, appendOf(sessionID, headOf(t, log, sessionID).LastSeq,
		encode(t, sessionID, runID, 1, event.TurnStarted{}), encode(t, sessionID, runID, 1, event.ModelRequested{Attempt: 1, Model: "m"})))
	return sessionID, runID
}

func TestEmissionsSayWhetherTheirCallCounts(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, run := calling(t, s)
	at := headOf(t, s, id).LastSeq
	in := func(p event.Payload) event.Event { return encode(t, id, run, 1, p) }
	const query = `SELECT seq - $2::bigint, turn_no, attempt, observer, channel, chunk, envelope::text, discarded, tenant_id, run_id = $3
		FROM agentd.emissions WHERE session_id = $1 ORDER BY seq`
	mustAppend(t, s, appendOf(id, at, in(event.AssistantDelta{Attempt: 1, Lane: stream.LaneText, BlockID: "0", Text: "a"}), in(emission(1, "metrics", 1))))
	wantLines(t, "under way", lines(t, db, query, id, at, run), []string{`2|1|1|counter|metrics|1|{"n":1,"n":1.0}|false|default|true`})
	mustAppend(t, s, appendOf(id, at+2, in(event.AssistantDiscarded{Attempt: 1, Reason: "interrupted"})))
	wantLines(t, "discarded", lines(t, db, query, id, at, run), []string{`2|1|1|counter|metrics|1|{"n":1,"n":1.0}|true|default|true`})
	mustAppend(t, s, appendOf(id, at+3, in(event.ModelRequested{Attempt: 2, Model: "m"}), in(emission(2, "other", 2)),
		in(event.AssistantCompleted{Attempt: 2, MessageID: looptest.NewID(), Finish: stream.FinishStop}), in(event.TurnCompleted{})))
	wantLines(t, "made again", lines(t, db, query, id, at, run), []string{
		`2|1|1|counter|metrics|1|{"n":1,"n":1.0}|true|default|true`, `5|1|2|counter|other|2|{"n":2,"n":2.0}|false|default|true`,
	})
	wantLines(t, "timeline", lines(t, db, `SELECT summary FROM agentd.timeline WHERE session_id = $1 AND type = 'emission' ORDER BY seq`, id), []string{
		`counter on metrics: {"n":1,"n":1.0}`, `counter on other: {"n":2,"n":2.0}`,
	})
}

// TestAnEnvelopeThatPostgresCannotReadStopsNoConsumer: escapes that JSON allows, and
// Postgres does not, would break each query that comes upon them.
func TestAnEnvelopeThatPostgresCannotReadStopsNoConsumer(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, run := calling(t, s)
	odd := emission(1, "metrics", 1)
	odd.Envelope = json.RawMessage(`{"said":"\ud83d and \u0000","\udc00":"\ud83d\ude00"}`)
	mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq, encode(t, id, run, 1, odd), encode(t, id, run, 1, emission(1, "metrics", 2))))
	settled(t, db)
	wantLines(t, "emissions", lines(t, db, `SELECT envelope ->> 'said', envelope ->> 'n' FROM agentd.emissions_after('', 9, 'metrics')`), []string{
		"\uFFFD and \uFFFD|<nil>", "<nil>|2.0",
	})
	wantLines(t, "timeline", lines(t, db, `SELECT summary FROM agentd.timeline WHERE type = 'emission' ORDER BY seq LIMIT 1`), []string{
		"counter on metrics: {\"said\":\"\uFFFD and \uFFFD\",\"\uFFFD\":\"\\ud83d\\ude00\"}",
	})
}

// consumer reads all sessions, from where it was.
type consumer struct {
	db      *storetest.DB
	channel *string
	cursor  string
	got     []string
}

// read takes what there is, and returns how much that was.
func (c *consumer) read(ctx context.Context, atMost int) (int, error) {
	rows, _ := c.db.Pool.Query(ctx, `SELECT cursor, session_id || '/' || seq FROM agentd.emissions_after($1, $2, $3)`, c.cursor, atMost, c.channel)
	type line struct{ Cursor, Name string }
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[line])
	for _, l := range found {
		c.cursor = l.Cursor
		c.got = append(c.got, l.Name)
	}
	return len(found), err
}

// settled waits until no transaction of the cluster, of other tests too, is open that
// began before the last emission was stored.
func settled(t *testing.T, db *storetest.DB) {
	t.Helper()
	waitFor(t, db, `SELECT max(xid) < pg_snapshot_xmin(pg_current_snapshot()) FROM agentd.emission_order`)
}

// waitFor asks again and again until the answer is yes: of other transactions there
// is no signal.
func waitFor(t *testing.T, db *storetest.DB, query string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx := limit(t); ; <-tick.C {
		var yes bool
		err := db.Pool.QueryRow(ctx, query).Scan(&yes)
		switch {
		case err != nil:
			t.Fatal(err)
		case yes:
			return
		}
	}
}

// readAll reads in pages of two.
func (c *consumer) readAll(t *testing.T) []string {
	t.Helper()
	for {
		n, err := c.read(limit(t), 2)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return c.got
		}
	}
}

func TestAConsumerOfAllSessionsWaitsForWhatCommitsLate(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	committing, commit := make(chan struct{}), make(chan struct{})
	var hold sync.Once
	quick := startStore(t, db, store.Options{Queue: jobs{}})
	late, lateRun := calling(t, quick)
	early, earlyRun := calling(t, quick)
	slow := startStore(t, db, store.Options{Queue: jobs{}, BeforeCommit: func(context.Context) {
		hold.Do(func() { close(committing); <-commit })
	}})
	a := appendOf(late, headOf(t, quick, late).LastSeq, encode(t, late, lateRun, 1, emission(1, "metrics", 1)))
	done := make(chan error, 1)
	go func() { _, err := slow.Append(t.Context(), a); done <- err }()
	<-committing
	mustAppend(t, quick, appendOf(early, headOf(t, quick, early).LastSeq, encode(t, early, earlyRun, 1, emission(1, "metrics", 2))))
	if n := len(lines(t, db, `SELECT 1 FROM agentd.emissions`)); n != 1 {
		t.Fatalf("%d emissions are committed, want 1", n)
	}
	c := &consumer{db: db}
	before := len(c.readAll(t)) // what is returned now would move the cursor past the other one
	close(commit)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	settled(t, db)
	got := c.readAll(t)
	if before != 0 || len(got) != 2 || !strings.HasPrefix(got[0], late) || !strings.HasPrefix(got[1], early) {
		t.Errorf("%d before the late one, then %q; want none, then the late one of %s and that of %s", before, got, late, early)
	}
}

// TestAConsumerSeesEachEmissionOnce: while four processes store what their sessions
// emit, each in transactions that overlap with those of the others.
func TestAConsumerSeesEachEmissionOnce(t *testing.T) {
	t.Parallel()
	const processes, sessions, appends = 4, 3, 12
	db := storetest.New(t)
	c := &consumer{db: db}
	odd := "odd"
	ofChannel := &consumer{db: db, channel: &odd}
	writing := make(chan struct{})
	var writers sync.WaitGroup
	for range processes {
		s := startStore(t, db, store.Options{Queue: jobs{}})
		for range sessions {
			id, run := calling(t, s)
			at := headOf(t, s, id).LastSeq
			writers.Go(func() {
				for i := range appends {
					_, err := s.Append(t.Context(), appendOf(id, at, encode(t, id, run, 1, emission(1, "even", 2*i+1)), encode(t, id, run, 1, emission(1, odd, 2*i+2))))
					if err != nil {
						t.Error(err)
						return
					}
					at += 2
				}
			})
		}
	}
	go func() { writers.Wait(); close(writing) }()
	for over := false; !over; {
		select {
		case <-writing:
			over = true
		default:
		}
		for _, c := range []*consumer{c, ofChannel} {
			if _, err := c.read(limit(t), 7); err != nil {
				t.Fatal(err)
			}
		}
	}
	settled(t, db)
	check := func(what string, got, want []string) {
		last := map[string]int{}
		for _, name := range got {
			id, seq, _ := strings.Cut(name, "/")
			var n int
			if _, err := fmt.Sscan(seq, &n); err != nil || n <= last[id] {
				t.Fatalf("%s: %s behind seq %d of its session", what, name, last[id])
			}
			last[id] = n
		}
		got = slices.Sorted(slices.Values(got))
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d emissions, want %d, each once", what, len(got), len(want))
		}
	}
	const all = `SELECT session_id || '/' || seq AS name FROM agentd.events WHERE type = 'emission' AND payload ->> 'channel' ~ $1 ORDER BY (session_id || '/' || seq) COLLATE "C"`
	check("all", c.readAll(t), lines(t, db, all, "."))
	check("channel", ofChannel.readAll(t), lines(t, db, all, "odd"))
	if want := processes * sessions * appends * 2; len(c.got) != want {
		t.Errorf("%d emissions, want %d", len(c.got), want)
	}
}

func TestACursorThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for cursor, want := range map[string]string{
		"nonsense": "'nonsense' is no cursor of agentd.emissions",
		"1:x:2":    "'1:x:2' is no cursor of agentd.emissions",
		"9000000000000000000:00000000-0000-0000-0000-000000000001:2": "is of another cluster",
	} {
		_, err := (&consumer{db: db, cursor: cursor}).read(limit(t), 1)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || !strings.Contains(refused.Message, want) {
			t.Errorf("%s: %v, want %q", cursor, err, want)
		}
	}
	conn := connect(t, db.URL)
	if _, err := conn.Exec(limit(t), `SET ROLE agentd_reader; SELECT count(*) FROM agentd.emissions_after('')`); err != nil {
		t.Errorf("a reader: %v", err)
	}
}

// TestAConsumerThatWaitsForAnotherTakesTheCursorThatItFinds: the statement of one
// that had to wait began before what its cursor is behind by then.
func TestAConsumerThatWaitsForAnotherTakesTheCursorThatItFinds(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	ctx := limit(t)
	if _, err := db.Pool.Exec(ctx, `CREATE TABLE public.place AS SELECT ''::text AS cursor`); err != nil {
		t.Fatal(err)
	}
	first, second := connect(t, db.URL), connect(t, db.URL)
	tx, err := first.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `SELECT FROM public.place FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := second.Exec(ctx, `WITH p AS (SELECT cursor FROM public.place FOR UPDATE) SELECT e.* FROM p, agentd.emissions_after(p.cursor) AS e`)
		done <- err
	}()
	waitFor(t, db, `SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, run := calling(t, s)
	mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq, encode(t, id, run, 1, emission(1, "metrics", 1))))
	if _, err := tx.Exec(ctx, `UPDATE public.place SET cursor = (SELECT cursor FROM agentd.emissions)`); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("the one that waited: %v", err)
	}
}

// TestVerifyFindsEmissionsThatConsumersAreNotGiven: and those that there are not.
func TestVerifyFindsEmissionsThatConsumersAreNotGiven(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, run := calling(t, s)
	at := headOf(t, s, id).LastSeq
	mustAppend(t, s, appendOf(id, at, encode(t, id, run, 1, emission(1, "metrics", 1))))
	if r := verify(t, db); len(r.Differences) > 0 {
		t.Fatalf("an honest database: %v", r.Differences)
	}
	row := fmt.Sprint(id, "/", at+1)
	for _, c := range []struct {
		sql  string
		want store.Difference
	}{
		{`UPDATE agentd.emission_order SET tenant_id = 'x'`, store.Difference{Table: "emission_order", Row: row, Column: "tenant_id", Got: `"x"`, Want: `"default"`}},
		{`DELETE FROM agentd.emission_order`, store.Difference{Table: "emission_order", Row: row, Got: "no row", Want: "a row"}},
		{
			`INSERT INTO agentd.emission_order SELECT id, 1, tenant_id, pg_current_xact_id() FROM agentd.sessions`,
			store.Difference{Table: "emission_order", Row: id + "/1", Got: "a row", Want: "no row"},
		},
	} {
		exec(t, db, `SET LOCAL session_replication_role = replica; `+c.sql)
		if got := verify(t, db).Differences; !slices.Contains(got, c.want) {
			t.Errorf("%s: %v; want %v", c.sql, got, c.want)
		}
	}
}

func TestEmissionsLeaveWithTheirSession(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, run := calling(t, s)
	mustAppend(t, s, appendOf(id, headOf(t, s, id).LastSeq, encode(t, id, run, 1, emission(1, "metrics", 1)),
		encode(t, id, run, 1, event.AssistantStopped{Attempt: 1, Reason: "cancelled"}), encode(t, id, run, 0, event.RunCancelled{})))
	if n := len(lines(t, db, `SELECT 1 FROM agentd.emissions`)); n != 1 {
		t.Fatalf("%d emissions", n)
	}
	if _, err := store.PurgeSession(limit(t), db.Pool, id, "", "tidy", false); err != nil {
		t.Fatal(err)
	}
	if n := len(lines(t, db, `SELECT 1 FROM agentd.emission_order`)); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// TestStoppedTellsWhoStoppedWhatAndWhatFollowed: also where nothing was shown, and
// the turn is over all the same.
func TestStoppedTellsWhoStoppedWhatAndWhatFollowed(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id, run := calling(t, s)
	in := func(turn int, p event.Payload) event.Event { return encode(t, id, run, turn, p) }
	h := headOf(t, s, id)
	message := looptest.NewID()
	stop := func(turn int, observer, reason string) hooks.Decision {
		d := sparse("OnChunk", "1")
		d.RunID, d.Turn, d.Phase, d.HookID, d.HookKind, d.Action, d.Payload.Reason = run, turn, hooks.PhaseMutate, observer, "observer", "stop", reason
		return d
	}
	mustAppend(t, s, with(appendOf(id, h.LastSeq,
		in(1, event.AssistantStopped{
			Attempt: 1, MessageID: message, Parts: []hooks.Part{{Type: hooks.PartText, Text: "I can"}}, Reason: event.StoppedByObserver,
			Observer: "refusals", Chunk: 7, Accepted: 5, Policy: stream.StopFallback,
			Notice: &event.PreparedMessage{MessageID: looptest.NewID(), Role: hooks.RoleSystem, Text: "stopped"},
		}), in(1, event.TurnCompleted{}), in(2, event.TurnStarted{}), in(2, event.ModelRequested{Attempt: 1, Model: "other"})),
		h.Ledger, stop(1, "refusals", "it refuses")))
	h = headOf(t, s, id)
	failed := stop(2, "redact", "it failed")
	failed.Outcome = hooks.OutcomePanic
	mustAppend(t, s, with(appendOf(id, h.LastSeq,
		in(2, event.AssistantStopped{Attempt: 1, Reason: event.StoppedByObserver, Observer: "redact", Chunk: 1, Policy: stream.StopEndTurn}),
		in(2, event.TurnCompleted{}), in(0, event.RunCompleted{Reason: event.StoppedByObserver})),
		h.Ledger, failed))
	wantLines(t, "stopped", lines(t, db, `
		SELECT turn_no, attempt, observer, outcome, reason, chunk, accepted, policy, message_id = $2, followed_by, next_model, run_status, ledger_seq
		FROM agentd.stopped WHERE session_id = $1 ORDER BY seq`, id, message), []string{
		"1|1|refusals|ok|it refuses|7|5|fallback|true|turn.started|other|completed|1",
		"2|1|redact|panic|it failed|1|0|end_turn|<nil>|run.completed|<nil>|completed|2",
	})
	wantLines(t, "blocked", lines(t, db, `SELECT blocked_by, hook_id, action, outcome, reason FROM agentd.blocked ORDER BY seq`), []string{
		"OnChunk|refusals|stop|ok|it refuses", "OnChunk|redact|stop|panic|it failed",
	})
	wantLines(t, "timeline", lines(t, db, `SELECT summary FROM agentd.timeline WHERE session_id = $1 AND type = 'assistant.stopped' ORDER BY seq`, id), []string{
		"stopped by refusals at chunk 7 behind 5 bytes, then fallback: I can", "stopped by redact at chunk 1 behind 0 bytes, then end_turn",
	})
	wantLines(t, "messages", lines(t, db, `SELECT role, partial, parts::text FROM agentd.messages WHERE session_id = $1 AND role <> 'user' ORDER BY position`, id), []string{
		`assistant|true|[{"type":"text","text":"I can"}]`, // the notice is for the model alone
	})
}
