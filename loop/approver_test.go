package loop_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestOnlyWhoWasNamedMayDecide: as it was set when people were asked. Others
// learn who may, and leave nothing behind.
func TestOnlyWhoWasNamedMayDecide(t *testing.T) {
	t.Parallel()
	a := newAskingRun(t, hooks.Hooks{})
	set := func(globs ...string) {
		agent := a.Engine.Agents["demo"]
		agent.Approvers = globs
		a.Engine.Agents["demo"] = agent
	}
	set("ops-*", "ada")
	a.Advance(t, a.job)
	set("everybody-else")
	ids := openApprovals(t, a.Bench, a.job)
	for _, q := range payloads[event.ApprovalRequested](t, a.Events(t, a.job.SessionID)) {
		if !slices.Equal(q.Approvers, []string{"ops-*", "ada"}) {
			t.Errorf("asked %+v", q)
		}
	}
	before := len(a.Events(t, a.job.SessionID))
	answer := func(who, id string) error {
		_, err := a.Commands.DecideApproval(t.Context(), loop.DecideApproval{
			TenantID: looptest.Tenant, ApprovalID: id, Approve: true, Actor: event.Actor{Kind: event.ActorKey, ID: who},
		})
		return err
	}
	barred := func(who, id string) {
		t.Helper()
		err := answer(who, id)
		var e *loop.ApproverError
		if !errors.Is(err, loop.ErrNotApprover) || !errors.As(err, &e) || e.Actor.ID != who || !slices.Equal(e.Approvers, []string{"ops-*", "ada"}) {
			t.Errorf("%s: %v; want an ApproverError", who, err)
		}
		if want := "the approval is for ops-*, ada to decide, and not for key " + who; err == nil || err.Error() != want {
			t.Errorf("%s is told %v; want %s", who, err, want)
		}
	}
	for _, who := range []string{"everybody-else", "ops", "adam", "", "local"} {
		barred(who, ids[0])
	}
	if n := len(a.Events(t, a.job.SessionID)); n != before {
		t.Errorf("%d events were stored", n-before)
	}
	if err := answer("ops-7", ids[0]); err != nil {
		t.Error(err)
	}
	if err := answer("ada", ids[1]); err != nil {
		t.Error(err)
	}
	barred("bob", ids[0]) // what was decided is not for them either
	if run := a.Advance(t, next(t, a.Bench, a.job)); run.Status != loop.RunCompleted || len(a.sorted()) != 4 {
		t.Errorf("run %+v, ran %q", run, a.sorted())
	}
	checked(t, a.Bench, a.job.SessionID)
}

func TestMayDecide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		approvers []string
		id        string
		want      bool
	}{
		{nil, "anybody", true},
		{[]string{"*"}, "anybody", true},
		{[]string{"a", "b?"}, "b1", true},
		{[]string{"a", "b?"}, "b", false},
		{[]string{"["}, "[", false}, // one that is broken opens nothing
		{[]string{}, "anybody", false},
	} {
		if got := loop.MayDecide(c.approvers, event.Actor{ID: c.id}); got != c.want {
			t.Errorf("%q for %q: %v", c.approvers, c.id, got)
		}
	}
}

// TestAnEmptyListOfApproversIsNobody: also once it has been stored.
func TestAnEmptyListOfApproversIsNobody(t *testing.T) {
	t.Parallel()
	a := newAskingRun(t, hooks.Hooks{})
	agent := a.Engine.Agents["demo"]
	agent.Approvers = []string{}
	a.Engine.Agents["demo"] = agent
	a.Advance(t, a.job)
	for _, id := range openApprovals(t, a.Bench, a.job) {
		_, err := a.Commands.DecideApproval(t.Context(), loop.DecideApproval{TenantID: looptest.Tenant, ApprovalID: id, Approve: true, Actor: looptest.Tester})
		if !errors.Is(err, loop.ErrNotApprover) {
			t.Errorf("got %v; want that it is for others", err)
		}
	}
	a.waits(t, 2)
}
