package loop_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// beforeCall answers per tool; a tool that is not in answers may run.
func beforeCall(answers map[string]hooks.BeforeToolCallResult) hooks.BeforeToolCallFunc {
	return hooks.Named("guard", "1", func(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
		if r, ok := answers[in.Call.Name]; ok {
			return r, nil
		}
		return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
	})
}

// counted is a tool that counts its runs by argument.
type counted struct {
	mu   sync.Mutex
	runs []string
}

func (c *counted) tool(name string) looptest.Tool {
	return looptest.Tool{Name: name, Run: func(_ context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.runs = append(c.runs, name+" "+string(in.Arguments))
		return loop.ToolOutput{Content: name + " ran"}, nil
	}}
}

func (c *counted) sorted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.runs))
}

// told lists the results of a run as the model is shown them.
func told(s loop.State) []string {
	var out []string
	for _, r := range results(s) {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s", r.Reason, r.Content)))
	}
	return out
}

func TestBlockedCallIsAnsweredAndNotRun(t *testing.T) {
	t.Parallel()
	var c counted
	b := looptest.NewBench(looptest.NewLog(), strict(t, calls("one", "two", "three")), c.tool("one"), c.tool("two"), c.tool("three"))
	permit(b, loop.Permission{Tools: "two", Mode: loop.PermissionAsk})
	b.Use(hooks.Hooks{BeforeToolCall: beforeCall(map[string]hooks.BeforeToolCallResult{
		"two": {Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "sunday", Text: "not allowed\x00 on Sundays"}},
	})})
	j := b.Start(t, b.Session(t), "hi")
	if run := b.Advance(t, j); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
	events, s := checked(t, b, j.SessionID)
	if got, want := told(s), []string{"one ran", "blocked This call was blocked and not run: not allowed\uFFFD on Sundays", "three ran"}; !slices.Equal(got, want) {
		t.Errorf("results %q; want %q", got, want)
	}
	if !results(s)[1].IsError || !slices.Equal(c.sorted(), []string{"one {}", "three {}"}) {
		t.Errorf("ran %q, result %+v", c.sorted(), results(s)[1])
	}
	if got := only[event.ToolBlocked](t, events); got.By != "BeforeToolCall" || got.ReasonCode != "sunday" || got.Reason != "not allowed\uFFFD on Sundays" {
		t.Errorf("blocked %+v", got)
	}
	if n := len(payloads[event.ToolStarted](t, events)); n != 2 || len(payloads[event.ApprovalRequested](t, events)) != 0 {
		t.Errorf("%d starts, %v; want two and no approval", n, looptest.Types(events))
	}
	if got, want := rows(ledger(b, j.SessionID)), []string{"BeforeToolCall guard continue", "BeforeToolCall guard block", "BeforeToolCall guard continue"}; !slices.Equal(got, want) {
		t.Errorf("ledger %q; want %q", got, want)
	}
}

func TestTransformedArgumentsAreWhatRunsAndWhatIsApproved(t *testing.T) {
	t.Parallel()
	const args = "{ \"n\": 9007199254740993 }\n"
	text := args
	for _, ask := range []bool{false, true} {
		var c counted
		var exact string
		b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay")), c.tool("pay"))
		if ask {
			permit(b, loop.Permission{Tools: "*", Mode: loop.PermissionAsk})
		}
		b.Use(hooks.Hooks{
			BeforeToolCall: beforeCall(map[string]hooks.BeforeToolCallResult{"pay": {Action: hooks.ActionTransform, Arguments: &text}}),
			BeforeExecute: func(_ context.Context, in hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
				exact = in.Call.Arguments
				return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
			},
		})
		j := b.Start(t, b.Session(t), "hi")
		run := b.Advance(t, j)
		if ask {
			if run.Status != loop.RunWaiting || len(c.sorted()) != 0 {
				t.Fatalf("run %+v", run)
			}
			if got := only[event.ApprovalRequested](t, b.Events(t, j.SessionID)); got.Arguments != args || got.ArgumentsSHA256 != digestOf(args).SHA256 || got.By != "permission" || got.Name != "pay" {
				t.Errorf("asked %+v", got)
			}
			decide(t, b, openApprovals(t, b, j)[0], true)
			b.Advance(t, next(t, b, j))
		}
		events, _ := checked(t, b, j.SessionID)
		if got := c.sorted(); !slices.Equal(got, []string{"pay " + args}) || exact != args {
			t.Errorf("ask=%v: ran %q, BeforeExecute saw %q; want %q", ask, got, exact, args)
		}
		start := only[event.ToolStarted](t, events)
		if start.Arguments == nil || *start.Arguments != args || start.ArgumentsSHA256 != digestOf(args).SHA256 || only[event.ToolProposed](t, events).Arguments != "{}" {
			t.Errorf("ask=%v: started %+v", ask, start)
		}
	}
}

