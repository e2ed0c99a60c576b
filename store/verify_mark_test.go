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
