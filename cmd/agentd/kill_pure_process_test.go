package main

import (
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestAPureHookIsNotAskedAgainAboutWhatIsRecordedAfterAKill: what it was asked
// about, its decision and what follows are in one append. The process that sent
// it is killed: all of that is there, or nothing. If the answer of a model is
// lost, another one is asked about in its place.
func TestAPureHookIsNotAskedAgainAboutWhatIsRecordedAfterAKill(t *testing.T) {
	t.Parallel()
	put, charge := toolPut+" "+holdNever, toolCharge+" "+holdNever
	f, file := newWitnessed(t, pureVariable+"=yes")
	for gate, p := range map[hooks.Gate]killPoint{
		hooks.GateTransformContext: {say: put, hold: event.TypeModelRequested, turn: 2},
		hooks.GateBeforeToolCall:   {say: put, hold: event.TypeToolStarted, turn: 1},
		hooks.GateBeforeExecute:    {say: put, hold: event.TypeToolStarted, turn: 1},
		hooks.GateAfterToolCall:    {say: charge, hold: event.TypeToolResult, turn: 1, approved: approvedBefore},
	} {
		committed := 0
		for i := range gateKills() {
			p.lose = i%2 == 1
			r := f.killDuring(t, f.killed, newSession(t, f.alive[0]), p)
			checkSession(t, f, r.session)
			if r.has(p.hold, p.turn) {
				committed++
			}
			checkPure(t, f, file, gate, p, r)
			r.stopIfFailed(t)
		}
		if committed == 0 {
			t.Errorf("%s: no append was committed by the dead", gate)
		}
	}
	f.verify(t)
}

// checkPure looks at what was asked, and at what the tool did.
func checkPure(t *testing.T, f *fleet, file string, gate hooks.Gate, p killPoint, r *killedRun) {
	t.Helper()
	committed := r.has(p.hold, p.turn)
	if committed && p.lose {
		t.Errorf("%s was lost, and is there", p.hold)
	}
	all := checkAskings(t, askedOf(t, file, r.session), ledgerOf(t, f.db, r.session), r.pid, r.inherited, hooks.GateBeforeToolCall, hooks.GateBeforeExecute)
	checkFate(t, all, gate, !committed)
	// The outcome of a tool goes with what hooks said of it, and the last one
	// with the next call of the model.
	want, reason := 1, hooks.ResultReason("")
	switch {
	case committed || p.hold == event.TypeToolStarted:
	case p.hold == event.TypeModelRequested:
		want = 2 // of a tool that may be run again
	default:
		reason = hooks.ReasonOutcomeUnknown
	}
	result := only[event.ToolResult](t, r.facts)
	if n := len(effects(t, f.effects, r.id)); n != want || result.Reason != reason {
		t.Errorf("%d effects, and the result is %+v; want %d and reason %q", n, result, want, reason)
	}
}