func TestTransformThatDoesNotFitTheSchemaBlocks(t *testing.T) {
	t.Parallel()
	var c counted
	text := "[1]"
	b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay")), c.tool("pay"))
	b.Use(hooks.Hooks{BeforeToolCall: beforeCall(map[string]hooks.BeforeToolCallResult{"pay": {Action: hooks.ActionTransform, Arguments: &text}})})
	j := b.Start(t, b.Session(t), "hi")
	b.Advance(t, j)
	_, s := checked(t, b, j.SessionID)
	if got := results(s); got[0].Reason != hooks.ReasonBlocked || !strings.Contains(got[0].Content, "guard") || len(c.sorted()) != 0 {
		t.Errorf("results %+v, ran %q", got, c.sorted())
	}
	if got := rows(ledger(b, j.SessionID)); !slices.Equal(got, []string{"BeforeToolCall guard block unappliable"}) {
		t.Errorf("ledger %q", got)
	}
}

// TestTerminateEndsTheRun: no sibling runs, whatever was said of it.
func TestTerminateEndsTheRun(t *testing.T) {
	t.Parallel()
	var c counted
	var d diary
	b := looptest.NewBench(looptest.NewLog(), strict(t, calls("free", "asked", "bad", "gone", "after")), c.tool("free"), c.tool("asked"), c.tool("bad"), c.tool("after"))
	permit(b, loop.Permission{Tools: "asked", Mode: loop.PermissionAsk})
	all := hooks.Hooks{OnTurnEnd: d.hooks(b).OnTurnEnd, OnRunEnd: d.hooks(b).OnRunEnd}
	all.BeforeToolCall = beforeCall(map[string]hooks.BeforeToolCallResult{"bad": {Action: hooks.ActionTerminate, Reason: hooks.Reason{Code: "exfiltration", Text: "that is enough"}}})
	all.BeforeExecute = hooks.Named("last", "1", func(context.Context, hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
		return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
	})
	b.Use(all)
	j := b.Start(t, b.Session(t), "hi")
	run := b.Advance(t, j)
	if run.Status != loop.RunCompleted || run.Reason != "terminated_by_hook" || len(c.sorted()) != 0 {
		t.Errorf("run %+v, ran %q; want it ended and nothing run", run, c.sorted())
	}
	events, s := checked(t, b, j.SessionID)
	const not = "not_run This call was not run: the run ended first."
	if got, want := told(s), []string{not, not, "blocked This call was blocked and not run: that is enough", not, not}; !slices.Equal(got, want) {
		t.Errorf("results %q; want %q", got, want)
	}
	if len(payloads[event.ApprovalRequested](t, events))+len(payloads[event.ToolStarted](t, events)) != 0 {
		t.Errorf("log %v", looptest.Types(events))
	}
	want := []string{"BeforeToolCall guard continue void", "BeforeExecute last continue void", "BeforeToolCall guard continue void", "BeforeToolCall guard terminate"}
	if got := rows(ledger(b, j.SessionID)); !slices.Equal(got, want) {
		t.Errorf("ledger %q; want %q", got, want)
	}
	if want := []string{"turn 1 ends with 5 calls after tool.proposed", "run completed terminated_by_hook after run.completed"}; !slices.Equal(d.lines, want) {
		t.Errorf("notifications %q; want %q", d.lines, want)
	}
	goesOnWithout(t, b, j.SessionID, "no secret")
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules []loop.Permission
		want  string
		asked int
		waits bool
	}{
		"none":                  {nil, "pay ran", 1, false},
		"allow":                 {[]loop.Permission{{Tools: "p*", Mode: loop.PermissionAllow}, {Tools: "*", Mode: loop.PermissionDeny}}, "pay ran", 1, false},
		"deny asks no hook":     {[]loop.Permission{{Tools: "pay", Mode: loop.PermissionDeny}}, "blocked This call was blocked and not run: The agent may not use this tool.", 0, false},
		"deny before ask":       {[]loop.Permission{{Tools: "*", Mode: loop.PermissionDeny}, {Tools: "pay", Mode: loop.PermissionAsk}}, "blocked This call was blocked and not run: The agent may not use this tool.", 0, false},
		"a glob that is broken": {[]loop.Permission{{Tools: "[", Mode: loop.PermissionAllow}}, "blocked This call was blocked and not run: The agent may not use this tool.", 0, false},
		"ask":                   {[]loop.Permission{{Tools: "pay", Mode: loop.PermissionAsk}}, "", 1, true},
		"of another tool only":  {[]loop.Permission{{Tools: "look", Mode: loop.PermissionDeny}}, "pay ran", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n counted
			asked := 0
			b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay")), n.tool("pay"))
			permit(b, c.rules...)
			b.Use(hooks.Hooks{BeforeToolCall: func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
				asked++
				return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
			}})
			j := b.Start(t, b.Session(t), "hi")
			run := b.Advance(t, j)
			events, s := checked(t, b, j.SessionID)
			if asked != c.asked || (run.Status == loop.RunWaiting) != c.waits || len(n.sorted()) != 0 != (c.want == "pay ran") {
				t.Errorf("asked %d times, run %s, ran %q", asked, run.Status, n.sorted())
			}
			if !c.waits && !slices.Equal(told(s), []string{c.want}) {
				t.Errorf("results %q; want %q", told(s), c.want)
			}
			for _, p := range payloads[event.ToolBlocked](t, events) {
				if p.By != "permission" || p.ReasonCode != "permission_denied" {
					t.Errorf("blocked %+v", p)
				}
			}
		})
	}
}

