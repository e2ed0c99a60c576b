package main

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/seed-2ca4966b/agentd/api/client"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestOfManyAnswersToTwoProcessesTheFirstHolds: the processes that take the
// answers are two, of which one knows its callers by a key, and the one that
// runs the tool is a third.
func TestOfManyAnswersToTwoProcessesTheFirstHolds(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.env = append(f.env, "AGENTD_TOOL_PERMISSIONS=charge=ask")
	front := f.add(t, "--roles", "api")
	f.add(t, "--roles", "worker")
	f.env = append(f.env, "AGENTD_API_KEY=k")
	keyed := f.add(t, "--roles", "api")
	clients := []*client.Client{dial(t, front.url), dial(t, keyed.url, client.WithAPIKey("k"))}
	winners := map[string]int{}
	for i := range kills()/3 + 2 {
		session := newSession(t, front)
		run, _ := startRun(t, front, session, fmt.Sprintf("%s %s r%d", toolCharge, holdNever, i))
		id := f.pending(t, run)
		answers := decideTogether(t, 40, id, clients)
		winner := checkFirstHolds(t, f.db, id, answers)
		status, by := approvalWord(winner.GetStatus()), winner.GetDecidedBy().GetKind()
		winners[by+" "+status]++
		if !slices.ContainsFunc(answers, func(a decideAnswer) bool {
			return a.word == status && a.caller == by && a.said == winner.GetDecisionReason()
		}) {
			t.Errorf("nobody gave the answer that was taken: %v", winner)
		}
		if end := f.awaitEnd(t, run); end != "completed" {
			t.Errorf("the run is %s", end)
		}
		want := 0
		if status == "approved" {
			want = 1
		}
		facts := ofRun(checkSession(t, f, session), run)
		if n := len(effects(t, f.effects, run)); n != want || len(decoded[event.ToolStarted](t, facts)) != want {
			t.Errorf("%s, and the tool took effect %d times", status, n)
		}
		checkRun(t, facts)
		// However late, and to whom: what was taken is what holds.
		if late := checkFirstHolds(t, f.db, id, decideTogether(t, 4, id, clients)); !proto.Equal(late, winner) {
			t.Errorf("later it is %v, was %v", late, winner)
		}
	}
	f.verify(t)
	t.Logf("taken were the answers of %v", winners)
}
