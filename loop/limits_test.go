package loop_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// limit puts limits on the agent of b.
func limit(b *looptest.Bench, l loop.Limits) {
	a := b.Engine.Agents["demo"]
	a.Limits = l
	b.Engine.Agents["demo"] = a
}

// insists asks for the tool in every answer, with the arguments of the turn.
func insists(args func(turn int) string) looptest.Model {
	return func(_ context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		for _, c := range looptest.Answer(looptest.ToolCall("p", "look", args(req.Turn)), looptest.Finish(stream.FinishToolCalls)) {
			if !yield(c, nil) {
				return
			}
		}
	}
}

func same(int) string { return `{"zone":"UTC"}` }

func TestAModelThatNeverStopsCallingToolsIsStoppedAtTheLimitOfTurns(t *testing.T) {
	t.Parallel()
	var c counted
	b := looptest.NewBench(looptest.NewLog(), strict(t, insists(func(n int) string { return fmt.Sprintf(`{"n":%d}`, n) })), c.tool("look"))
	limit(b, loop.Limits{Turns: 7, RepeatedCalls: 3})
	run := b.Advance(t, b.Start(t, b.Session(t), "hi"))
	if run.Status != loop.RunFailed || run.Reason != string(event.FailTurnLimit) || !strings.Contains(run.Error, "7 turns") || len(run.Turns) != 7 || len(c.sorted()) != 7 {
		t.Errorf("run %s %s %q after %d turns and %d calls", run.Status, run.Reason, run.Error, len(run.Turns), len(c.sorted()))
	}
}

func TestALimitThatIsReachedByTheLastAnswerEndsNothing(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), calls("look"), looptest.Says("look", "seen"))
	limit(b, loop.Limits{Turns: 2, RepeatedCalls: 1 << 10})
	if run := b.Advance(t, b.Start(t, b.Session(t), "hi")); run.Status != loop.RunCompleted || len(run.Turns) != 2 {
		t.Errorf("run %+v", run)
	}
}

// TestABlockedCallThatIsRepeatedEndsTheRunAtTheLimit: the model is told each
// time why the call was blocked, and asks again for ever.
func TestABlockedCallThatIsRepeatedEndsTheRunAtTheLimit(t *testing.T) {
	t.Parallel()
	var c counted
	asked := 0
	b := looptest.NewBench(looptest.NewLog(), strict(t, insists(same)), c.tool("look"))
	b.Use(hooks.Hooks{BeforeToolCall: hooks.Named("sunday", "1", func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
		asked++
		return hooks.BeforeToolCallResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "sunday", Text: "not allowed on Sundays"}}, nil
	})})
	limit(b, loop.Limits{RepeatedCalls: 5})
	id := b.Session(t)
	run := b.Advance(t, b.Start(t, id, "hi"))
	if run.Status != loop.RunFailed || run.Reason != string(event.FailRepeatedCalls) || !strings.Contains(run.Error, "look") || !strings.Contains(run.Error, "5 turns") {
		t.Errorf("run %s %s %q", run.Status, run.Reason, run.Error)
	}
	_, s := checked(t, b, id)
	if len(run.Turns) != 5 || asked != 5 || len(c.sorted()) != 0 {
		t.Errorf("%d turns, %d times asked, ran %v", len(run.Turns), asked, c.sorted())
	}
	for _, got := range results(s) {
		if got.Reason != hooks.ReasonBlocked || !strings.Contains(got.Content, "not allowed on Sundays") {
			t.Errorf("result %+v", got)
		}
	}
	goesOn(t, b, id)
}

func TestOnlyTheSameCallInEveryTurnCountsAsRepeated(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]func(int) string{
		"other arguments each time": func(n int) string { return fmt.Sprintf(`{"n":%d}`, n%4) },
		"other bytes":               func(n int) string { return `{` + strings.Repeat(" ", n%4) + `}` },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := looptest.NewBench(looptest.NewLog(), insists(args), looptest.Says("look", "seen"))
			limit(b, loop.Limits{Turns: 20, RepeatedCalls: 3})
			if run := b.Advance(t, b.Start(t, b.Session(t), "hi")); run.Reason != string(event.FailTurnLimit) {
				t.Errorf("run %s %q after %d turns", run.Reason, run.Error, len(run.Turns))
			}
		})
	}
}

