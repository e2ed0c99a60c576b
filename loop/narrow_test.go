package loop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// narrowing is a bench with the tools look, find, ping and memory_read, whose model
// calls look and find in each of two turns. Look leaves the run what it returns.
func narrowing(t *testing.T, h hooks.Hooks, look func(ctx context.Context) (loop.ToolOutput, error)) (*looptest.Bench, *looptest.Log, loop.Job) {
	t.Helper()
	both := looptest.Answer(looptest.ToolCall("a", "look", `{}`), looptest.ToolCall("b", "find", `{}`), looptest.Finish(stream.FinishToolCalls))
	log := looptest.NewLog()
	b := looptest.NewBench(log, strict(t, looptest.Answers(both, both, looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)))),
		looptest.Tool{Name: "look", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) { return look(ctx) }},
		looptest.Says("find", "found"), looptest.Says("ping", "pong"), looptest.Says("memory_read", "read"))
	b.Use(h)
	j := b.Start(t, b.Session(t), "hi")
	return b, log, j
}

func sees(context.Context) (loop.ToolOutput, error) { return loop.ToolOutput{Content: "seen"}, nil }

// leaves has the function leave only find of the run's tools, beside one that it has not.
func leaves(ctx context.Context) error { return hooks.NarrowTools(ctx, []string{"nothing", "find"}) }

// leaving are hooks that do so, each in turn 1 and at its gate.
var leaving = map[hooks.Gate]hooks.Hooks{
	hooks.GateBeforeRunStart: {BeforeRunStart: func(ctx context.Context, _ hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
		return hooks.BeforeRunStartResult{Action: hooks.ActionContinue}, leaves(ctx)
	}},
	hooks.GateTransformContext: {TransformContext: func(ctx context.Context, _ hooks.TransformContext) (hooks.TransformContextResult, error) {
		return hooks.TransformContextResult{Action: hooks.ActionContinue}, leaves(ctx)
	}},
	hooks.GateBeforeToolCall: {BeforeToolCall: func(ctx context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
		if in.Turn == 1 && in.Call.Name == "look" {
			return hooks.BeforeToolCallResult{Action: hooks.ActionBlock}, leaves(ctx)
		}
		return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
	}},
	hooks.GateBeforeExecute: {BeforeExecute: func(ctx context.Context, _ hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
		return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, leaves(ctx)
	}},
	hooks.GateAfterToolCall: {AfterToolCall: func(ctx context.Context, _ hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
		return hooks.AfterToolCallResult{Action: hooks.ActionContinue}, leaves(ctx)
	}},
}

func TestToolsAreNarrowedFromTheNextTurnOn(t *testing.T) {
	t.Parallel()
	for gate, h := range leaving {
		t.Run(string(gate), func(t *testing.T) {
			t.Parallel()
			b, log, j := narrowing(t, h, sees)
			if run := b.Advance(t, j); run.Status != loop.RunCompleted || run.MayCall("look") || !run.MayCall("find") || !run.MayCall("memory_write") {
				t.Errorf("run %+v", run)
			}
			events, s := checked(t, b, j.SessionID)
			of := 1
			if gate == hooks.GateBeforeRunStart {
				of = 0
			}
			narrowedOnce(t, log, events, of)
			checkOffered(t, events, of, told(s))
		})
	}
}

// narrowedOnce: there is one event, in that turn, and its decision is in the same append.
func narrowedOnce(t *testing.T, log *looptest.Log, events []event.Event, turn int) {
	t.Helper()
	of := events[slices.IndexFunc(events, func(e event.Event) bool { return e.Type == event.TypeToolsNarrowed })]
	all := payloads[event.ToolsNarrowed](t, events)
	if len(all) != 1 || of.Turn != turn || !all[0].Required || !slices.Equal(all[0].Tools, []string{"find", "ping", "memory_read"}) {
		t.Fatalf("narrowed %+v, in turn %d; want turn %d", all, of.Turn, turn)
	}
	for _, r := range log.Ledger(of.SessionID) {
		if r.ID == all[0].DecisionID && r.HookID == all[0].By && r.EventSeq > of.Seq && r.EventSeq <= of.Seq+6 {
			return
		}
	}
	t.Errorf("no decision is the one of %+v at seq %d", all[0], of.Seq)
}

