package store_test

import (
	"context"
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestVerifyHoldsTheLedgerAgainstTheLog: a ledger that was cut off neatly, its
// head included, is still contradicted by the end of the run.
func TestVerifyHoldsTheLedgerAgainstTheLog(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	b := looptest.NewBench(s, looptest.Answers(looptest.Answer(looptest.Text("hi"), looptest.Finish(stream.FinishStop))))
	b.Engine.Asker = &hooks.Asker{}
	b.Engine.Hooks.TransformContext = hooks.Named("see", "1", func(context.Context, hooks.TransformContext) (hooks.TransformContextResult, error) {
		return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
	})
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "hello"))
	if d := verify(t, db).Differences; len(d) > 0 {
		t.Fatalf("before: %v", d)
	}
	exec(t, db, `SET LOCAL session_replication_role = replica;
		DELETE FROM agentd.hook_decisions WHERE session_id = '`+id+`';
		UPDATE agentd.sessions SET ledger_seq = 0, ledger_head = NULL WHERE id = '`+id+`'`)
	if d := verify(t, db).Differences; !slices.ContainsFunc(d, func(d store.Difference) bool { return d.Table == "hook_decisions" && d.Column == "row_hash" }) {
		t.Errorf("differences %v; want that the run's end names another head", d)
	}
}

// TestVerifyFindsARowThatIsOlderThanTheMarkBeforeIt: it was added later, with
// all hashes made right, and says that it had been there.
func TestVerifyFindsARowThatIsOlderThanTheMarkBeforeIt(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	b := looptest.NewBench(s, looptest.Answers(looptest.Answer(looptest.Text("hi"), looptest.Finish(stream.FinishStop))))
	b.Engine.Asker = &hooks.Asker{}
	b.Engine.Hooks.TransformContext = hooks.Named("see", "1", func(context.Context, hooks.TransformContext) (hooks.TransformContextResult, error) {
		return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
	})
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "hello"))
	exec(t, db, `
		INSERT INTO agentd.hook_decisions SELECT (x).* FROM (SELECT jsonb_populate_record(d, jsonb_build_object(
			'decision_id', gen_random_uuid(), 'ledger_seq', 2, 'prev_hash', d.row_hash, 'event_seq', s.last_seq)) AS x
			FROM agentd.hook_decisions AS d JOIN agentd.sessions AS s ON s.id = d.session_id) AS y;
		SET LOCAL session_replication_role = replica;
		UPDATE agentd.hook_decisions AS d SET row_hash = sha256(agentd.ledger_row(d)) WHERE ledger_seq = 2;
		UPDATE agentd.sessions SET ledger_seq = 2, ledger_head = (SELECT row_hash FROM agentd.hook_decisions WHERE ledger_seq = 2)`)
	d := verify(t, db).Differences
	if len(d) != 1 || d[0].Table != "hook_decisions" || d[0].Row != id+"/2" || d[0].Column != "event_seq" {
		t.Errorf("differences %v; want that row 2 is not later than the end of the run", d)
	}
}
