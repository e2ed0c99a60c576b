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
