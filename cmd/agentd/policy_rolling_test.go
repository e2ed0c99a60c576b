package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// TestARunThatIsHandedOverNamesTheHooksOfEach: two processes with other policies, as
// in a rolling deployment. What one has decided stands, with the set of that one;
// the other asks its own, and the story of the run tells both.
func TestARunThatIsHandedOverNamesTheHooksOfEach(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	model := looptest.Answers(
		looptest.Answer(looptest.ToolCall("a", toolBook, `{"zone":"CET"}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.ToolCall("b", toolBook, `{"zone":"UTC"}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("Done."), looptest.Finish(stream.FinishStop)))
	var c counting
	old, next := newStack(t, db, playing(model, c.tool(toolBook))), newStack(t, db, playing(model, c.tool(toolBook)))
	for i, one := range policyKinds {
		other := policyKinds[(i+1)%len(policyKinds)]
		name := fmt.Sprintf("%s, then %s", one.kind, other.kind)
		asking, denying := rolePolicies['A'], rolePolicies['D']
		asking.phase, denying.phase = hooks.PhaseValidate, hooks.PhaseValidate
		before, after := one.make(t, asking), other.make(t, denying)
		old.checked(t, before)
		next.checked(t, after)
		was := len(c.all())
		j := old.Start(t, old.Session(t), "go")
		old.Advance(t, j)
		old.answer(t, j, `{"zone":"CET"}`, true)
		j.Ticket++
		if run := next.Advance(t, j); run.Status != loop.RunCompleted || !slices.Equal(c.all()[was:], []string{`{"zone":"CET"}`}) {
			t.Errorf("%s: the run is %s, the tool ran with %q", name, run.Status, c.all()[was:])
		}
		sets := [2]string{before.Set().Digest, after.Set().Digest}
		want := []string{fmt.Sprintf("A %s ask %s", one.kind, sets[0]), fmt.Sprintf("D %s block %s", other.kind, sets[1])}
		if rows := rowsAt(t, db, j.SessionID, "hook_id, hook_kind, action, hook_set_digest"); !slices.Equal(rows, want) {
			t.Errorf("%s: ledger %q; want %q", name, rows, want)
		}
		if n := scalar[int](t, db, `SELECT count(*) FROM agentd.hook_decisions d JOIN agentd.hook_sets s ON s.digest = d.hook_set_digest
			WHERE d.session_id = $1 AND s.hooks::jsonb @> jsonb_build_array(jsonb_build_object('id', d.hook_id, 'gate', d.gate))`, j.SessionID); n != len(want) {
			t.Errorf("%s: %d of the decisions are by a hook of the set that they name", name, n)
		}
		out, err := old.commandLine(t, "", "explain", j.RunID)
		wantInOrder(t, out, err, "run.started", "hooks "+sets[0][:12], " A@", ": ask", "run.resumed", "hooks "+sets[1][:12], " D@", ": block")
	}
}
