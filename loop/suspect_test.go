package loop_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// diedOver is a queued run over which so many workers in a row have died.
func diedOver(t *testing.T, b *looptest.Bench, deaths int) loop.Job {
	t.Helper()
	j := b.Start(t, b.Session(t), "hello")
	for range deaths {
		claimed(t, b, j, "w", 1)
		release(t, b, j, "w")
		j.Ticket = b.Run(t, j).Ticket
	}
	return j
}

// TestASuspectRunIsApartUntilItHasFinishedAStep: and what has not killed three
// workers is not kept apart at all.
func TestASuspectRunIsApartUntilItHasFinishedAStep(t *testing.T) {
	t.Parallel()
	for deaths, want := range map[int][]string{
		0: {"model", "tool", "model"}, 2: {"model", "tool", "model"}, 3: {"apart", "model", "done", "tool", "model"},
	} {
		var saw []string
		see := func(what string) { saw = append(saw, what) }
		model := strict(t, calls("look"))
		b := looptest.NewBench(looptest.NewLog(), looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			see("model")
			model(ctx, req, yield)
		}), looptest.Tool{Name: "look", Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
			see("tool")
			return loop.ToolOutput{Content: "seen"}, nil
		}})
		j := diedOver(t, b, deaths)
		err := b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: looptest.NewID(), Alone: func(context.Context) (func(), bool) {
			see("apart")
			return func() { see("done") }, true
		}})
		if err != nil || !slices.Equal(saw, want) || b.Run(t, j).Status != loop.RunCompleted {
			t.Errorf("after %d deaths: %q, %v, the run is %s; want %q", deaths, saw, err, b.Run(t, j).Status, want)
		}
	}
}

func TestASuspectRunThatIsKeptOut(t *testing.T) {
	t.Parallel()
	advance := func(t *testing.T, b *looptest.Bench, j loop.Job, alone func(context.Context) (func(), bool)) error {
		t.Helper()
		return b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: looptest.NewID(), Alone: alone})
	}
	t.Run("IsNotClaimed", func(t *testing.T) {
		t.Parallel()
		b := looptest.NewBench(looptest.NewLog(), says("hi"))
		j := diedOver(t, b, 3)
		before := len(b.Events(t, j.SessionID))
		if err := advance(t, b, j, func(context.Context) (func(), bool) { return nil, false }); !errors.Is(err, loop.ErrCrowded) {
			t.Errorf("got %v, want ErrCrowded", err)
		}
		if n := len(b.Events(t, j.SessionID)); n != before {
			t.Errorf("%d events were written", n-before)
		}
	})
	t.Run("AndCancelledMeanwhileIsNotClaimedEither", func(t *testing.T) {
		t.Parallel()
		b := looptest.NewBench(looptest.NewLog(), says("hi"))
		j, left := diedOver(t, b, 3), false
		err := advance(t, b, j, func(context.Context) (func(), bool) {
			if err := cancel(t, b, j); err != nil {
				t.Error(err)
			}
			return func() { left = true }, true
		})
		if err != nil || !left || b.Run(t, j).Status != loop.RunCancelled {
			t.Errorf("%v, left %t, the run is %s", err, left, b.Run(t, j).Status)
		}
		for _, e := range b.Events(t, j.SessionID) {
			if e.Type == event.TypeRunCompleted {
				t.Error("the run was completed")
			}
		}
	})
}
