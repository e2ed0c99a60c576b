package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestALimitOutlivesAKill: the process that has let the one call through is killed
// before the call has started. The next process runs it, and no other call: not in
// another session, whoever takes it.
func TestALimitOutlivesAKill(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const config = "hooks:\n  - rate_limit: {calls: 1, per: tenant, window: 1h}\n    tools: put\n"
	if err := os.WriteFile(filepath.Join(f.dir, "agentd.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	f.spawn(t)
	f.spawn(t)
	f.ready(t)
	say := toolPut + " " + holdNever
	r := f.killDuring(t, 0, newSession(t, f.alive[0]), killPoint{say: say, hold: event.TypeToolStarted, turn: 1, lose: true})
	if result := only[event.ToolResult](t, r.facts); result.IsError || len(effects(t, f.effects, r.id)) != 1 {
		t.Errorf("the call took effect %d times, and its result is %+v", len(effects(t, f.effects, r.id)), result)
	}
	f.ready(t)
	for _, at := range f.alive {
		session := newSession(t, at)
		run, _ := startRun(t, at, session, say+" another")
		f.awaitEnd(t, run)
		result := only[event.ToolResult](t, ofRun(stored(t, f.db, session), run))
		if result.Reason != hooks.ReasonBlocked || len(effects(t, f.effects, run)) != 0 {
			t.Errorf("another call took effect %d times, and its result is %+v", len(effects(t, f.effects, run)), result)
		}
	}
	f.verify(t)
}
