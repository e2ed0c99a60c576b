package loop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// ponders is a set whose hook at one gate thinks for an hour, whatever its
// context says; its limit is an hour as well.
func ponders(gate hooks.Gate, opts ...hooks.Option) hooks.Hooks {
	opts = append(opts, hooks.TimeLimit(2*time.Hour))
	think := func() { <-time.After(time.Hour) }
	switch gate {
	case hooks.GateBeforeRunStart:
		return hooks.Hooks{BeforeRunStart: hooks.Named("p", "1", func(context.Context, hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			think()
			return hooks.BeforeRunStartResult{Action: hooks.ActionBlock}, nil
		}, opts...)}
	case hooks.GateTransformContext:
		return hooks.Hooks{TransformContext: hooks.Named("p", "1", func(context.Context, hooks.TransformContext) (hooks.TransformContextResult, error) {
			think()
			return hooks.TransformContextResult{Action: hooks.ActionBlock}, nil
		}, opts...)}
	case hooks.GateBeforeToolCall:
		return hooks.Hooks{BeforeToolCall: hooks.Named("p", "1", func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			think()
			return hooks.BeforeToolCallResult{Action: hooks.ActionBlock}, nil
		}, opts...)}
	case hooks.GateBeforeExecute:
		return hooks.Hooks{BeforeExecute: hooks.Named("p", "1", func(context.Context, hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
			think()
			return hooks.BeforeExecuteResult{Action: hooks.ActionBlock}, nil
		}, opts...)}
	case hooks.GateAfterToolCall:
		return hooks.Hooks{AfterToolCall: hooks.Named("p", "1", func(context.Context, hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
			think()
			return hooks.AfterToolCallResult{Action: hooks.ActionWithhold}, nil
		}, opts...)}
	case hooks.GateBeforeInput, hooks.GateBeforeProviderHeaders, hooks.GateBeforeProviderRequest, hooks.GateAfterProviderResponse, hooks.GateOnChunk, hooks.GateOnEnd:
	}
	panic("no such gate in a run: " + gate)
}

var runGates = []hooks.Gate{
	hooks.GateBeforeRunStart, hooks.GateTransformContext, hooks.GateBeforeToolCall, hooks.GateBeforeExecute, hooks.GateAfterToolCall,
}

// TestAHookThatPondersKeepsNoRunFromStopping: it is left behind, and what it
// says in the end is neither a yes nor a no.
func TestAHookThatPondersKeepsNoRunFromStopping(t *testing.T) {
	t.Parallel()
	for _, gate := range runGates {
		for name, stop := range stops {
			t.Run(string(gate)+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { stopsWhilePondering(t, gate, name, stop) })
			})
			t.Run(string(gate)+"/"+name+"/breaks its promise", func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { stopsWhilePondering(t, gate, name, stop, hooks.Pure()) })
			})
		}
	}
}

// stops are the ways in which a run that is worked on is left.
var stops = map[string]func(t *testing.T, b *looptest.Bench, j loop.Job, w *working) loop.Run{
	"cancel": func(t *testing.T, b *looptest.Bench, j loop.Job, w *working) loop.Run {
		cancelledNow(t, b, j, w, 0)
		return b.Run(t, j)
	},
	"time is up": func(t *testing.T, b *looptest.Bench, j loop.Job, w *working) loop.Run {
		if err := w.wait(t); err != nil {
			t.Error(err)
		}
		run := b.Run(t, j)
		if run.Reason != string(event.FailTimeout) {
			t.Errorf("run %s %s", run.Status, run.Reason)
		}
		return run
	},
	"interrupt": func(t *testing.T, b *looptest.Bench, j loop.Job, w *working) loop.Run {
		close(w.interrupt)
		if err := w.wait(t); err != nil {
			t.Error(err)
		}
		run := b.Run(t, j)
		if run.Status != loop.RunQueued || run.ReleasedFor != event.ReleaseShutdown {
			t.Errorf("run %s %s", run.Status, run.ReleasedFor)
		}
		return run
	},
	"kill": func(t *testing.T, b *looptest.Bench, j loop.Job, w *working) loop.Run {
		w.kill()
		if err := w.wait(t); err == nil {
			t.Error("it returned as if nothing had happened")
		}
		return b.Run(t, j)
	},
}