// checkOffered: the model is told of all tools up to that turn, and then of those that
// are left, and a call of another gets the result of one that there is not.
func checkOffered(t *testing.T, events []event.Event, turn int, results []string) {
	t.Helper()
	for _, e := range events {
		if e.Type != event.TypeModelRequested {
			continue
		}
		want := []string{"look", "find", "ping", "memory_read"}
		if e.Turn > turn {
			want = want[1:]
		}
		if got := field[[]string](t, e, "tools"); !slices.Equal(got, want) {
			t.Errorf("turn %d has the tools %q; want %q", e.Turn, got, want)
		}
	}
	const unknown = "unknown_tool There is no tool called look. Nothing was run."
	for i, got := range results {
		looked := i%2 == 0
		if (got == unknown) != (looked && i/2+1 > turn) {
			t.Errorf("result %d is %q", i+1, got)
		}
	}
}

func TestAToolNarrowsWithItsOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		out  loop.ToolOutput
		err  error
		want int
	}{
		"an output":           {loop.ToolOutput{Content: "seen"}, nil, 1},
		"a failure it tells":  {loop.ToolOutput{Content: "closed", IsError: true}, nil, 1},
		"an error it returns": {loop.ToolOutput{}, errors.New("no"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _, j := narrowing(t, hooks.Hooks{}, func(ctx context.Context) (loop.ToolOutput, error) { return c.out, errors.Join(leaves(ctx), c.err) })
			b.Advance(t, j)
			events, s := checked(t, b, j.SessionID)
			all := payloads[event.ToolsNarrowed](t, events)
			if len(all) != c.want {
				t.Fatalf("narrowed %+v; want %d", all, c.want)
			}
			if c.want == 0 {
				return
			}
			at := slices.IndexFunc(events, func(e event.Event) bool { return e.Type == event.TypeToolsNarrowed })
			if all[0].By != "look" || all[0].CallID == "" || all[0].DecisionID != "" || events[at-1].Type != event.TypeToolExecuted || field[string](t, events[at-1], "call_id") != all[0].CallID {
				t.Errorf("narrowed %+v behind %+v", all[0], events[at-1])
			}
			checkOffered(t, events, 1, told(s))
		})
	}
}

// TestWhatComesToNothingNarrowsNothing: a hook that fails and is let through, and a run
// that ends there.
func TestWhatComesToNothingNarrowsNothing(t *testing.T) {
	t.Parallel()
	fails := func(ctx context.Context, _ hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
		return hooks.BeforeExecuteResult{}, errors.Join(leaves(ctx), errors.New("no"))
	}
	for name, h := range map[string]hooks.Hooks{
		"a failure": {BeforeExecute: hooks.Named("fails", "1", fails, hooks.OnFailureOpen())},
		"an end": {BeforeToolCall: func(ctx context.Context, _ hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			return hooks.BeforeToolCallResult{Action: hooks.ActionTerminate}, leaves(ctx)
		}},
		"a refused request": {TransformContext: func(ctx context.Context, _ hooks.TransformContext) (hooks.TransformContextResult, error) {
			return hooks.TransformContextResult{Action: hooks.ActionBlock}, leaves(ctx)
		}},
		"a refused run": {BeforeRunStart: func(ctx context.Context, _ hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			return hooks.BeforeRunStartResult{Action: hooks.ActionBlock}, leaves(ctx)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _, j := narrowing(t, h, sees)
			b.Advance(t, j)
			events, _ := checked(t, b, j.SessionID)
			if all := payloads[event.ToolsNarrowed](t, events); len(all) != 0 {
				t.Errorf("narrowed %+v", all)
			}
		})
	}
}

// TestNarrowingToTheSameIsWrittenOnce, and nothing comes back.
func TestNarrowingToTheSameIsWrittenOnce(t *testing.T) {
	t.Parallel()
	want := [][]string{{"look", "find"}, {"find", "look", "ping"}, {"look", "memory_read"}, {"look", "find"}}
	n := 0
	b, _, j := narrowing(t, hooks.Hooks{BeforeExecute: func(ctx context.Context, _ hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
		n++
		return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, hooks.NarrowTools(ctx, want[n-1])
	}}, sees)
	run := b.Advance(t, j)
	events, _ := checked(t, b, j.SessionID)
	all := payloads[event.ToolsNarrowed](t, events)
	if len(all) != 2 || !slices.Equal(all[0].Tools, []string{"look", "find", "ping", "memory_read"}) || !slices.Equal(all[1].Tools, []string{"look", "ping", "memory_read"}) {
		t.Errorf("narrowed %+v", all)
	}
	if n != 4 || run.MayCall("find") {
		t.Errorf("asked %d times, run %+v", n, run)
	}
}

