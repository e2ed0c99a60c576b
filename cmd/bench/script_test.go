package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// playReference plays one reference run in a new session and returns its id.
func playReference(t *testing.T, db *storetest.DB) string {
	t.Helper()
	ids, err := seedSessions(t.Context(), db.URL, 1)
	if err != nil {
		t.Fatal(err)
	}
	s, err := startStack(t.Context(), stackConfig{url: db.URL, model: instantModel{}, hooks: referenceHooks()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.play(ctx, ids[0]); err != nil {
		t.Error(err)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	return ids[0]
}

// rowsOf counts what a session has in each table.
func rowsOf(t *testing.T, db *storetest.DB, sessionID string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, table := range []string{"events", "runs", "turns", "messages", "tool_calls", "hook_decisions"} {
		var n int
		if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM agentd.`+table+` WHERE session_id = $1`, sessionID).Scan(&n); err != nil {
			t.Fatal(err)
		}
		counts[table] = n
	}
	return counts
}

// The database is verified when the test ends.
func TestTheReferenceRunIsWhatTheDocumentationSays(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	id := playReference(t, db)
	got := rowsOf(t, db, id)
	for table, want := range map[string]int{"hook_decisions": 8, "turns": 2, "tool_calls": 1, "messages": 4} {
		if got[table] != want {
			t.Errorf("%d rows in %s, want %d", got[table], table, want)
		}
	}
	var text string
	var bytes int
	err := db.Pool.QueryRow(t.Context(), `
		SELECT (SELECT string_agg(payload ->> 'text', '' ORDER BY seq) FROM agentd.events WHERE session_id = $1 AND type = 'assistant.delta'),
			(SELECT output_bytes FROM agentd.tool_calls WHERE session_id = $1)`, id).Scan(&text, &bytes)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text, "token "); n != firstDeltas+secondDeltas {
		t.Errorf("%d deltas, want %d", n, firstDeltas+secondDeltas)
	}
	if bytes != 1024 {
		t.Errorf("the tool's result has %d bytes, want 1024", bytes)
	}
}

func TestTheRunsOwnSQLWritesTheRowsOfTheRun(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified) // the ids in the payloads are those of the recorded run
	recorded := playReference(t, db)
	s, err := readScript(t.Context(), db.URL, recorded)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := s.seedAll(t.Context(), db.Pool, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, ids := range runs {
		if err := s.play(t.Context(), db.Pool, ids); err != nil {
			t.Fatal(err)
		}
	}
	want := rowsOf(t, db, recorded)
	var sessions []string
	if err := db.Pool.QueryRow(t.Context(), `SELECT array_agg(id::text) FROM agentd.sessions`).Scan(&sessions); err != nil {
		t.Fatal(err)
	}
	if len(sessions) != 4 {
		t.Fatalf("%d sessions, want 4", len(sessions))
	}
	for _, id := range sessions {
		if got := rowsOf(t, db, id); !maps.Equal(got, want) {
			t.Errorf("session %s has %v, the recorded one %v", id, got, want)
		}
	}
	// The projections end as those of the run did, but for ids and the order of
	// session rows.
	var different int
	err = db.Pool.QueryRow(t.Context(), `
		SELECT count(*) FROM agentd.sessions AS s
		JOIN agentd.runs AS r ON r.session_id = s.id
		JOIN agentd.tool_calls AS c ON c.session_id = s.id
		JOIN agentd.sessions AS s1 ON s1.id = $1
		JOIN agentd.runs AS r1 ON r1.session_id = s1.id
		JOIN agentd.tool_calls AS c1 ON c1.session_id = s1.id
		WHERE (s.last_seq, s.run_epoch, s.ledger_seq, s.ledger_head, r.status, r.epoch, r.ended_seq, r.hook_set, c.status, c.output_sha256)
			IS DISTINCT FROM (s1.last_seq, s1.run_epoch, s1.ledger_seq, s1.ledger_head, r1.status, r1.epoch, r1.ended_seq, r1.hook_set, c1.status, c1.output_sha256)
			OR r.worker_id IS NOT NULL`, recorded).Scan(&different)
	if err != nil || different != 0 {
		t.Errorf("%d sessions end differently, %v", different, err)
	}
	if err := s.play(t.Context(), db.Pool, runs[0]); err == nil || !strings.Contains(err.Error(), "transaction 1") {
		t.Errorf("a run that was played is played again: %v", err)
	}
	if _, err := s.seedAll(t.Context(), closedPool(t, db), 1); err == nil || !strings.Contains(err.Error(), "make sessions") {
		t.Errorf("sessions without a database: %v", err)
	}
}

func TestARunThatIsNoReferenceRunIsRefused(t *testing.T) {
	t.Parallel()
	seq := func(types ...string) *table {
		t := &table{}
		for i, typ := range types {
			t.rows = append(t.rows, record{"seq": int64(i + 1), "type": typ})
		}
		return t
	}
	one, two := &table{rows: []record{{}}}, &table{rows: []record{{}, {}}}
	whole := map[string]*table{"sessions": one, "runs": one, "turns": two, "tool_calls": one, "events": seq(), "hook_decisions": {}}
	with := func(name string, v *table) map[string]*table {
		m := maps.Clone(whole)
		m[name] = v
		return m
	}
	for name, test := range map[string]struct {
		tables map[string]*table
		want   string
	}{
		"three turns":    {with("turns", &table{rows: slices.Repeat([]record{{}}, 3)}), "3 rows in turns, want 2"},
		"no tool":        {with("events", seq("session.created", "run.started", "assistant.completed", "run.completed")), "lacks an event"},
		"without an end": {with("events", seq("session.created", "run.started", "tool.executed", "assistant.delta")), "lacks an event"},
		"empty":          {whole, "lacks an event"},
	} {
		if _, err := newScript(test.tables); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestTablesThatAreNotThereAreNamed(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Empty)
	if _, err := readScript(t.Context(), db.URL, newID()); err == nil || !strings.Contains(err.Error(), "columns of agentd.") {
		t.Errorf("%v", err)
	}
}
