package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestRunsThatWaitForPeopleHoldNothing: a process whose runs wait has no more
// goroutines for them, and no more connections, than one without. Those that do
// not wait have theirs, so it would show.
func TestRunsThatWaitForPeopleHoldNothing(t *testing.T) {
	t.Parallel()
	const few, many, streaming = 1, 25, 2
	f := newFleet(t)
	f.env = append(f.env, "AGENTD_TOOL_PERMISSIONS=charge=ask")
	held := map[int]int{} // goroutines, by how many runs wait
	for _, n := range []int{few, many} {
		s := f.add(t)
		f.wait(t, s, n)
		for i := range streaming {
			run, _ := startRun(t, s, newSession(t, s), fmt.Sprintf("stream s%d", i))
			awaitRow(t, f.db, fmt.Sprintf(`SELECT 'x' FROM agentd.events WHERE run_id = '%s' AND type = '%s'`, run, event.TypeAssistantDelta))
		}
		connections := scalar[int](t, f.db, `
			SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'agentd%'`)
		dump := f.dump(t, s)
		held[n] = strings.Count(dump, "\ngoroutine ")
		if at := strings.Count(dump, "loop.(*Engine).Advance("); at != streaming {
			t.Errorf("%d runs wait, and %d goroutines advance a run, want %d", n, at, streaming)
		}
		if connections >= many {
			t.Errorf("%d runs wait, and there are %d connections", n, connections)
		}
		t.Logf("%d runs wait: %d goroutines, %d connections", n, held[n], connections)
		// Those that do not wait are somebody else's now.
		next := f.add(t)
		awaitRow(t, f.db, `SELECT 'x' WHERE NOT EXISTS (SELECT FROM agentd.runs WHERE status IN ('queued', 'running'))`)
		f.kill(t, next)
	}
	f.checkNothingHeld(t, few+many)
	if more := held[many] - held[few]; more >= many-few {
		t.Errorf("%d more runs that wait have %d more goroutines", many-few, more)
	}
	f.verify(t)
}

// dump ends a process with what its goroutines are at.
func (f *fleet) dump(t *testing.T, s *server) string {
	t.Helper()
	s.signal(t, syscall.SIGQUIT)
	s.wait(t)
	f.alive = slices.DeleteFunc(f.alive, func(other *server) bool { return other == s })
	return s.err.String()
}
