package main

import (
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestKillOfEverythingWhileRunsWaitForPeople: nothing but rows waits, and so
// nothing is lost.
func TestKillOfEverythingWhileRunsWaitForPeople(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.env = append(f.env, "AGENTD_TOOL_PERMISSIONS=charge=ask")
	first := f.add(t)
	var runs, sessions []string
	for i := range 3 {
		session := newSession(t, first)
		run, _ := startRun(t, first, session, fmt.Sprintf("%s %s r%d", toolCharge, holdNever, i))
		awaitRow(t, f.db, fmt.Sprintf(`SELECT 'x' FROM agentd.runs WHERE id = '%s' AND status = 'waiting'`, run))
		runs, sessions = append(runs, run), append(sessions, session)
	}
	awaitRow(t, f.db, `SELECT 'x' WHERE NOT EXISTS (SELECT FROM agentd.river_job WHERE state IN ('available', 'running', 'scheduled', 'retryable'))`)
	f.checkNothingHeld(t, 3)

	before := f.approvals(t, first)
	f.kill(t, first)
	second := f.add(t)
	if after := f.approvals(t, second); after != before || strings.Count(after, "charge") != 3 {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
	f.checkNothingHeld(t, 3)

	approval := scalar[string](t, f.db, `SELECT id::text FROM agentd.approvals WHERE run_id = $1`, runs[1])
	code, out, said := runAgentd(t, options{env: []string{"AGENTD_URL=" + second.url}}, "approvals", "approve", approval, "--reason", "fine")
	if want := `approved: charge {"hold": "never"}` + "\n"; code != 0 || out != want {
		t.Errorf("exit code %d, printed %q, said %q", code, out, said)
	}
	if status := f.awaitEnd(t, runs[1]); status != "completed" {
		t.Errorf("the run is %s", status)
	}
	if n := len(effects(t, f.effects, runs[1])); n != 1 {
		t.Errorf("%d effects of the call that was approved", n)
	}
	facts := ofRun(checkSession(t, f, sessions[1]), runs[1])
	checkRun(t, facts)
	if d := only[event.ApprovalDecided](t, facts); d.Decision != event.DecisionApproved || d.Reason != "fine" {
		t.Errorf("decided %+v", d)
	}
	f.checkNothingHeld(t, 2)
	for _, run := range []string{runs[0], runs[2]} {
		if n := len(effects(t, f.effects, run)); n != 0 {
			t.Errorf("%d effects of a call that nobody approved", n)
		}
	}
	if open := f.approvals(t, second); strings.Count(open, "charge") != 2 || strings.Contains(open, approval) {
		t.Errorf("open:\n%s", open)
	}
	f.verify(t)
}

// pending is the approval for which a run waits, once it does.
func (f *fleet) pending(t *testing.T, run string) string {
	t.Helper()
	return awaitRow(t, f.db, fmt.Sprintf(`SELECT id::text FROM agentd.approvals WHERE run_id = '%s' AND status = 'pending'`, run))
}

// approve says yes to the call for which a run waits, once it does.
func (f *fleet) approve(t *testing.T, at *server, run string) {
	t.Helper()
	id := f.pending(t, run)
	_, err := agentdv1connect.NewApprovalServiceClient(freshClient(), at.url).DecideApproval(t.Context(), connect.NewRequest(
		&agentdv1.DecideApprovalRequest{ApprovalId: id, Decision: agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE}))
	if err != nil {
		t.Fatal(err)
	}
}

// approvals is what a person is shown.
func (f *fleet) approvals(t *testing.T, s *server) string {
	t.Helper()
	code, out, said := runAgentd(t, options{env: []string{"AGENTD_URL=" + s.url}}, "approvals")
	if code != 0 {
		t.Errorf("approvals: exit code %d, said %s", code, said)
	}
	return out
}

// checkNothingHeld: the runs that wait have no worker and no job.
func (f *fleet) checkNothingHeld(t *testing.T, waiting int) {
	t.Helper()
	n := scalar[int](t, f.db, `SELECT count(*) FROM agentd.runs WHERE status = 'waiting' AND worker_id IS NULL`)
	jobs := scalar[int](t, f.db, `
		SELECT count(*) FROM agentd.river_job j JOIN agentd.runs r ON r.id::text = j.args ->> 'run_id'
		WHERE r.status = 'waiting' AND j.state NOT IN ('completed', 'cancelled', 'discarded')`)
	if n != waiting || jobs != 0 {
		t.Errorf("%d runs wait without a worker, want %d; they have %d jobs", n, waiting, jobs)
	}
}
