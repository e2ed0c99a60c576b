package loop_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// diary writes down every notification, together with the last event that was
// durable by then.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) hooks(b *looptest.Bench) hooks.Hooks {
	last := func(ref hooks.RunRef) event.Type {
		events, err := b.Log.Events(context.Background(), ref.TenantID, ref.SessionID, 0, 1<<20)
		if err != nil || len(events) == 0 || ref.Agent != "demo" || ref.RunID == "" {
			return event.Type(fmt.Sprintf("bad reference %+v, %v", ref, err))
		}
		return events[len(events)-1].Type
	}
	return hooks.Hooks{
		OnRunStart: func(_ context.Context, in hooks.RunStart) { d.add("run start after %s", last(in.RunRef)) },
		OnTurnStart: func(_ context.Context, in hooks.TurnStart) {
			d.add("turn %d.%d resumed=%v after %s", in.Turn, in.Attempt, in.Resumed, last(in.RunRef))
		},
		OnToolExecutionStart: func(_ context.Context, in hooks.ToolExecutionStart) {
			last(in.RunRef) // a quick sibling may have ended already
			d.add("tool %s %s in turn %d attempt %d", in.Call.Name, in.Call.Arguments, in.Turn, in.Attempt)
		},
		OnTurnEnd: func(_ context.Context, in hooks.TurnEnd) {
			d.add("turn %d ends with %d calls after %s", in.Turn, in.ToolCalls, last(in.RunRef))
		},
		OnRunEnd: func(_ context.Context, in hooks.RunEnd) {
			d.add("run %s %s after %s", in.Status, in.Reason, last(in.RunRef))
		},
	}
}

func TestNotificationsComeInOrderAndAtTheirPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		b := looptest.NewBench(looptest.NewLog(), paced(calls("look", "find")), afterTime("look", time.Second, "seen"), afterTime("find", time.Second, "found"))
		b.Engine.Hooks = d.hooks(b)
		j := b.Start(t, b.Session(t), "hi")
		b.Advance(t, j)
		checked(t, b, j.SessionID)
		want := []string{
			"run start after run.started",
			"turn 1.1 resumed=false after model.requested",
			"tool look {} in turn 1 attempt 1",
			"tool find {} in turn 1 attempt 1",
			"turn 1 ends with 2 calls after tool.result",
			"turn 2.1 resumed=false after model.requested",
			"turn 2 ends with 0 calls after assistant.delta",
			"run completed stop after run.completed",
		}
		if !reflect.DeepEqual(d.lines, want) {
			t.Errorf("notifications\n got %q\nwant %q", d.lines, want)
		}
	})
}

func TestNotificationsOfAResumedRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		b := looptest.NewBench(looptest.NewLog(), stalls(nil, looptest.Text("once")))
		b.Engine.Hooks = d.hooks(b)
		j := b.Start(t, b.Session(t), "hi")
		j = handedOver(t, b, j, time.Second)
		agent := b.Engine.Agents["demo"]
		agent.Model = paced(says("twice"))
		b.Engine.Agents["demo"] = agent
		b.Advance(t, j)
		want := []string{
			"run start after run.started",
			"turn 1.1 resumed=false after model.requested",
			"turn 1.2 resumed=true after model.requested",
			"turn 1 ends with 0 calls after assistant.delta",
			"run completed stop after run.completed",
		}
		if !reflect.DeepEqual(d.lines, want) {
			t.Errorf("notifications\n got %q\nwant %q", d.lines, want)
		}
	})
}

func TestRunEndIsToldOfEveryEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		model looptest.Model
		stop  func(t *testing.T, b *looptest.Bench, j loop.Job)
		want  string
	}{
		"completed": {says("hi"), nil, "run completed stop after run.completed"},
		"failed":    {fails(&loop.ModelError{Message: "no"}), nil, "run failed model_error after run.failed"},
		"cancelled": {stalls(nil), func(t *testing.T, b *looptest.Bench, j loop.Job) {
			if err := cancel(t, b, j); err != nil {
				t.Error(err)
			}
		}, "run cancelled enough after run.cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var d diary
				b := looptest.NewBench(looptest.NewLog(), c.model)
				b.Engine.Hooks = hooks.Hooks{OnRunEnd: d.hooks(b).OnRunEnd}
				j := b.Start(t, b.Session(t), "hi")
				w := work(t, b, j)
				synctest.Wait()
				if c.stop != nil {
					c.stop(t, b, j)
				}
				if err := w.wait(t); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(d.lines, []string{c.want}) {
					t.Errorf("notifications %q; want %q once", d.lines, c.want)
				}
			})
		})
	}
}

// TestRunStartIsToldAlthoughTheFirstWorkerDied before it came to it.
func TestRunStartIsToldAlthoughTheFirstWorkerDied(t *testing.T) {
	t.Parallel()
	var d diary
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	b.Use(hooks.Hooks{OnRunStart: d.hooks(b).OnRunStart})
	j := b.Start(t, b.Session(t), "hi")
	claimed(t, b, j, "w", 1)
	if !release(t, b, j, "w") {
		t.Fatal("nothing was released")
	}
	if run := b.Advance(t, next(t, b, j)); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
	if want := []string{"run start after run.resumed"}; !reflect.DeepEqual(d.lines, want) {
		t.Errorf("told %q; want %q", d.lines, want)
	}
}

