package store_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestSchemaRefusesRowsThatCannotBe: whatever writes them, a psql session too.
func TestSchemaRefusesRowsThatCannotBe(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	park(t, s)
	id := looptest.NewBench(s, looptest.Answers(nil)).Session(t)
	exec(t, db, `INSERT INTO agentd.tenants (id, name, created_at) VALUES ('ghost', 'ghost', agentd.clock())`)

	const run = `INSERT INTO agentd.runs
		(id, tenant_id, session_id, status, agent, message_id, assistant_message_id, ticket, reason, error, created_at, ended_at, created_seq, ended_seq)
		VALUES (gen_random_uuid(), $2, $1, $3, 'demo', gen_random_uuid(), gen_random_uuid(), $4, $5, $6, agentd.clock(),
			CASE WHEN $3 IN ('completed', 'failed', 'cancelled') THEN agentd.clock() END, 2,
			CASE WHEN $3 IN ('completed', 'failed', 'cancelled') THEN 3 END)`
	// A copy of one that is right, but for its session and its tenant.
	const decision = `INSERT INTO agentd.hook_decisions SELECT (x).* FROM (SELECT jsonb_populate_record(d, jsonb_build_object(
		'decision_id', gen_random_uuid(), 'ledger_seq', 2, 'session_id', coalesce($1::uuid, session_id), 'tenant_id', $2::text)) AS x FROM agentd.hook_decisions AS d) AS y`
	for _, c := range []struct {
		name, constraint, sql string
		args                  []any
	}{
		{"a run of another tenant than its session", "runs_session_fkey", run, []any{id, "ghost", "queued", 1, nil, nil}},
		{"a run of no session", "runs_session_fkey", run, []any{looptest.NewID(), "default", "queued", 1, nil, nil}},
		{"a queued run without a ticket", "runs_active_has_a_ticket", run, []any{id, "default", "queued", 0, nil, nil}},
		{"a reason before the end", "runs_ended_has_the_reason", run, []any{id, "default", "queued", 1, "stop", nil}},
		{"an error of a run that completed", "runs_failed_has_the_error", run, []any{id, "default", "completed", 1, "stop", "oops"}},
		{"a running run without a worker", "runs_running_is_leased", run, []any{id, "default", "running", 1, nil, nil}},
		{"a turn of no run", "turns_run_fkey", `INSERT INTO agentd.turns (run_id, turn_no, tenant_id, session_id, status, attempt, started_at)
			VALUES (gen_random_uuid(), 1, 'default', $1, 'open', 0, agentd.clock())`, []any{id}},
		{"a message of another tenant", "messages_session_fkey", `INSERT INTO agentd.messages (id, tenant_id, session_id, role, parts, position, seq, created_at)
			VALUES (gen_random_uuid(), 'ghost', $1, 'user', '[]', 9, 9, agentd.clock())`, []any{id}},
		{"half of what a user said", "messages_partial_is_an_answer", `INSERT INTO agentd.messages (id, tenant_id, session_id, role, parts, partial, position, seq, created_at)
			VALUES (gen_random_uuid(), 'default', $1, 'user', '[]', true, 9, 9, agentd.clock())`, []any{id}},
		{"an approval of another session's run", "approvals_run_fkey", `UPDATE agentd.approvals SET session_id = $1`, []any{id}},
		{"an approval of another tenant than its run", "approvals_run_fkey", `UPDATE agentd.approvals SET tenant_id = 'ghost'`, nil},
		{"a decision of another session's run", "hook_decisions_run_fkey", decision, []any{id, "default"}},
		{"a decision of another tenant than its run", "hook_decisions_run_fkey", decision, []any{nil, "ghost"}},
	} {
		_, err := db.Pool.Exec(t.Context(), c.sql, c.args...)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.ConstraintName != c.constraint {
			t.Errorf("%s: %v; want it refused by %s", c.name, err, c.constraint)
		}
	}
}