// TestHookMayAskWhereTheAgentMay: ask is stronger than the agent's own allow,
// and says why.
func TestHookMayAskWhereTheAgentMay(t *testing.T) {
	t.Parallel()
	var n counted
	b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay")), n.tool("pay"))
	b.Use(hooks.Hooks{BeforeToolCall: beforeCall(map[string]hooks.BeforeToolCallResult{"pay": {Action: hooks.ActionAsk, Reason: hooks.Reason{Text: "more than 100"}}})})
	j := b.Start(t, b.Session(t), "hi")
	if run := b.Advance(t, j); run.Status != loop.RunWaiting || len(n.sorted()) != 0 {
		t.Errorf("run %+v, ran %q; want it waiting", run, n.sorted())
	}
	events, _ := checked(t, b, j.SessionID)
	if got := only[event.ApprovalRequested](t, events); got.By != "BeforeToolCall" || got.Reason != "more than 100" {
		t.Errorf("asked %+v", got)
	}
	decide(t, b, openApprovals(t, b, j)[0], false)
	b.Advance(t, next(t, b, j))
	_, s := checked(t, b, j.SessionID)
	if got, want := told(s), []string{"denied This call was denied by a person: said false. It was not run."}; !slices.Equal(got, want) || len(n.sorted()) != 0 {
		t.Errorf("results %q, ran %q; want %q", got, n.sorted(), want)
	}
	if got := rows(ledger(b, j.SessionID)); !slices.Equal(got, []string{"BeforeToolCall guard ask"}) {
		t.Errorf("ledger %q", got)
	}
}

// TestHooksThatRewriteAndJudge: a rewrite, a hook that says nothing, one that
// asks and one that denies what was rewritten, in every order of registration.
func TestHooksThatRewriteAndJudge(t *testing.T) {
	t.Parallel()
	utc := `{"zone":"UTC"}`
	set := map[string]hooks.BeforeToolCallFunc{
		"M": hooks.Named("M", "1", func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			return hooks.BeforeToolCallResult{Action: hooks.ActionTransform, Arguments: &utc}, nil
		}),
		"N": hooks.Named("N", "1", func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
		}),
		"A": hooks.Named("A", "1", func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			return hooks.BeforeToolCallResult{Action: hooks.ActionAsk}, nil
		}),
		"D": hooks.Named("D", "1", func(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			if in.Call.Arguments == utc {
				return hooks.BeforeToolCallResult{Action: hooks.ActionBlock}, nil
			}
			return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
		}, hooks.InPhase(hooks.PhaseValidate)),
	}
	for _, order := range permutations("M", "N", "A", "D") {
		for _, without := range []string{"", "D"} {
			var c counted
			var funcs []hooks.BeforeToolCallFunc
			for _, id := range order {
				if id != without {
					funcs = append(funcs, set[id])
				}
			}
			b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay")), c.tool("pay"))
			b.Use(hooks.Hooks{BeforeToolCall: hooks.Compose(funcs...)})
			j := b.Start(t, b.Session(t), "hi")
			run := b.Advance(t, j)
			if (run.Status == loop.RunWaiting) != (without == "D") {
				t.Fatalf("%v without %q: run %+v", order, without, run)
			}
			if without == "D" {
				if got := only[event.ApprovalRequested](t, b.Events(t, j.SessionID)); got.Arguments != utc {
					t.Errorf("%v: people see %s", order, got.Arguments)
				}
				decide(t, b, openApprovals(t, b, j)[0], true)
				b.Advance(t, next(t, b, j))
				if got := c.sorted(); !slices.Equal(got, []string{"pay " + utc}) {
					t.Errorf("%v: ran %q", order, got)
				}
			} else if len(c.sorted()) != 0 {
				t.Errorf("%v: ran %q", order, c.sorted())
			}
			checked(t, b, j.SessionID)
			if n := len(ledger(b, j.SessionID)); n != len(funcs) {
				t.Errorf("%v: %d rows; want one per hook", order, n)
			}
		}
	}
}

