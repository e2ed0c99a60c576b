package main

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// writes are the writes of a run with text and two tools side by side, of one
// that a person is asked about, and of one that is cancelled in a tool: all but
// the first, which a client sends again (see
// TestAMessageThatIsSentAgainAfterAKillIsDecidedOnce).
func writes(f *fleet) []killPoint {
	never := toolPay + " " + holdNever
	unwanted := toolCharge + " " + filepath.Join(f.dir, "nothing")
	return []killPoint{
		{say: "both", hold: event.TypeToolExecuted, turn: 1}, // of the tool that returns first
		{say: never, hold: event.TypeApprovalDecided, turn: 1, request: approves},
		{say: unwanted, hold: event.TypeRunCancelRequested, request: cancels, status: "cancelled"},
		{say: never, hold: event.TypeToolStarted, turn: 1, approved: approvedBefore}, // with the claim
		{say: unwanted, hold: event.TypeRunCancelled, request: cancels, status: "cancelled"},
		{say: "both", hold: event.TypeAssistantDelta, turn: 1},
		{say: "both", hold: event.TypeRunStarted},
		{say: "both", hold: event.TypeAssistantCompleted, turn: 1},
		{say: "both", hold: event.TypeModelRequested, turn: 2}, // with the outcome of the other tool
		{say: "both", hold: event.TypeAssistantDelta, turn: 2},
		{say: "both", hold: event.TypeAssistantCompleted, turn: 2},
		{say: never, hold: event.TypeRunSuspended, approved: approvedAfter},
		{say: never, hold: event.TypeToolExecuted, turn: 1, approved: approvedBefore},
		{say: never, hold: event.TypeAssistantCompleted, turn: 2, approved: approvedBefore},
	}
}

func approves(t *testing.T, f *fleet, r *killedRun) func(context.Context, *server) error {
	t.Helper()
	return approval(f.pending(t, r.id))
}

func cancels(t *testing.T, f *fleet, r *killedRun) func(context.Context, *server) error {
	t.Helper()
	awaitEffect(t, f.effects, r.id)
	return cancellation(r.id)
}

// TestKillInEveryWrite kills the process that sent a write while that is in
// flight. Full size, each is lost once and committed once after the death of
// its sender; otherwise some are.
func TestKillInEveryWrite(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.env = append(f.env, "AGENTD_TOOL_PERMISSIONS=pay=ask")
	f.spawn(t)
	f.spawn(t)
	f.ready(t)
	points := writes(f)
	if !fullSize() {
		points = points[:4]
	}
	session, began := newSession(t, f.alive[0]), time.Now()
	for i, p := range points {
		for _, lose := range []bool{false, true} {
			if !fullSize() && lose != (i%2 == 1) {
				continue
			}
			p.lose = lose
			r := f.killDuring(t, f.killed, session, p)
			f.checkWrite(t, p, r)
			if t.Failed() {
				t.Logf("killed with %s of %q in flight, lost: %t", p.hold, p.say, lose)
			}
			r.stopIfFailed(t)
		}
	}
	f.sum(t, began, session)
}

// checkWrite looks at the calls of a run whose process was killed. What the
// dead one started and did not finish is of unknown outcome, unless it may be
// repeated; the rest is as if nothing had happened.
func (f *fleet) checkWrite(t *testing.T, p killPoint, r *killedRun) {
	t.Helper()
	if p.lose && r.has(p.hold, p.turn) {
		t.Errorf("%s was lost, and is there", p.hold)
	}
	calls := decoded[event.ToolProposed](t, r.facts)
	if want := map[bool]int{true: 2, false: 1}[p.say == "both"]; len(calls) != want {
		t.Fatalf("%d calls, want %d", len(calls), want)
	}
	for _, call := range calls {
		s := checkCall(t, f, r.facts, call)
		began, finished := r.did(t, call.CallID, event.TypeToolStarted), r.did(t, call.CallID, event.TypeToolExecuted)
		unknown := began != "" && finished == "" && call.Name != toolPut
		if s.executed == unknown || unknown != (s.result.Reason == hooks.ReasonOutcomeUnknown) {
			t.Errorf("%s: started by the dead one: %q, finished: %q, and its story is %+v", call.Name, began, finished, s)
		}
		// A start that was in flight came before the effect.
		if s.effects == 0 && (!unknown || began != r.writtenAt(p)) {
			t.Errorf("%s took no effect: %+v", call.Name, s)
		}
	}
	for _, d := range decoded[event.ApprovalDecided](t, r.facts) {
		only[event.ApprovalDecided](t, r.facts)
		if d.Decision != event.DecisionApproved {
			t.Errorf("decided %+v", d)
		}
	}
	if r.status == "cancelled" {
		only[event.RunCancelRequested](t, r.facts)
		checkCancelled(t, r.facts)
	}
}

// did is when the killed worker wrote such an event of a call, "" for never.
func (r *killedRun) did(t *testing.T, call string, what event.Type) string {
	t.Helper()
	for _, e := range r.facts {
		var of string
		switch p := decoded[event.Payload](t, []fact{e})[0].(type) {
		case event.ToolStarted:
			of = p.CallID
		case event.ToolExecuted:
			of = p.CallID
		}
		if of == call && e.Type == what && e.ActorID == workerActor+r.worker {
			return e.At
		}
	}
	return ""
}

// writtenAt is the time of all events of the append that was in flight, if it
// was committed.
func (r *killedRun) writtenAt(p killPoint) string {
	i := slices.IndexFunc(r.facts, func(e fact) bool { return e.Type == p.hold && e.Turn == p.turn && e.ActorID == workerActor+r.worker })
	if i < 0 {
		return ""
	}
	return r.facts[i].At
}