func stopsWhilePondering(t *testing.T, gate hooks.Gate, name string, stop func(*testing.T, *looptest.Bench, loop.Job, *working) loop.Run, opts ...hooks.Option) {
	t.Helper()
	var c counted
	b := looptest.NewBench(looptest.NewLog(), strict(t, calls("look")), c.tool("look"))
	b.Use(ponders(gate, opts...))
	if name == "time is up" {
		limit(b, loop.Limits{RunTime: 20 * time.Second})
	}
	j := b.Start(t, b.Session(t), "hi")
	w := work(t, b, j)
	pause(t.Context(), 10*time.Second)
	begin := time.Now()
	run := stop(t, b, j, w)
	if took := time.Since(begin); took > 10*time.Second || name == "cancel" && took != 0 {
		t.Errorf("it took %v", took)
	}
	if rows := ledger(b, j.SessionID); len(rows) != 0 {
		t.Errorf("ledger %+v of a hook that has not answered", rows)
	}
	if n := b.Engine.Asker.Abandoned(); n != 1 {
		t.Errorf("%d hooks were left behind", n)
	}
	if ran := len(c.sorted()); ran != 0 != (gate == hooks.GateAfterToolCall) {
		t.Errorf("the tool ran %d times", ran)
	}
	checked(t, b, j.SessionID)
	quiet(b)
	if run.Status.Terminal() {
		limit(b, loop.Limits{})
		goesOn(t, b, j.SessionID)
	}
	pause(t.Context(), 2*time.Hour)
}

// TestAnOutputThatIsThereWhenTheCancelComesIsStillReviewed: what had ended
// when the cancel came gets the time that its hooks need, within bounds.
func TestAnOutputThatIsThereWhenTheCancelComesIsStillReviewed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes  time.Duration
		reason hooks.ResultReason
	}{"quick hook": {100 * time.Millisecond, hooks.ReasonWithheld}, "slow hook": {time.Second, hooks.ReasonOutputLost}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				entered := make(chan struct{})
				tool := looptest.Tool{Name: "look", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
					close(entered)
					<-ctx.Done()
					return loop.ToolOutput{Content: "seen"}, nil
				}}
				b := looptest.NewBench(looptest.NewLog(), strict(t, calls("look")), tool)
				b.Use(hooks.Hooks{AfterToolCall: hooks.Named("slow", "1", func(context.Context, hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
					<-time.After(c.takes)
					return hooks.AfterToolCallResult{Action: hooks.ActionWithhold}, nil
				})})
				j := b.Start(t, b.Session(t), "hi")
				w := work(t, b, j)
				<-entered
				_, s := cancelledNow(t, b, j, w, 500*time.Millisecond)
				if got := results(s); len(got) != 1 || got[0].Reason != c.reason {
					t.Errorf("results %+v; want %s", got, c.reason)
				}
				pause(t.Context(), time.Minute)
			})
		})
	}
}

// TestAToolThatRanIsKnownToHaveRunWhileHooksPonderOnAnother: a kill in that
// time loses an output, and not the fact.
func TestAToolThatRanIsKnownToHaveRunWhileHooksPonderOnAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c counted
		b := looptest.NewBench(looptest.NewLog(), strict(t, calls("one", "two", "three")), c.tool("one"), c.tool("two"), c.tool("three"))
		b.Use(ponders(hooks.GateAfterToolCall))
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		pause(t.Context(), time.Second)
		if ran := payloads[event.ToolExecuted](t, b.Events(t, j.SessionID)); len(ran) != 3 {
			t.Errorf("%d tools are known to have run; want 3", len(ran))
		}
		_, s := cancelledNow(t, b, j, w, 500*time.Millisecond)
		for _, got := range results(s) {
			if got.Reason != hooks.ReasonOutputLost {
				t.Errorf("result %+v", got)
			}
		}
		pause(t.Context(), 2*time.Hour)
	})
}
