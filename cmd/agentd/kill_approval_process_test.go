package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// wait starts n runs that wait for a person, each in a session of its own.
func (f *fleet) wait(t *testing.T, at *server, n int) (runs, sessions []string) {
	t.Helper()
	for i := range n {
		session := newSession(t, at)
		run, _ := startRun(t, at, session, fmt.Sprintf("%s %s r%d", toolCharge, holdNever, i))
		runs, sessions = append(runs, run), append(sessions, session)
	}
	for _, run := range runs {
		awaitRow(t, f.db, fmt.Sprintf(`SELECT 'x' FROM agentd.runs WHERE id = '%s' AND status = 'waiting'`, run))
	}
	awaitRow(t, f.db, `SELECT 'x' WHERE 0 = (`+jobsOfWaiting+`)`)
	return runs, sessions
}

// TestKillOfEverythingWhileRunsWaitForPeople: nothing but rows waits, and so
// nothing is lost, however long it takes.
func TestKillOfEverythingWhileRunsWaitForPeople(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.env = append(f.env, "AGENTD_TOOL_PERMISSIONS=charge=ask")
	f.spawn(t)
	first := f.add(t)
	runs, sessions := f.wait(t, first, 3)
	f.checkNothingHeld(t, 3)
	shown, sent := f.approvals(t, first), f.sentApprovals(t, first)

	f.kill(t, f.alive...)
	second := f.add(t)
	if again := f.approvals(t, second); again != shown || strings.Count(again, "charge") != 3 {
		t.Errorf("before:\n%safter:\n%s", shown, again)
	}
	if again := f.sentApprovals(t, second); again != sent {
		t.Errorf("before:\n%s\nafter:\n%s", sent, again)
	}
	f.checkNothingHeld(t, 3)
	f.approveOnCommandLine(t, second, runs[1], sessions[1])
	f.checkWaiting(t, second, runs[0], runs[2])

	f.db.ShiftClock(t, 72*time.Hour)
	f.approveOnCommandLine(t, second, runs[2], sessions[2])
	f.checkWaiting(t, second, runs[0])
	f.verify(t)
}

// approveOnCommandLine says yes to the call for which a run waits: it runs
// once, and the run goes on to its end.
func (f *fleet) approveOnCommandLine(t *testing.T, at *server, run, session string) {
	t.Helper()
	code, out, said := ofServer(at.url, "1m")(t, "approvals", "approve", f.pending(t, run), "--reason", "fine")
	if want := `approved: charge {"hold": "never"}` + "\n"; code != 0 || out != want {
		t.Errorf("exit code %d, printed %q, said %q", code, out, said)
	}
	if status := f.awaitEnd(t, run); status != "completed" {
		t.Errorf("the run is %s", status)
	}
	if n := len(effects(t, f.effects, run)); n != 1 {
		t.Errorf("%d effects of the call that was approved", n)
	}
	facts := ofRun(checkSession(t, f, session), run)
	checkRun(t, facts)
	if d := only[event.ApprovalDecided](t, facts); d.Decision != event.DecisionApproved || d.Reason != "fine" {
		t.Errorf("decided %+v", d)
	}
}

// checkWaiting: these runs, and no others, wait.
func (f *fleet) checkWaiting(t *testing.T, at *server, runs ...string) {
	t.Helper()
	f.checkNothingHeld(t, len(runs))
	shown := f.approvals(t, at)
	if n := strings.Count(shown, "charge"); n != len(runs) {
		t.Errorf("%d approvals are open, want %d", n, len(runs))
	}
	for _, run := range runs {
		if !strings.Contains(shown, f.pending(t, run)) {
			t.Errorf("not open: the approval of %s:\n%s", run, shown)
		}
		if n := len(effects(t, f.effects, run)); n != 0 {
			t.Errorf("%d effects of a call that nobody approved", n)
		}
	}
}

// pending is the approval for which a run waits, once it does.
func (f *fleet) pending(t *testing.T, run string) string {
	t.Helper()
	return awaitRow(t, f.db, fmt.Sprintf(`SELECT id::text FROM agentd.approvals WHERE run_id = '%s' AND status = 'pending'`, run))
}

// approve says yes to the call for which a run waits, once it does.
func (f *fleet) approve(t *testing.T, at *server, run string) {
	t.Helper()
	if err := approval(f.pending(t, run))(t.Context(), at); err != nil {
		t.Fatal(err)
	}
}

// approval is the request that says yes to one.
func approval(id string) func(ctx context.Context, at *server) error {
	return func(ctx context.Context, at *server) error {
		_, err := agentdv1connect.NewApprovalServiceClient(freshClient(), at.url).DecideApproval(ctx, connect.NewRequest(
			&agentdv1.DecideApprovalRequest{ApprovalId: id, Decision: agentdv1.ApprovalDecision_APPROVAL_DECISION_APPROVE}))
		return err
	}
}

// approvals is what a person is shown.
func (f *fleet) approvals(t *testing.T, s *server) string {
	t.Helper()
	code, out, said := ofServer(s.url, "1m")(t, "approvals")
	if code != 0 {
		t.Errorf("approvals: exit code %d, said %s", code, said)
	}
	return out
}

// sentApprovals is what a program is sent, byte for byte.
func (f *fleet) sentApprovals(t *testing.T, s *server) string {
	t.Helper()
	res, err := freshClient().Post(s.url+agentdv1connect.ApprovalServiceListApprovalsProcedure, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", res.Status, err, body)
	}
	return string(body)
}

const jobsOfWaiting = `
	SELECT count(*) FROM agentd.river_job j JOIN agentd.runs r ON r.id::text = j.args ->> 'run_id'
	WHERE r.status = 'waiting' AND j.state NOT IN ('completed', 'cancelled', 'discarded')`

// checkNothingHeld: the runs that wait have no worker and no job.
func (f *fleet) checkNothingHeld(t *testing.T, waiting int) {
	t.Helper()
	n := scalar[int](t, f.db, `SELECT count(*) FROM agentd.runs WHERE status = 'waiting' AND worker_id IS NULL`)
	jobs := scalar[int](t, f.db, jobsOfWaiting)
	if n != waiting || jobs != 0 {
		t.Errorf("%d runs wait without a worker, want %d; they have %d jobs", n, waiting, jobs)
	}
}
