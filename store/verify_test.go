package store_test

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// oneRun stores a session with a run of two turns and one tool call.
func oneRun(t *testing.T, log loop.Log) (sessionID string) {
	t.Helper()
	b := looptest.NewBench(log, looptest.Answers(
		looptest.Answer(looptest.Text("let me look"), looptest.ToolCall("c", "look", `{}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	), looptest.Says("look", "seen"))
	id := b.Session(t)
	if r := b.Advance(t, b.Start(t, id, "hi")); r.Status != loop.RunCompleted {
		t.Fatalf("run is %s", r.Status)
	}
	return id
}

func verify(t *testing.T, db *storetest.DB) store.Report {
	t.Helper()
	report, err := store.Verify(limit(t), db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestVerifyCountsWhatItSaw(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	id := oneRun(t, s)
	newSession(t, s)
	// Retention may do this once a run has ended.
	exec(t, db, `DELETE FROM agentd.events WHERE type = 'assistant.delta' AND seq % 2 = 0`)
	report := verify(t, db)
	if report.Sessions != 2 || report.Runs != 1 || report.ToolCalls != 1 || report.Events < 15 {
		t.Errorf("%+v; want 2 sessions, 1 run, 1 call and some events", report)
	}
	for _, d := range report.Differences {
		t.Errorf("an honest database: %v", d)
	}
	if r, err := s.Load(limit(t), looptest.Tenant, id, loadedRun(t, s, id)); err != nil || r.LastSeq == 0 {
		t.Errorf("load without deltas: %v", err)
	}
}

func loadedRun(t *testing.T, log loop.Log, sessionID string) string {
	t.Helper()
	events, err := log.Events(limit(t), looptest.Tenant, sessionID, 0, 5)
	if err != nil {
		t.Fatal(err)
	}
	return events[len(events)-1].RunID
}

func TestVerifyFindsEveryTamperedRow(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	exec(t, db, `ALTER TABLE agentd.events DISABLE TRIGGER USER`)
	const unchecked = `SET LOCAL session_replication_role = replica; `
	known := map[store.Difference]bool{} // of the cases before
	for _, test := range []struct{ name, sql, table, column string }{
		{"SessionSeq", `UPDATE agentd.sessions SET last_seq = last_seq + 1 WHERE id = $session`, "sessions", "last_seq"},
		{"SessionEpoch", `UPDATE agentd.sessions SET run_epoch = 9 WHERE id = $session`, "sessions", "run_epoch"},
		{"SessionTime", `UPDATE agentd.sessions SET updated_at = updated_at + interval '1 microsecond' WHERE id = $session`, "sessions", "updated_at"},
		{"SessionDeleted", `UPDATE agentd.sessions SET deleted_at = updated_at WHERE id = $session`, "sessions", "deleted_at"},
		{"SessionExternalID", `UPDATE agentd.sessions SET external_id = 'x' WHERE id = $session`, "sessions", "external_id"},
		{"SessionTitle", `UPDATE agentd.sessions SET title = 'x', title_search = '' WHERE id = $session`, "sessions", "title"},
		{"SessionSearch", `UPDATE agentd.sessions SET title = 'y', title_search = 'x' WHERE id = $session`, "sessions", "title_search"},
		{"SessionUser", `UPDATE agentd.sessions SET user_id = 'x' WHERE id = $session`, "sessions", "user_id"},
		{"SessionMetadata", `UPDATE agentd.sessions SET metadata = '{"a": "b"}' WHERE id = $session`, "sessions", "metadata"},
		{"SessionMetadataOfAnotherKind", `UPDATE agentd.sessions SET metadata = '{"a": 1}' WHERE id = $session`, "sessions", "metadata"},
		{"SessionAppend", `UPDATE agentd.sessions SET append_id = gen_random_uuid() WHERE id = $session`, "sessions", "append_id"},
		{"SessionMissing", unchecked + `DELETE FROM agentd.sessions WHERE id = $session`, "sessions", ""},
		{"RunStatus", `UPDATE agentd.runs SET status = 'failed' WHERE session_id = $session`, "runs", "status"},
		{"RunTakeovers", `UPDATE agentd.runs SET takeovers = 3 WHERE session_id = $session`, "runs", "takeovers"},
		{"RunRetries", `UPDATE agentd.runs SET retries = 1 WHERE session_id = $session`, "runs", "retries"},
		{"RunEnd", `UPDATE agentd.runs SET ended_seq = ended_seq + 1 WHERE session_id = $session`, "runs", "ended_seq"},
		{"RunStart", `UPDATE agentd.runs SET started_at = NULL WHERE session_id = $session`, "runs", "started_at"},
		{"RunMissing", unchecked + `DELETE FROM agentd.runs WHERE session_id = $session`, "runs", ""},
		{"RunExtra", `INSERT INTO agentd.runs (id, tenant_id, session_id, status, agent, message_id, assistant_message_id, created_at, created_seq) SELECT gen_random_uuid(), tenant_id, id, 'enqueued', 'a', id, id, now(), 1 FROM agentd.sessions WHERE id = $session`, "runs", ""},
		{"TurnTokens", `UPDATE agentd.turns SET output_tokens = 1 WHERE session_id = $session`, "turns", "output_tokens"},
		{"TurnTenant", `UPDATE agentd.turns SET tenant_id = 'x' WHERE session_id = $session`, "turns", "tenant_id"},
		{"TurnOfNoSession", `UPDATE agentd.turns SET session_id = gen_random_uuid() WHERE session_id = $session`, "turns", ""},
		{"MessageParts", `UPDATE agentd.messages SET parts = '[{"type":"text","text":"I never said that"}]' WHERE session_id = $session`, "messages", "parts"},
		{"MessageReplaced", `UPDATE agentd.messages SET replaced_seq = 90 WHERE role = 'user' AND session_id = $session`, "messages", "replaced_seq"},
		{"MessageBroken", `UPDATE agentd.messages SET parts = '{}' WHERE session_id = $session`, "messages", "parts"},
		{"MessagePosition", `UPDATE agentd.messages SET position = 1 WHERE role = 'user' AND session_id = $session`, "messages", "position"},
		{"CallArguments", `UPDATE agentd.tool_calls SET arguments = '{ }' WHERE session_id = $session`, "tool_calls", "arguments"},
		{"CallSuccess", `UPDATE agentd.tool_calls SET success = false WHERE session_id = $session`, "tool_calls", "success"},
		{"CallMissing", `DELETE FROM agentd.tool_calls WHERE session_id = $session`, "tool_calls", ""},
		{"EventMissing", `DELETE FROM agentd.events WHERE type = 'tool.executed' AND session_id = $session`, "events", "seq"},
		{"EventMissingAtFirst", `DELETE FROM agentd.events WHERE seq = 1 AND session_id = $session`, "events", "type"},
		{"EventMissingAtLast", `DELETE FROM agentd.events WHERE type = 'run.completed' AND session_id = $session`, "sessions", "last_seq"},
		{"EventEdited", `UPDATE agentd.events SET payload = replace(payload::text, 'hi', 'ho')::json WHERE type = 'message.created' AND session_id = $session`, "messages", "parts"},
		{"EventNotAllowed", `UPDATE agentd.events SET type = 'run.completed', payload = '{"reason":"stop"}' WHERE type = 'turn.started' AND session_id = $session`, "events", "type"},
		{"EventUnreadable", `UPDATE agentd.events SET payload = '[]' WHERE type = 'tool.result' AND session_id = $session`, "events", "type"},
		{"EventTenant", `UPDATE agentd.events SET tenant_id = 'x' WHERE seq = 3 AND session_id = $session`, "events", "tenant_id"},
		{"EventsOfNoSession", `UPDATE agentd.events SET session_id = gen_random_uuid() WHERE seq = 3 AND session_id = $session`, "events", "type"},
	} {
		id := oneRun(t, s)
		// As somebody would who may switch the checks off.
		exec(t, db, `SET LOCAL session_replication_role = replica; `+strings.ReplaceAll(test.sql, "$session", "'"+id+"'"))
		found := false
		for _, d := range verify(t, db).Differences {
			if d.Table == test.table && d.Column == test.column && !known[d] {
				found = true
				if d.Got == d.Want || d.Row == "" || !strings.Contains(d.String(), d.Row) {
					t.Errorf("%s: says nothing: %+v", test.name, d)
				}
			}
			known[d] = true
		}
		if !found {
			t.Errorf("%s: no difference in %s %s", test.name, test.table, test.column)
		}
	}
}

func TestVerifyListsTheFirstThousandDifferences(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	// Without their run: only somebody who switched the checks off can do this.
	exec(t, db, `SET session_replication_role = replica;
		INSERT INTO agentd.turns (run_id, turn_no, tenant_id, session_id, status, started_at)
		SELECT gen_random_uuid(), 1, 'default', gen_random_uuid(), 'open', now() FROM generate_series(1, 1001)`)
	report := verify(t, db)
	if len(report.Differences) != 1000 || report.Omitted != 1 {
		t.Errorf("%d listed, %d omitted; want 1000 and 1", len(report.Differences), report.Omitted)
	}
}

func TestLogRefusesChanges(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	newSession(t, startStore(t, db, store.Options{}))
	for _, sql := range []string{
		`UPDATE agentd.events SET actor_id = 'somebody else'`, `DELETE FROM agentd.events`, `TRUNCATE agentd.events`,
	} {
		if _, err := db.Pool.Exec(limit(t), sql); err == nil {
			t.Errorf("%s: no error", sql)
		}
	}
}