// TestRunEndIsToldOfRunsThatNoWorkerHolds: whoever ends the run tells of it.
func TestRunEndIsToldOfRunsThatNoWorkerHolds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tool loop.PermissionMode
		end  func(t *testing.T, b *looptest.Bench, j loop.Job)
		want string
	}{
		"cancelled while it is queued": {loop.PermissionAllow, func(t *testing.T, b *looptest.Bench, j loop.Job) {
			if err := cancel(t, b, j); err != nil {
				t.Error(err)
			}
		}, "run cancelled enough after run.cancelled"},
		"cancelled while it waits": {loop.PermissionAsk, func(t *testing.T, b *looptest.Bench, j loop.Job) {
			if run := b.Advance(t, j); run.Status != loop.RunWaiting {
				t.Errorf("run %+v", run)
			}
			if err := cancel(t, b, j); err != nil {
				t.Error(err)
			}
		}, "run cancelled enough after run.cancelled"},
		"given up": {loop.PermissionAllow, func(t *testing.T, b *looptest.Bench, j loop.Job) {
			for range 5 {
				j.Ticket = b.Run(t, j).Ticket
				claimed(t, b, j, "w", 1)
				release(t, b, j, "w")
			}
		}, "run failed poisoned after run.failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d diary
			b := looptest.NewBench(looptest.NewLog(), calls("look"), looptest.Says("look", "seen"))
			permit(b, loop.Permission{Tools: "*", Mode: c.tool})
			b.Use(hooks.Hooks{OnRunEnd: d.hooks(b).OnRunEnd})
			j := b.Start(t, b.Session(t), "hi")
			c.end(t, b, j)
			if !reflect.DeepEqual(d.lines, []string{c.want}) {
				t.Errorf("notifications %q; want %q once", d.lines, c.want)
			}
			if err := cancel(t, b, j); err != nil && !errors.Is(err, loop.ErrRunEnded) {
				t.Error(err)
			}
			if len(d.lines) != 1 {
				t.Errorf("told again: %q", d.lines)
			}
		})
	}
}

func TestPanicWhenToldOfTheEndOfAQueuedRunCancelsItAllTheSame(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	b.Use(hooks.Hooks{OnRunEnd: func(context.Context, hooks.RunEnd) { panic("oh no") }})
	var logged strings.Builder
	b.Commands.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	j := b.Start(t, b.Session(t), "hi")
	if err := cancel(t, b, j); err != nil || b.Run(t, j).Status != loop.RunCancelled || !strings.Contains(logged.String(), "OnRunEnd") {
		t.Errorf("%v, run %+v, logged %s", err, b.Run(t, j), &logged)
	}
}

func TestRunEndIsNotToldOfAHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		b := looptest.NewBench(looptest.NewLog(), stalls(nil))
		b.Engine.Hooks = hooks.Hooks{OnRunEnd: d.hooks(b).OnRunEnd}
		handedOver(t, b, b.Start(t, b.Session(t), "hi"), time.Second)
		if len(d.lines) != 0 {
			t.Errorf("notifications %q; want none", d.lines)
		}
	})
}

// TestTurnEndIsToldOnceOverAConflict: the append of turn.completed has to be
// planned again.
func TestTurnEndIsToldOnceOverAConflict(t *testing.T) {
	t.Parallel()
	var d diary
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	b.Engine.Hooks = hooks.Hooks{OnTurnEnd: d.hooks(b).OnTurnEnd}
	j := b.Start(t, b.Session(t), "hi")
	var once sync.Once
	hooked(b, func(a loop.Append) {
		if has(a, event.TypeTurnCompleted) {
			once.Do(func() { write(t, b, j, 0, event.MessageCreated{MessageID: "m", Role: hooks.RoleUser}) })
		}
	})
	b.Advance(t, j)
	if len(d.lines) != 1 {
		t.Errorf("notifications %q; want one", d.lines)
	}
}

func TestPanicInANotificationIsLoggedAndNothingElse(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	b := looptest.NewBench(looptest.NewLog(), calls("look"), looptest.Says("look", "seen"))
	b.Engine.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	b.Engine.Hooks = hooks.Hooks{
		OnRunStart:           func(context.Context, hooks.RunStart) { panic("1") },
		OnTurnStart:          func(context.Context, hooks.TurnStart) { panic("2") },
		OnToolExecutionStart: func(context.Context, hooks.ToolExecutionStart) { panic("3") },
		OnTurnEnd:            func(context.Context, hooks.TurnEnd) { panic("4") },
		OnRunEnd:             func(context.Context, hooks.RunEnd) { panic("5") },
	}
	j := b.Start(t, b.Session(t), "hi")
	if run := b.Advance(t, j); run.Status != loop.RunCompleted {
		t.Errorf("run %+v; want it completed", run)
	}
	events, _ := checked(t, b, j.SessionID)
	only[event.RunCompleted](t, events)
	for _, name := range []string{"OnRunStart", "OnTurnStart", "OnToolExecutionStart", "OnTurnEnd", "OnRunEnd"} {
		if !strings.Contains(logged.String(), "hook="+name) {
			t.Errorf("the log does not name %s", name)
		}
	}
}

// TestLogNamesTheRunAndNoPayload: a line has run, session and epoch, and
// nothing that was said.
func TestLogNamesTheRunAndNoPayload(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	model := looptest.Answers(
		looptest.Answer(looptest.Text("secret answer"), looptest.ToolCall("a", "look", `{"q":"secret query"}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	)
	b := looptest.NewBench(looptest.NewLog(), model, looptest.Says("look", "secret output"))
	b.Engine.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	j := b.Start(t, b.Session(t), "secret question")
	b.Advance(t, j)
	for _, want := range []string{"run=" + j.RunID, "session=" + j.SessionID, "epoch=1", "status=completed"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, logged.String())
		}
	}
	if strings.Contains(logged.String(), "secret") {
		t.Errorf("the log tells what was said:\n%s", logged.String())
	}
}
