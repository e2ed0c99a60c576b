package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// buildSelf builds this test binary once more, with other flags, in the tree of
// dir, "" for this one. It takes a while, so it is for tests of full size.
func buildSelf(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "agentd.test")
	if dir == "" {
		dir = "../.."
	}
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"test", "-c", "-o", out}, flags...), "./cmd/agentd")...)
	cmd.Dir = dir
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, said)
	}
	return out
}

// TestKillAtNamedPoints: a build with the tag faults dies where the environment
// says so, between two instructions that no commit separates. Another worker,
// of the ordinary build, takes the run up.
func TestKillAtNamedPoints(t *testing.T) {
	t.Parallel()
	if !fullSize() {
		t.Skip("builds agentd once more: make test-full-size")
	}
	binary := buildSelf(t, "", "-tags", "faults")
	for _, c := range []struct {
		point  loop.Point
		passes int
		say    []string
	}{
		// A run with a tool is four steps: a call of the model, the tool, another
		// call, and the end.
		{loop.PointStepCommitted, 4, []string{toolCharge + " " + holdNever, toolPut + " " + holdNever}},
		{loop.PointStepDone, 3, []string{toolCharge + " " + holdNever, toolPut + " " + holdNever}},
		{loop.PointToolExecuting, 1, []string{toolCharge + " " + holdNever, toolPut + " " + holdNever}},
		{loop.PointModelStreaming, 2, []string{"stream"}},
	} {
		for n := range c.passes {
			for _, say := range c.say {
				t.Run(fmt.Sprintf("%s %d %s", c.point, n+1, say), func(t *testing.T) {
					t.Parallel()
					killAtPoint(t, binary, c.point, n+1, say)
				})
			}
		}
	}
}

func killAtPoint(t *testing.T, binary string, point loop.Point, pass int, say string) {
	t.Helper()
	f := newFleet(t)
	front := f.add(t, "--roles", "api")
	armed := start(t, options{
		dir: f.dir, env: append([]string{fmt.Sprintf("AGENTD_CRASH_AT=%s:%d", point, pass)}, f.env...), binary: binary,
	}, "serve", "--roles", "worker")
	session := newSession(t, front)
	run, _ := startRun(t, front, session, say+" r")
	if code := armed.wait(t); code != -1 {
		t.Fatalf("exit code %d, want a death by a signal", code)
	}
	f.add(t, "--roles", "worker")
	if status := f.awaitEnd(t, run); status != "completed" {
		t.Errorf("the run is %s", status)
	}
	facts := ofRun(checkSession(t, f, session), run)
	checkRun(t, facts)
	f.verify(t)
	if point == loop.PointModelStreaming {
		if p := decoded[event.AssistantDiscarded](t, facts); len(p) != 1 || len(decoded[event.RunReleased](t, facts)) != 1 {
			t.Errorf("discarded: %+v; want the one attempt that the death cut off", p)
		}
		return
	}
	story := checkTool(t, f, facts)
	switch {
	case point == loop.PointToolExecuting && story.effects != story.started-1:
		t.Errorf("%+v: the tool took effect though the process died before it was entered", story)
	case point == loop.PointStepDone && pass == 2 && story.effects != story.started:
		t.Errorf("%+v: the tool had not taken effect though the process died behind it", story)
	}
}
