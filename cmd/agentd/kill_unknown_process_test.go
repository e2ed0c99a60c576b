package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestKillInAToolThatMustNotRunTwiceIsDealtWithAsConfigured: kill -9 of the only
// process while charge is entered, and a new one. The file that the tool writes
// counts what happened.
func TestKillInAToolThatMustNotRunTwiceIsDealtWithAsConfigured(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.env = append(f.env, "AGENTD_ON_UNKNOWN=ask", "AGENTD_INPUT_PRICE=2.50", "AGENTD_OUTPUT_PRICE=15")
	first := f.add(t)
	sessions, runs := map[string]string{}, map[string]string{}
	for _, hold := range []string{holdAfter, holdBefore} {
		sessions[hold] = newSession(t, first)
		runs[hold], _ = startRun(t, first, sessions[hold], fmt.Sprintf("%s %s r", toolCharge, hold))
		awaitEffect(t, f.effects, runs[hold])
	}
	f.kill(t, first)
	second := f.add(t)

	happened, missed := f.pending(t, runs[holdAfter]), f.pending(t, runs[holdBefore])
	if n := scalar[int](t, f.db, `SELECT count(*) FROM agentd.runs WHERE status = 'waiting' AND worker_id IS NULL`); n != 2 {
		t.Errorf("%d runs wait, and nobody holds them; want 2", n)
	}
	f.kill(t, second) // nothing but rows waits
	second = f.add(t)
	if shown := f.approvals(t, second); strings.Count(shown, "did it happen") != 2 || !strings.Contains(shown, happened) || !strings.Contains(shown, missed) || !strings.Contains(shown, "on_unknown") {
		t.Errorf("approvals:\n%s", shown)
	}
	if sent := f.sentApprovals(t, second); strings.Count(sent, `"APPROVAL_KIND_OUTCOME"`) != 2 {
		t.Errorf("sent %s", sent)
	}
	ask := ofServer(second.url, "1m")
	if code, out, said := ask(t, "approvals", "approve", happened); code != 1 || out != "" || !strings.Contains(said, "whether it has taken effect") {
		t.Errorf("approve: exit code %d, printed %q, said %q", code, out, said)
	}
	if code, out, said := ask(t, "approvals", "show", missed); code != 0 || !strings.Contains(out, "did it happen") || !strings.Contains(out, "its idempotency key is") {
		t.Errorf("show: exit code %d, printed %q, said %q", code, out, said)
	}
	for _, c := range []struct {
		hold, answer, id, status string
		attempts                 []string
		reason                   hooks.ResultReason
	}{
		{holdAfter, "happened", happened, "happened", []string{"effect 1"}, hooks.ReasonConfirmed},
		{holdBefore, "not-happened", missed, "did_not_happen", []string{"entered 1", "effect 2"}, ""},
	} {
		code, out, said := ask(t, "approvals", c.answer, c.id, "--reason", "I looked")
		if want := fmt.Sprintf("%s: charge {\"hold\": %q}\n", c.status, c.hold); code != 0 || out != want {
			t.Errorf("%s: exit code %d, printed %q, said %q", c.answer, code, out, said)
		}
		if status := f.awaitEnd(t, runs[c.hold]); status != "completed" {
			t.Errorf("%s: the run is %s", c.answer, status)
		}
		facts := ofRun(checkSession(t, f, sessions[c.hold]), runs[c.hold])
		checkRun(t, facts)
		call := only[event.ToolProposed](t, facts)
		var attempts []string
		for _, e := range effects(t, f.effects, runs[c.hold]) {
			attempts = append(attempts, fmt.Sprint(e.what, " ", e.attempt))
			if e.call != call.CallID {
				t.Errorf("%s: entered under the key %s; the call is %s", c.answer, e.call, call.CallID)
			}
		}
		if result := only[event.ToolResult](t, facts); !slices.Equal(attempts, c.attempts) || result.Reason != c.reason || result.IsError {
			t.Errorf("%s: %q happened, and the result is %+v", c.answer, attempts, result)
		}
		checkTold(t, facts, only[event.ToolResult](t, facts))
		if got := scalar[string](t, f.db, `SELECT kind || ' ' || status || ' ' || decision_reason FROM agentd.approvals WHERE id = $1`, c.id); got != "outcome "+c.status+" I looked" {
			t.Errorf("%s: approvals says %q", c.answer, got)
		}
	}
	f.verify(t)
}

// TestAPersonInATerminalSaysWhatHappened: whoever comes back to the conversation
// is asked.
func TestAPersonInATerminalSaysWhatHappened(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.env = append(f.env, "AGENTD_ON_UNKNOWN=ask")
	first := f.add(t)
	session := newSession(t, first)
	run, _ := startRun(t, first, session, fmt.Sprintf("%s %s r", toolCharge, holdAfter))
	awaitEffect(t, f.effects, run)
	f.kill(t, first)
	second := f.add(t)
	approval := f.pending(t, run)
	p := sitDown(t, second.url, 120, 30, "--session", session)
	p.types(t, "say terminal\r")
	screen := p.awaitText(t, "y or n?")
	for _, want := range []string{
		"? charge was started with this and interrupted. Has it taken effect? If not, it runs again.", `{"hold": "after"}`, "(its idempotency key is ",
	} {
		if !strings.Contains(screen, want) {
			t.Errorf("no %q on the screen:\n%s", want, screen)
		}
	}
	p.types(t, "\x04")
	p.awaitText(t, "(the run waits: agentd approvals happened or not-happened "+approval)
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p = sitDown(t, second.url, 120, 30, "--session", session)
	p.types(t, "say terminal\r")
	p.awaitText(t, "y or n?")
	p.types(t, "y\r")
	if status := f.awaitEnd(t, run); status != "completed" {
		t.Errorf("the run is %s", status)
	}
	p.awaitPrompt(t)
	if got := scalar[string](t, f.db, `SELECT status FROM agentd.approvals WHERE id = $1`, approval); got != "happened" || len(effects(t, f.effects, run)) != 1 {
		t.Errorf("the approval is %s, effects %v", got, effects(t, f.effects, run))
	}
}

// TestKillInAToolWithThePolicyFailEndsTheRun: it is in runs.reason.
func TestKillInAToolWithThePolicyFailEndsTheRun(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.env = append(f.env, "AGENTD_ON_UNKNOWN=fail")
	first := f.add(t)
	session := newSession(t, first)
	run, _ := startRun(t, first, session, fmt.Sprintf("%s %s r", toolCharge, holdAfter))
	awaitEffect(t, f.effects, run)
	f.kill(t, first)
	f.add(t)
	if status := f.awaitEnd(t, run); status != "failed" {
		t.Errorf("the run is %s", status)
	}
	got := scalar[string](t, f.db, `SELECT r.reason || ', ' || k.result_reason FROM agentd.runs r JOIN agentd.tool_calls k ON k.run_id = r.id WHERE r.id = $1`, run)
	if n := len(effects(t, f.effects, run)); got != "outcome_unknown, outcome_unknown" || n != 1 {
		t.Errorf("%s, and %d effects", got, n)
	}
	checkSession(t, f, session)
	f.verify(t)
}