func permutations(all ...string) (out [][]string) {
	if len(all) == 0 {
		return [][]string{nil}
	}
	for i, first := range all {
		rest := append(slices.Clone(all[:i]), all[i+1:]...)
		for _, p := range permutations(rest...) {
			out = append(out, append([]string{first}, p...))
		}
	}
	return out
}

// TestExecuteGateIsAskedBeforeEveryAttempt, also of a tool that is run again
// after a crash; and what it blocks then is not said to have never run.
func TestExecuteGateIsAskedBeforeEveryAttempt(t *testing.T) {
	t.Parallel()
	for _, block := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var seen []hooks.BeforeExecute
			var runs atomic.Int64
			tool := looptest.Tool{Name: "look", Idempotent: true, Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
				if runs.Add(1) == 1 {
					<-ctx.Done()
				}
				return loop.ToolOutput{Content: "seen"}, ctx.Err()
			}}
			b := looptest.NewBench(looptest.NewLog(), strict(t, calls("look")), tool)
			b.Use(hooks.Hooks{BeforeExecute: hooks.Named("last", "1", func(_ context.Context, in hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
				if seen = append(seen, in); block && in.Attempt == 2 {
					return hooks.BeforeExecuteResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Text: "not twice"}}, nil
				}
				return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
			})})
			j := b.Start(t, b.Session(t), "hi")
			w := work(t, b, j)
			synctest.Wait()
			w.kill()
			_ = w.wait(t)
			b.Advance(t, buried(t, b, j, w.id))
			_, s := checked(t, b, j.SessionID)
			want, ran := []string{"seen"}, int64(2)
			if block {
				want, ran = []string{"blocked This call was started before, may have taken effect, and was blocked before it was run again: not twice"}, 1
			}
			if got := told(s); !slices.Equal(got, want) || runs.Load() != ran {
				t.Errorf("results %q, %d runs; want %q, %d", got, runs.Load(), want, ran)
			}
			if rec := ledger(b, j.SessionID); len(seen) != 2 || len(rec) != 2 || rec[0].Attempt != 1 || rec[1].Attempt != 2 || seen[1].Call.ID != seen[0].Call.ID || rec[1].Epoch != 3 {
				t.Errorf("saw %+v, ledger %v", seen, rows(rec))
			}
		})
	}
}

func TestExecuteGateBlocksWhatPeopleApproved(t *testing.T) {
	t.Parallel()
	var c counted
	b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay")), c.tool("pay"))
	permit(b, loop.Permission{Tools: "*", Mode: loop.PermissionAsk})
	b.Use(hooks.Hooks{BeforeExecute: func(context.Context, hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
		return hooks.BeforeExecuteResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "frozen"}}, nil
	}})
	j := b.Start(t, b.Session(t), "hi")
	b.Advance(t, j)
	if n := len(ledger(b, j.SessionID)); n != 0 {
		t.Errorf("%d decisions before the approval; want none", n)
	}
	decide(t, b, openApprovals(t, b, j)[0], true)
	if run := b.Advance(t, next(t, b, j)); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
	events, s := checked(t, b, j.SessionID)
	if got := told(s); !slices.Equal(got, []string{"blocked This call was blocked and not run."}) || len(c.sorted()) != 0 {
		t.Errorf("results %q, ran %q", got, c.sorted())
	}
	if got := only[event.ToolBlocked](t, events); got.By != "BeforeExecute" || got.ReasonCode != "frozen" {
		t.Errorf("blocked %+v", got)
	}
}

