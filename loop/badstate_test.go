package loop_test

import (
	"errors"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestFoldRunRefusesWhatItCannotFollow: each break is at seq 6, in the middle of
// a run.
func TestFoldRunRefusesWhatItCannotFollow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		typ     event.Type
		payload string
		problem string // "" if it is passed over
	}{
		"a payload of another shape":     {event.TypeRunStarted, `"x"`, "the payload of run.started cannot be read"},
		"an event that does not follow":  {event.TypeToolStarted, `{}`, "tool.started does not follow from the events before it"},
		"a type that is required":        {"run.moved", `{"required":true}`, "run.moved is required to be understood, and this version does not know it"},
		"a type that is not known":       {"run.noted", `{"required":false}`, ""},
		"an unknown type with no object": {"run.noted", `7`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := looptest.NewBench(looptest.NewLog(), says("hi"))
			j := b.Start(t, b.Session(t), "hi")
			b.Advance(t, j)
			events := b.Events(t, j.SessionID)
			e := event.Event{SessionID: j.SessionID, RunID: j.RunID, Seq: 6, Type: c.typ, Payload: []byte(c.payload)}
			broken := append(append(append([]event.Event{}, events[:4]...), e), events[4:]...)
			s, err := loop.FoldRun(loop.State{}, broken)
			var bad *loop.BadStateError
			if c.problem == "" {
				if r, _ := s.Run(j.RunID); err != nil || r.Status != loop.RunCompleted {
					t.Errorf("run %s, %v; want it passed over", r.Status, err)
				}
				return
			}
			if !errors.As(err, &bad) || !errors.Is(err, loop.ErrBadState) || bad.Seq != 6 || bad.Problem != c.problem {
				t.Errorf("got %v; want seq 6: %s", err, c.problem)
			}
		})
	}
}
