package main

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestKillOfEverything: with runs at every kind of step, all processes are
// killed at once. One worker that comes later brings every run to its end, but
// for those that wait for people, until they have answered.
func TestKillOfEverything(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.env = append(f.env, "AGENTD_TOOL_PERMISSIONS=pay=ask")
	front := f.add(t, "--roles", "api")
	workers := []*server{f.add(t, "--roles", "worker"), f.add(t, "--roles", "worker")}
	groups := map[string][]string{} // what the user said, and the runs
	sessions := map[string]string{} // of the runs
	begin := func(say string) {
		for i := range 4 {
			session := newSession(t, front)
			run, _ := startRun(t, front, session, fmt.Sprintf("%s r%d", say, i))
			groups[say] = append(groups[say], run)
			sessions[run] = session
		}
	}
	asked := toolPay + " " + holdNever
	begin(asked)
	for _, run := range groups[asked] {
		f.pending(t, run)
	}
	// River closes the job of a run that has parked a moment later.
	awaitRow(t, f.db, `SELECT 'x' FROM (SELECT count(*) FROM agentd.river_job WHERE state IN ('available', 'running')) AS j (n) WHERE n = 0`)
	charge, put, unwanted := toolCharge+" "+holdAfter, toolPut+" "+holdBefore, toolCharge+" "+filepath.Join(f.dir, "nothing")
	begin("stream")
	for _, run := range groups["stream"] {
		awaitRow(t, f.db, fmt.Sprintf(`SELECT 'x' FROM agentd.events WHERE run_id = '%s' AND type = 'assistant.delta'`, run))
	}
	for _, say := range []string{charge, put, unwanted} {
		begin(say)
		for _, run := range groups[say] {
			awaitEffect(t, f.effects, run)
		}
	}
	for _, s := range workers {
		s.signal(t, syscall.SIGSTOP) // so that they see none of what follows
	}
	for _, run := range groups[unwanted] {
		cancelRun(t, front, run)
	}
	begin("say")
	f.kill(t, append(workers, front)...)
	f.checkLeft(t)

	f.add(t)
	began := time.Now()
	awaitRow(t, f.db, `SELECT 'x' FROM agentd.runs HAVING bool_and(ended_at IS NOT NULL OR status = 'waiting')`)
	t.Logf("all runs are at their end %s after the worker was ready; lease %s", time.Since(began).Round(time.Millisecond), killLease)
	f.checkNothingHeld(t, len(groups[asked]))
	for _, run := range groups[asked] {
		f.approve(t, f.alive[0], run)
	}
	for say, runs := range groups {
		want := "completed"
		if say == unwanted {
			want = "cancelled"
		}
		for _, run := range runs {
			if status := f.awaitEnd(t, run); status != want {
				t.Errorf("%s: run %s is %s, want %s", say, run, status, want)
			}
			facts := ofRun(checkSession(t, f, sessions[run]), run)
			switch say {
			case unwanted:
				checkCancelled(t, facts)
				continue
			case charge, put, asked:
				checkTool(t, f, facts)
			}
			checkRun(t, facts)
		}
	}
	f.verify(t)
}

// checkLeft looks at what the dead have left.
func (f *fleet) checkLeft(t *testing.T) {
	t.Helper()
	var queued, running, waiting, asked int
	err := f.db.Pool.QueryRow(t.Context(), `
		SELECT count(*) FILTER (WHERE status = 'queued'), count(*) FILTER (WHERE status = 'running'),
			count(*) FILTER (WHERE status = 'waiting'), count(*) FILTER (WHERE cancel_requested_at IS NOT NULL)
		FROM agentd.runs`).Scan(&queued, &running, &waiting, &asked)
	if err != nil {
		t.Fatal(err)
	}
	if queued != 4 || running != 16 || waiting != 4 || asked != 4 {
		t.Errorf("%d runs are queued, %d are running, %d wait, of %d a cancel was asked", queued, running, waiting, asked)
	}
}

func checkCancelled(t *testing.T, facts []fact) {
	t.Helper()
	if got := only[event.RunCancelled](t, facts).Reason; got != "no longer wanted" {
		t.Errorf("cancelled for %q", got)
	}
	result := only[event.ToolResult](t, facts)
	if !result.IsError || result.Reason != hooks.ReasonOutcomeUnknown || len(decoded[event.ToolStarted](t, facts)) != 1 {
		t.Errorf("the tool's result is %+v", result)
	}
}
