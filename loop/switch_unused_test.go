package loop_test

import (
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestASetIsUnusedOnceTheLastLeaseOfItHasEnded, once, and not while it is in force.
func TestASetIsUnusedOnceTheLastLeaseOfItHasEnded(t *testing.T) {
	t.Parallel()
	var told []string
	b := looptest.NewBench(looptest.NewLog(), strict(t, looptest.Answers(looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)))))
	var s *loop.Switch
	old, next := marked("old", func() {}), marked("next", func() {})
	old.Unused = func() { told = append(told, "old") }
	next.Unused = func() { told = append(told, "next") }
	putWithin := marked("within", func() {
		if s.Now().Asker.HookSet == next.Asker.HookSet {
			return
		}
		s.Put(next)
		if len(told) != 1 {
			t.Errorf("unused while a lease has it: %q", told)
		}
	})
	putWithin.Unused = func() { told = append(told, "within") }
	s = switched(b, old)
	id := b.Session(t)
	j := b.Start(t, id, "hi") // a command, which has ended
	s.Put(putWithin)
	if !slices.Equal(told, []string{"old"}) {
		t.Errorf("unused: %q; want the one that was replaced while nobody had it", told)
	}
	b.Advance(t, j)
	if !slices.Equal(told, []string{"old", "within"}) {
		t.Errorf("unused: %q; want the one of the lease behind it", told)
	}
	s.Put(loop.InForce{})
	if !slices.Equal(told, []string{"old", "within", "next"}) {
		t.Errorf("unused: %q", told)
	}
}

// away is a tool of somebody who may be gone.
type away struct {
	looptest.Tool
	gone *bool
}

func (a away) Available() bool { return !*a.gone }

// TestToolsComeAndGoBetweenTurns: what is in force is told the model with the agent's
// own, and what is away is not, but its call says what came of it.
func TestToolsComeAndGoBetweenTurns(t *testing.T) {
	t.Parallel()
	var gone bool
	own := looptest.Says("look", "seen")
	more := away{looptest.Says("far__look", "far"), &gone}
	shadow := looptest.Says("look", "not this one")
	model := looptest.Answers(
		looptest.Answer(looptest.ToolCall("p", "far__look", "{}"), looptest.ToolCall("q", "look", "{}"), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.ToolCall("p", "far__look", "{}"), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	)
	b := looptest.NewBench(looptest.NewLog(), strict(t, model), own)
	f := marked("set", func() {})
	f.Tools = func() []loop.Tool { return []loop.Tool{more, shadow} }
	switched(b, f)
	id := b.Session(t)
	j := b.Start(t, id, "hi")
	v, err := b.Engine.View(t.Context(), looptest.Tenant, id, j.RunID)
	if err != nil || !slices.Equal(v.Tools, []string{"look", "far__look"}) {
		t.Errorf("view %+v, %v", v, err)
	}
	gone = true
	if v, err = b.Engine.View(t.Context(), looptest.Tenant, id, j.RunID); err != nil || !slices.Equal(v.Tools, []string{"look"}) {
		t.Errorf("view %+v, %v", v, err)
	}
	b.Advance(t, j)
	events, st := checked(t, b, id)
	for _, q := range payloads[event.ModelRequested](t, events) {
		if !slices.Equal(q.Tools, []string{"look"}) {
			t.Errorf("the model is told of %q", q.Tools)
		}
	}
	var said []string
	for _, r := range results(st) {
		said = append(said, r.Content)
	}
	if !slices.Equal(said, []string{"far", "seen", "far"}) {
		t.Errorf("results %q", said)
	}
	if _, err := b.Engine.View(t.Context(), looptest.Tenant, id, j.RunID); err == nil {
		t.Error("a run that has ended has a view")
	}
	if _, err := b.Engine.View(t.Context(), looptest.Tenant, id, "none"); err == nil {
		t.Error("a run that there is not has a view")
	}
}