func TestOutputGate(t *testing.T) {
	t.Parallel()
	text, failure, yes, no := "[removed]\x00", "it failed\n", true, false
	for name, c := range map[string]struct {
		tool    error // what the tool fails with
		answer  hooks.AfterToolCallResult
		want    string
		isError bool
	}{
		"continue":                       {nil, hooks.AfterToolCallResult{Action: hooks.ActionContinue}, "the secret", false},
		"another text":                   {nil, hooks.AfterToolCallResult{Action: hooks.ActionTransform, Content: &text}, "[removed]\uFFFD", false},
		"success that is none":           {nil, hooks.AfterToolCallResult{Action: hooks.ActionTransform, Content: &failure, IsError: &yes}, "tool_error it failed", true},
		"a failure that is none":         {errors.New("exit 1"), hooks.AfterToolCallResult{Action: hooks.ActionTransform, IsError: &no}, "exit 1", false},
		"withheld":                       {nil, hooks.AfterToolCallResult{Action: hooks.ActionWithhold}, "withheld " + hooks.WithheldText, false},
		"withheld of a tool that failed": {errors.New("the secret"), hooks.AfterToolCallResult{Action: hooks.ActionWithhold}, "withheld " + hooks.WithheldText, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tool := looptest.Tool{Name: "look", Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
				return loop.ToolOutput{Content: "the secret"}, c.tool
			}}
			b := looptest.NewBench(looptest.NewLog(), strict(t, calls("look")), tool)
			var durable []event.Type
			b.Use(hooks.Hooks{AfterToolCall: func(_ context.Context, in hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
				durable = looptest.Types(b.Events(t, in.SessionID))
				return c.answer, nil
			}})
			j := b.Start(t, b.Session(t), "hi")
			b.Advance(t, j)
			events, s := checked(t, b, j.SessionID)
			if got := results(s)[0]; !slices.Equal(told(s), []string{c.want}) || got.IsError != c.isError {
				t.Errorf("result %+v; want %q, error %v", got, c.want, c.isError)
			}
			if len(durable) == 0 || durable[len(durable)-1] != event.TypeToolExecuted {
				t.Errorf("when the hook was asked the log was %v; want tool.executed in it", durable)
			}
			if ran := only[event.ToolExecuted](t, events); ran.Success != (c.tool == nil) {
				t.Errorf("executed %+v; want the fact, whatever hooks say", ran)
			}
			for _, e := range events {
				if c.answer.Action == hooks.ActionWithhold && strings.Contains(string(e.Payload), "the secret") {
					t.Errorf("event %d has what was withheld: %s", e.Seq, e.Payload)
				}
			}
			rec := ledger(b, j.SessionID)
			if len(rec) != 1 || events[rec[0].EventSeq-1].Type != event.TypeToolResult {
				t.Errorf("ledger %v; want it with the result", rows(rec))
			}
		})
	}
}

// TestDeathBetweenExecutionAndReview: the output is lost, the hook is not asked
// by the next worker, and the tool is not run again.
func TestDeathBetweenExecutionAndReview(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		var c counted
		b := looptest.NewBench(looptest.NewLog(), strict(t, calls("charge")), c.tool("charge"))
		b.Use(hooks.Hooks{AfterToolCall: hooks.Named("review", "1", func(ctx context.Context, _ hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
			asked++
			pause(ctx, time.Hour)
			return hooks.AfterToolCallResult{Action: hooks.ActionContinue}, nil
		}, hooks.TimeLimit(2*time.Hour))})
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		synctest.Wait()
		w.kill()
		if err := w.wait(t); !errors.Is(err, context.Canceled) {
			t.Errorf("the killed worker returned %v", err)
		}
		only[event.ToolExecuted](t, b.Events(t, j.SessionID))
		if run := b.Advance(t, buried(t, b, j, w.id)); run.Status != loop.RunCompleted {
			t.Errorf("run %+v", run)
		}
		_, s := checked(t, b, j.SessionID)
		want := []string{"output_lost executed; output lost before it was checked. The tool was not run again."}
		if got := told(s); !slices.Equal(got, want) || asked != 1 || len(c.sorted()) != 1 || len(ledger(b, j.SessionID)) != 0 {
			t.Errorf("results %q, asked %d times, ran %q, ledger %v", got, asked, c.sorted(), rows(ledger(b, j.SessionID)))
		}
	})
}

// TestToolGateHandsOutCopies: what a hook does to what it was handed changes
// nothing.
func TestToolGateHandsOutCopies(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), strict(t, calls("look")), looptest.Says("look", "seen"))
	b.Use(hooks.Hooks{TransformContext: func(_ context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
		for i := range in.Messages {
			in.Messages[i].Parts[0] = hooks.Part{Type: hooks.PartText, Text: "changed"}
		}
		return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
	}})
	j := b.Start(t, b.Session(t), "hi")
	b.Advance(t, j)
	_, s := checked(t, b, j.SessionID)
	var got []string
	for _, m := range s.Messages {
		got = append(got, m.Text())
	}
	if !reflect.DeepEqual(got, []string{"hi", "", "", "done"}) {
		t.Errorf("messages %q", got)
	}
}
