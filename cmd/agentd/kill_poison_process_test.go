package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestKillByARunOfItsOwnProcess: whoever takes the run up dies of it. The runs
// beside it end, and the time between two attempts grows. Full size, it goes on
// until the run is given up.
func TestKillByARunOfItsOwnProcess(t *testing.T) {
	t.Parallel()
	deaths, others, want := 2, 4, "completed"
	if fullSize() {
		deaths, others, want = 5, 20, "failed"
	}
	f := newFleet(t)
	front, victim := f.add(t, "--roles", "api"), f.add(t, "--roles", "worker")
	session := newSession(t, front)
	run, _ := startRun(t, front, session, fmt.Sprintf("%s %d r", toolDie, deaths))
	beside := map[string]string{} // the sessions, by run
	for i := range others {
		s := newSession(t, front)
		r, _ := startRun(t, front, s, fmt.Sprintf("say r%d", i))
		beside[r] = s
	}
	for range deaths {
		victim.wait(t)
		f.alive = f.alive[:1]
		victim = f.add(t, "--roles", "worker")
	}
	if status := f.awaitEnd(t, run); status != want {
		t.Errorf("the run is %s, want %s", status, want)
	}
	facts := ofRun(checkSession(t, f, session), run)
	f.checkGrowingDelays(t, facts, deaths)
	entered := map[int]bool{}
	for _, e := range effects(t, f.effects, run) {
		entered[e.attempt] = true
	}
	tries := deaths + 1
	if want == "failed" {
		tries = deaths
		if p := only[event.RunFailed](t, facts); p.Reason != event.FailPoisoned {
			t.Errorf("failed as %+v", p)
		}
		if p := only[event.ToolResult](t, facts); p.Reason != hooks.ReasonOutcomeUnknown {
			t.Errorf("the result is %+v", p)
		}
	}
	if len(entered) != tries {
		t.Errorf("the tool was entered in attempts %v, want %d of them", entered, tries)
	}
	for r, s := range beside {
		if status := f.awaitEnd(t, r); status != "completed" {
			t.Errorf("a run beside it is %s", status)
		}
		checkRun(t, ofRun(checkSession(t, f, s), r))
	}
	f.verify(t)
}

// checkGrowingDelays: each death is counted in the log before the run is taken
// up again, at once the first time, and later each time.
func (f *fleet) checkGrowingDelays(t *testing.T, facts []fact, deaths int) {
	t.Helper()
	var waits []time.Duration
	for _, e := range events(t, facts) {
		if e.Type != event.TypeRunReleased {
			continue
		}
		p, err := event.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		wait := time.Duration(0)
		if at := p.(event.RunReleased).NotBefore; at != nil {
			wait = at.Sub(e.At)
		}
		waits = append(waits, wait)
	}
	if len(waits) != deaths || waits[0] != 0 {
		t.Errorf("%d deaths, and the run waited %v", deaths, waits)
	}
	for i := 1; i < min(len(waits), 4); i++ { // the fifth is the last
		if waits[i] <= waits[i-1] {
			t.Errorf("the run waited %v", waits)
		}
	}
}

// TestKillByARunDoesNotGiveUpTheOneBesideIt: a run that is slower than the other
// one kills its process is not given up with it.
func TestKillByARunDoesNotGiveUpTheOneBesideIt(t *testing.T) {
	t.Parallel()
	if !fullSize() {
		t.Skip("takes as long as five deaths with growing delays: make test-full-size")
	}
	f := newFleet(t)
	front := f.add(t, "--roles", "api")
	sessions := []string{newSession(t, front), newSession(t, front)}
	// Both are queued when the first worker comes, and slow is in its step when
	// the other one kills it.
	slow, _ := startRun(t, front, sessions[0], "pause r")
	killer, _ := startRun(t, front, sessions[1], toolDie+" 9 r")
	worker := f.add(t, "--roles", "worker")
	tick := time.NewTicker(50 * time.Millisecond)
	t.Cleanup(tick.Stop)
	kept := false
	for scalar[string](t, f.db, `SELECT status FROM agentd.runs WHERE id = $1`, killer) != "failed" {
		select {
		case <-worker.done:
			f.alive = f.alive[:1]
			worker = f.add(t, "--roles", "worker")
		case <-tick.C:
		}
		// The slow one came first, and holds the only place until it is done.
		if !kept && scalar[bool](t, f.db, `
			SELECT EXISTS (SELECT FROM agentd.events WHERE run_id = $1 AND payload ->> 'cause' = 'crowded')`, killer) {
			kept = true
			f.open(t, f.gate)
		}
	}
	if p := only[event.RunFailed](t, ofRun(checkSession(t, f, sessions[1]), killer)); p.Reason != event.FailPoisoned {
		t.Errorf("the killer failed as %+v", p)
	}
	f.open(t, f.gate)
	if status := f.awaitEnd(t, slow); status != "completed" {
		t.Errorf("the slow run is %s", status)
	}
	facts := ofRun(checkSession(t, f, sessions[0]), slow)
	checkRun(t, facts)
	if n := len(decoded[event.RunReleased](t, facts)); n == 0 || n > 3 {
		t.Errorf("%d workers died over the slow run, want those that it shared with the other one", n)
	}
	f.verify(t)
}
