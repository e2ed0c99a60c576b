package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// gateKills is how often a process is killed at each gate.
func gateKills() int {
	if fullSize() {
		return 6
	}
	return 2
}

// newWitnessed is a fleet whose hooks write down what they are asked. The tool
// charge needs a person's yes.
func newWitnessed(t *testing.T, env ...string) (f *fleet, file string) {
	t.Helper()
	f = newFleet(t)
	file = filepath.Join(f.dir, "asked")
	f.env = append(append(f.env, env...), askedVariable+"="+file, "AGENTD_TOOL_PERMISSIONS=charge=ask")
	f.spawn(t)
	f.spawn(t)
	f.ready(t)
	if sets := scalar[int](t, f.db, `SELECT count(*) FROM agentd.hook_sets WHERE hooks::text LIKE '%"witness"%'`); sets != 1 {
		t.Errorf("%d stored hook sets have the witness", sets)
	}
	return f, file
}

// TestAGateThatHasDecidedIsNotAskedAgainAfterAKill: the process that has asked is killed with its decision, and
// what follows from it, in flight. If that is committed, nobody is asked again;
// if it is lost, the next one asks again for the same decision.
func TestAGateThatHasDecidedIsNotAskedAgainAfterAKill(t *testing.T) {
	t.Parallel()
	put, charge := toolPut+" "+holdNever, toolCharge+" "+holdNever
	f, file := newWitnessed(t)
	for gate, points := range map[hooks.Gate][]killPoint{
		hooks.GateBeforeRunStart: {{say: "say", hold: event.TypeModelRequested, turn: 1}},
		hooks.GateTransformContext: {
			{say: put, hold: event.TypeModelRequested, turn: 2},
			{say: charge, hold: event.TypeModelRequested, turn: 2, approved: approvedBefore},
		},
		hooks.GateBeforeToolCall: {
			{say: put, hold: event.TypeToolStarted, turn: 1},
			{say: charge, hold: event.TypeApprovalRequested, turn: 1, approved: approvedAfter},
		},
		hooks.GateBeforeExecute: {
			{say: charge, hold: event.TypeToolStarted, turn: 1, approved: approvedBefore},
			{say: put, hold: event.TypeToolStarted, turn: 1},
		},
		hooks.GateAfterToolCall: {
			{say: charge, hold: event.TypeToolResult, turn: 1, approved: approvedBefore},
			{say: put, hold: event.TypeToolResult, turn: 1},
		},
	} {
		f.killAllAtGate(t, file, gate, points...)
	}
	f.verify(t)
}

// TestAProviderGateThatHasDecidedIsNotAskedAgainAfterAKill: the same, with a
// model that speaks HTTP.
func TestAProviderGateThatHasDecidedIsNotAskedAgainAfterAKill(t *testing.T) {
	t.Parallel()
	provider := openaitest.New(t, slices.Repeat([]openaitest.Answer{openaitest.Text("Said.")}, 9*gateKills())...)
	f, file := newWitnessed(t, "AGENTD_SCRIPT=", "OPENAI_BASE_URL="+provider.URL, "OPENAI_MODEL=tiny")
	for gate, held := range map[hooks.Gate]event.Type{
		hooks.GateBeforeProviderHeaders: event.TypeModelRequested,
		hooks.GateBeforeProviderRequest: event.TypeModelRequested,
		hooks.GateAfterProviderResponse: event.TypeAssistantDelta,
	} {
		f.killAllAtGate(t, file, gate, killPoint{say: "say", hold: held, turn: 1})
	}
	f.verify(t)
}

// killAllAtGate kills at each of the points by turns. The append is lost every
// other time. It is no subtest: what replaces a process goes on into the next
// gate.
func (f *fleet) killAllAtGate(t *testing.T, file string, gate hooks.Gate, points ...killPoint) {
	t.Helper()
	committed := 0
	for i := range gateKills() {
		p := points[(i+i/2)%len(points)]
		p.lose = i%2 == 1
		if f.killAtGate(t, file, gate, p) {
			committed++
		}
	}
	if t.Logf("%s: %d of %d appends were committed by the dead", gate, committed, gateKills()); committed == 0 {
		t.Errorf("%s: no decision was committed by the dead", gate)
	}
}

// killAtGate reports whether the decision of the dead was committed.
func (f *fleet) killAtGate(t *testing.T, file string, gate hooks.Gate, p killPoint) (committed bool) {
	t.Helper()
	r := f.killDuring(t, f.killed, newSession(t, f.alive[0]), p)
	checkSession(t, f, r.session)
	all := checkAskings(t, askedOf(t, file, r.session), ledgerOf(t, f.db, r.session), r.pid, r.inherited)
	committed = r.has(p.hold, p.turn)
	if committed && p.lose {
		t.Errorf("%s was lost, and is there", p.hold)
	}
	checkFate(t, all, gate, !committed)
	if gate == hooks.GateAfterToolCall {
		checkOutput(t, f, p, r, committed)
	}
	r.stopIfFailed(t)
	return committed
}

