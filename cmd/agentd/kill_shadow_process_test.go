package main

import (
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestAShadowThatSaysNoStopsNothingAfterAKill: shadows at every gate refuse all
// that the run does. The process that has asked them is killed with their
// decisions, and what follows in spite of them, in flight. What is committed is
// not asked again, and the next worker goes on as if they were not there.
func TestAShadowThatSaysNoStopsNothingAfterAKill(t *testing.T) {
	t.Parallel()
	f, file := newWitnessed(t, shadowVariable+"=yes")
	put, charge := toolPut+" "+holdNever, toolCharge+" "+holdNever
	f.killAllAtGate(t, file, hooks.GateBeforeToolCall,
		killPoint{say: put, hold: event.TypeToolStarted, turn: 1}, killPoint{say: charge, hold: event.TypeApprovalRequested, turn: 1, approved: approvedAfter})
	// Had they bound, nothing would have got past the first of them.
	got := lines(t, f.db, `
		SELECT DISTINCT gate || ' ' || action FROM agentd.hook_decisions
		WHERE failure_policy = 'shadow' AND NOT effective AND outcome = 'ok' ORDER BY 1`)
	wantLines(t, "decisions", got, "AfterToolCall withhold", "BeforeExecute block", "BeforeInput block", "BeforeRunStart block", "BeforeToolCall block", "TransformContext block")
	if n := scalar[int](t, f.db, `SELECT count(*) FROM agentd.hook_decisions WHERE failure_policy <> 'shadow'`); n != 0 {
		t.Errorf("%d decisions are no shadow's", n)
	}
	if n := scalar[int](t, f.db, `SELECT count(*) FROM agentd.runs WHERE status <> 'completed'`); n != 0 {
		t.Errorf("%d runs did not complete", n)
	}
}