// TestTimeIsUpInEveryKindOfStep: the run ends at its time, tells its hooks,
// and leaves a history that goes on.
func TestTimeIsUpInEveryKindOfStep(t *testing.T) {
	t.Parallel()
	slow := looptest.Tool{Name: "slow", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
		<-ctx.Done()
		return loop.ToolOutput{}, ctx.Err()
	}}
	for name, c := range map[string]struct {
		model   looptest.Model
		results []hooks.ResultReason
	}{
		"a stalled answer": {stalls(nil, looptest.Text("once")), nil},
		"a tool":           {calls("slow"), []hooks.ResultReason{hooks.ReasonOutcomeUnknown}},
		"a failing model": {func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			yield(stream.Chunk{}, &loop.ModelError{Message: "busy", Retryable: true, RetryAfter: 2 * time.Second})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := looptest.NewBench(looptest.NewLog(), strict(t, c.model), slow)
				var d diary
				b.Use(hooks.Hooks{OnRunEnd: d.hooks(b).OnRunEnd})
				limit(b, loop.Limits{RunTime: time.Minute})
				retry(b, loop.Retry{Attempts: 1 << 10, MaxWait: 2 * time.Second})
				id := b.Session(t)
				begin := time.Now()
				run := b.Advance(t, b.Start(t, id, "hi"))
				if run.Status != loop.RunFailed || run.Reason != string(event.FailTimeout) || !strings.Contains(run.Error, "1m0s") || time.Since(begin) != time.Minute {
					t.Errorf("run %s %s %q after %v", run.Status, run.Reason, run.Error, time.Since(begin))
				}
				if want := []string{"run failed timeout after run.failed"}; !reflect.DeepEqual(d.lines, want) {
					t.Errorf("told %q; want %q", d.lines, want)
				}
				_, s := checked(t, b, id)
				var got []hooks.ResultReason
				for _, r := range results(s) {
					got = append(got, r.Reason)
				}
				if !reflect.DeepEqual(got, c.results) {
					t.Errorf("results %v; want %v", got, c.results)
				}
				limit(b, loop.Limits{})
				goesOn(t, b, id)
			})
		})
	}
}

// TestOnlyTimeInTheHandsOfAWorkerCounts: the leases add up, and what lies
// between them does not.
func TestOnlyTimeInTheHandsOfAWorkerCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), stalls(nil))
		limit(b, loop.Limits{RunTime: time.Minute})
		j := b.Start(t, b.Session(t), "hi")
		pause(t.Context(), time.Hour)
		w := work(t, b, j)
		pause(t.Context(), 40*time.Second)
		close(w.interrupt)
		if err := w.wait(t); err != nil {
			t.Fatal(err)
		}
		pause(t.Context(), time.Hour)
		begin := time.Now()
		j.Ticket = b.Run(t, j).Ticket
		if run := b.Advance(t, j); run.Reason != string(event.FailTimeout) || time.Since(begin) != 20*time.Second {
			t.Errorf("run %s %s after %v", run.Status, run.Reason, time.Since(begin))
		}
	})
}

func TestAnAnswerThatIsWholeWhenTheTimeIsUpStands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), says("done"))
		limit(b, loop.Limits{RunTime: time.Minute})
		hooked(b, func(a loop.Append) {
			if a.Events[len(a.Events)-1].Type == event.TypeModelRequested {
				return
			}
			pause(t.Context(), 2*time.Minute)
		})
		if run := b.Advance(t, b.Start(t, b.Session(t), "hi")); run.Status != loop.RunCompleted {
			t.Errorf("run %s %s", run.Status, run.Reason)
		}
	})
}
