package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/audit"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestVerifyStrictSeesWhatTheTablesDoNot changes logs where nothing else tells:
// each case is one more difference for the strict, and none for the other.
func TestVerifyStrictSeesWhatTheTablesDoNot(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	exec(t, db, `ALTER TABLE agentd.events DISABLE TRIGGER USER`)
	b := looptest.NewBench(s, looptest.Answers(
		looptest.Answer(looptest.Text("let me look"), looptest.ToolCall("c", "look", `{}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	), looptest.Says("look", "seen"))
	b.Use(hooks.Hooks{AfterToolCall: func(context.Context, hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
		return hooks.AfterToolCallResult{Action: hooks.ActionContinue}, nil
	}})
	if err := s.PutHookSet(limit(t), b.Engine.Hooks.Set()); err != nil {
		t.Fatal(err)
	}
	strict := func() store.Report {
		t.Helper()
		report, err := store.VerifyStrict(limit(t), db.Pool)
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	run := func() string {
		t.Helper()
		id := b.Session(t)
		if r := b.Advance(t, b.Start(t, id, "hi")); r.Status != loop.RunCompleted {
			t.Fatalf("run is %s", r.Status)
		}
		return id
	}
	run()
	if r := strict(); len(r.Differences) > 0 || r.Decisions == 0 {
		t.Fatalf("an honest log: %+v", r)
	}
	for rule, sql := range map[audit.Rule]string{
		audit.RuleLease:    `SET actor_id = 'worker:somebody else' WHERE type = 'turn.completed'`,
		audit.RuleAttempt:  `SET payload = replace(payload::text, '"attempt":1', '"attempt":2')::json WHERE type = 'tool.executed'`,
		audit.RuleRequest:  `SET payload = '{"attempt":1,"model":"test-model","message_ids":[],"tools":["look"]}' WHERE type = 'model.requested' AND turn_no = 1`,
		audit.RuleDecision: `SET type = type WHERE seq = 0`,
	} {
		id := run()
		exec(t, db, `UPDATE agentd.events `+sql+` AND session_id = '`+id+`'`)
		if rule == audit.RuleDecision {
			exec(t, db, `SET LOCAL session_replication_role = replica; UPDATE agentd.hook_decisions SET epoch = 9 WHERE session_id = '`+id+`'`)
		}
		named := 0
		for _, d := range strict().Differences {
			if strings.Contains(d.Row, id) && d.Column == string(rule) && d.Want == store.WantRule {
				named++
			}
		}
		if named == 0 {
			t.Errorf("%s is not named", rule)
		}
		for _, d := range verify(t, db).Differences {
			if strings.Contains(d.Row, id) && (rule != audit.RuleDecision || d.Want == store.WantRule) {
				t.Errorf("%s: without --strict: %v", rule, d)
			}
		}
	}
}