func TestARunShowsWhatIsLeftOfItsTools(t *testing.T) {
	t.Parallel()
	var views []loop.RunView
	var b *looptest.Bench
	see := func(ctx context.Context, ref hooks.RunRef) error {
		v, err := b.Engine.View(ctx, ref.TenantID, ref.SessionID, ref.RunID)
		views = append(views, v)
		return err
	}
	b, _, j := narrowing(t, hooks.Hooks{
		BeforeToolCall: leaving[hooks.GateBeforeToolCall].BeforeToolCall,
		AfterToolCall: func(ctx context.Context, in hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
			return hooks.AfterToolCallResult{Action: hooks.ActionContinue}, see(ctx, in.RunRef)
		},
		BeforeRunStart: func(ctx context.Context, in hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			return hooks.BeforeRunStartResult{Action: hooks.ActionContinue}, see(ctx, in.RunRef)
		},
	}, sees)
	agent := b.Engine.Agents["demo"]
	agent.Tools = append(agent.Tools, awayTool{looptest.Says("desk", "")})
	b.Engine.Agents["demo"] = agent
	b.Advance(t, j)
	kept := []string{"ping", "memory_read"}
	for i, want := range []loop.RunView{
		{Tools: []string{"look", "find", "ping", "memory_read"}, Away: []string{"desk"}, Kept: kept}, {Tools: []string{"find", "ping", "memory_read"}, Kept: kept},
	} {
		if got := views[i]; !slices.Equal(got.Tools, want.Tools) || !slices.Equal(got.Away, want.Away) || !slices.Equal(got.Kept, want.Kept) {
			t.Errorf("view %d is %+v; want %+v", i+1, got, want)
		}
	}
}

// awayTool is one that is not there.
type awayTool struct{ looptest.Tool }

func (awayTool) Available() bool { return false }

// TestToolsNeverComeBack: whatever is left in whatever turns, a tool that is gone in one
// is gone in those behind it, those of the host stay, and what was left in a turn does
// not count in it.
func TestToolsNeverComeBack(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "ping", "memory_read"}
	rapid.Check(t, func(r *rapid.T) {
		s := scenes()["running"].build(t)
		before := map[string]bool{}
		for _, name := range names {
			before[name] = true
		}
		for turn := range rapid.IntRange(1, 5).Draw(r, "turns") {
			run, _ := s.Run("run")
			for _, name := range names {
				may := run.MayCall(name)
				if may && !before[name] || !may && (name == "ping" || name == "memory_read") {
					r.Fatalf("turn %d: %s may be called: %t", turn, name, may)
				}
				before[name] = may
			}
			now := fmt.Sprint(before)
			for range rapid.IntRange(0, 3).Draw(r, "times") {
				left := rapid.SliceOfN(rapid.SampledFrom(names), 0, 4).Draw(r, "left")
				was, old := dump(r, s), s
				s = loop.Fold(s, numbered(fact(t, turn, event.ToolsNarrowed{Tools: left}), s.LastSeq+1))
				if dump(r, old) != was {
					r.Fatal("folding changed its input")
				}
				run, _ = s.Run("run")
				for _, name := range names {
					before[name] = run.MayCall(name)
				}
				if fmt.Sprint(before) != now {
					r.Fatalf("turn %d: %q counts in it", turn, left)
				}
			}
			if n := len(run.Narrowed); n > turn+1 {
				r.Fatalf("%d narrowings after turn %d", n, turn)
			}
			for _, p := range []event.Payload{event.TurnStarted{}, requested, event.AssistantCompleted{Attempt: 1, MessageID: fmt.Sprint("a", turn), Parts: []hooks.Part{}}, event.TurnCompleted{}} {
				s = loop.Fold(s, numbered(fact(t, turn+1, p), s.LastSeq+1))
			}
		}
	})
}