// inherited reports whether a decision was recorded when the process died.
// Those about the input were, or else there would be no run.
func (r *killedRun) inherited(row ruled) bool { return row.Worker == r.worker || row.Worker == "" }

// checkFate: of the decision that was in flight there is what there should be.
func checkFate(t *testing.T, all map[string]*askings, gate hooks.Gate, lost bool) {
	t.Helper()
	n := 0
	for _, a := range all {
		if a.gate == gate && a.dead == 1 && a.inherited != lost {
			n++
		}
	}
	if n < 1 || lost && n != 1 { // it may have recorded others before
		t.Errorf("the dead process has asked for %d decisions at %s that were lost: %t", n, gate, lost)
	}
}

// checkOutput: an output that nobody has looked at is lost. Who may run the tool
// again does, and is asked about that.
func checkOutput(t *testing.T, f *fleet, p killPoint, r *killedRun, committed bool) {
	t.Helper()
	result := only[event.ToolResult](t, r.facts)
	n, want, reason := len(effects(t, f.effects, r.id)), 1, hooks.ResultReason("")
	switch put := strings.HasPrefix(p.say, toolPut); {
	case !committed && put:
		want = 2
	case !committed:
		reason = hooks.ReasonOutputLost
	}
	if n != want || result.Reason != reason {
		t.Errorf("%d effects, and the result is %+v; want %d and reason %q", n, result, want, reason)
	}
}

// TestKillAtAnyMomentRepeatsNoDecision: wherever it is, what is recorded was asked
// once, and nothing is recorded twice.
func TestKillAtAnyMomentRepeatsNoDecision(t *testing.T) {
	t.Parallel()
	f, file := newWitnessed(t)
	fates := map[string]int{}
	for range gateKills() {
		p := killPoint{say: toolPut + " " + holdNever, events: 1 + rand.IntN(20)}
		r := f.killDuring(t, f.killed, newSession(t, f.alive[0]), p)
		checkSession(t, f, r.session)
		for _, a := range checkAskings(t, askedOf(t, file, r.session), ledgerOf(t, f.db, r.session), r.pid, r.inherited) {
			if a.dead == 1 && !a.inherited {
				fates[string(a.gate)]++
			}
		}
		r.stopIfFailed(t)
	}
	f.verify(t)
	t.Logf("decisions that were asked for and died: %v", fates)
}

// TestAMessageThatIsSentAgainAfterAKillIsDecidedOnce: the process that was sent it is killed,
// and whoever sent it sends it again to another one.
func TestAMessageThatIsSentAgainAfterAKillIsDecidedOnce(t *testing.T) {
	t.Parallel()
	f, file := newWitnessed(t)
	committed := 0
	for i := range gateKills() {
		lose := i%2 == 1
		f.ready(t)
		victim := f.alive[i%2]
		session := newSession(t, victim)
		held := holdCommit(t, f.db, event.TypeRunQueued, 0)
		told := make(chan error, 1)
		go func() {
			_, err := startKeyed(t.Context(), victim, session, fmt.Sprintf("say r%d", i))
			told <- err
		}()
		pid := held.await(t)
		f.kill(t, victim)
		if err := <-told; connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("whoever sent the message is told %v", err)
		}
		held.end(t, pid, lose)
		awaitRow(t, f.db, fmt.Sprintf(`SELECT 'x' WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)`, pid))
		before := ledgerOf(t, f.db, session)
		there := len(before) > 0
		if there {
			committed++
		}
		f.spawn(t)
		answer, err := startKeyed(t.Context(), f.alive[0], session, fmt.Sprintf("say r%d", i))
		if err != nil || there && lose || answer.GetAlreadyStarted() != there {
			t.Fatalf("sent again: %v, %v; committed: %t, lost: %t", answer, err, there, lose)
		}
		if status := f.awaitEnd(t, answer.GetRunId()); status != "completed" {
			t.Errorf("the run is %s", status)
		}
		facts := checkSession(t, f, session)
		checkRun(t, ofRun(facts, answer.GetRunId()))
		inherited := func(row ruled) bool { return slices.Contains(before, row) }
		all := checkAskings(t, askedOf(t, file, session), ledgerOf(t, f.db, session), victim.cmd.Process.Pid, inherited)
		checkFate(t, all, hooks.GateBeforeInput, !there)
		if t.Failed() {
			t.FailNow()
		}
	}
	f.verify(t)
	if t.Logf("%d of %d messages were committed by the dead", committed, gateKills()); committed == 0 {
		t.Error("no message was committed by the dead")
	}
}

// startKeyed starts a run; the same message starts no second one.
func startKeyed(ctx context.Context, s *server, session, text string) (*agentdv1.StartRunResponse, error) {
	res, err := agentdv1connect.NewRunServiceClient(freshClient(), s.url).StartRun(ctx, connect.NewRequest(
		&agentdv1.StartRunRequest{SessionId: session, Text: text, IdempotencyKey: text[:min(len(text), 100)]}))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}
