package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// declared is h with each gate declared pure that is pure says.
func declared(h hooks.Hooks, pure func(hooks.Gate) bool) hooks.Hooks {
	h.BeforeInput = declare(h.BeforeInput, pure(hooks.GateBeforeInput))
	h.BeforeRunStart = declare(h.BeforeRunStart, pure(hooks.GateBeforeRunStart))
	h.TransformContext = declare(h.TransformContext, pure(hooks.GateTransformContext))
	h.BeforeProviderHeaders = declare(h.BeforeProviderHeaders, pure(hooks.GateBeforeProviderHeaders))
	h.BeforeProviderRequest = declare(h.BeforeProviderRequest, pure(hooks.GateBeforeProviderRequest))
	h.AfterProviderResponse = declare(h.AfterProviderResponse, pure(hooks.GateAfterProviderResponse))
	h.BeforeToolCall = declare(h.BeforeToolCall, pure(hooks.GateBeforeToolCall))
	h.BeforeExecute = declare(h.BeforeExecute, pure(hooks.GateBeforeExecute))
	h.AfterToolCall = declare(h.AfterToolCall, pure(hooks.GateAfterToolCall))
	return h
}

// declare leaves f without a name, so that its decisions keep their ids.
func declare[In hooks.Input[In, Out], Out hooks.Result](f hooks.Func[In, Out], pure bool) hooks.Func[In, Out] {
	if !pure {
		return f
	}
	return hooks.Named("", "", f, hooks.Pure(), hooks.TimeLimit(2*time.Hour))
}

func everyGate(hooks.Gate) bool { return true }

func noGate(hooks.Gate) bool { return false }

// lookedUp is a bench with a hook at each of some gates, and a run in it that
// calls one tool.
func lookedUp(t *testing.T, at []hooks.Gate, pure func(hooks.Gate) bool) *gated {
	t.Helper()
	g := &gated{talk: &talk{log: looptest.NewLog()}}
	g.Bench = looptest.NewBench(g.log, &looptest.Provider{Plays: strict(t, calls("look"))}, looptest.Says("look", "seen"))
	all := g.hooks()
	h := hooks.Hooks{}
	for _, gate := range at {
		switch gate {
		case hooks.GateBeforeInput:
			h.BeforeInput = all.BeforeInput
		case hooks.GateBeforeRunStart:
			h.BeforeRunStart = all.BeforeRunStart
		case hooks.GateTransformContext:
			h.TransformContext = all.TransformContext
		case hooks.GateBeforeProviderHeaders:
			h.BeforeProviderHeaders = all.BeforeProviderHeaders
		case hooks.GateBeforeProviderRequest:
			h.BeforeProviderRequest = all.BeforeProviderRequest
		case hooks.GateAfterProviderResponse:
			h.AfterProviderResponse = all.AfterProviderResponse
		case hooks.GateBeforeToolCall:
			h.BeforeToolCall = all.BeforeToolCall
		case hooks.GateBeforeExecute:
			h.BeforeExecute = all.BeforeExecute
		case hooks.GateAfterToolCall:
			h.AfterToolCall = all.AfterToolCall
		case hooks.GateOnChunk, hooks.GateOnEnd: // no hook is asked there
		}
	}
	g.Use(declared(h, pure))
	g.id = g.Session(t)
	return g
}

// steps are the appends of a run, but for those of parts of an answer, which
// depend on how fast a model is.
func (g *gated) steps(t *testing.T) []string {
	t.Helper()
	var all []string
	g.log.LoseAcks(func(a loop.Append) error {
		var parts []string
		for _, e := range a.Events {
			if e.Type != event.TypeAssistantDelta {
				parts = append(parts, string(e.Type))
			}
		}
		if len(parts) > 0 {
			all = append(all, strings.Join(parts, " "))
		}
		return nil
	})
	if run := g.Advance(t, g.Start(t, g.id, "hi")); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
	checked(t, g.Bench, g.id)
	return all
}

// TestPureHooksCostNoAppend: a run is five appends, and each gate that is asked
// about durable facts only adds those that it says.
func TestPureHooksCostNoAppend(t *testing.T) {
	t.Parallel()
	const (
		created  = "message.created run.created run.queued"
		claim    = "run.started"
		request  = "turn.started model.requested"
		answer   = "assistant.completed tool.proposed"
		start    = "tool.started"
		executed = "tool.executed"
		result   = "tool.result"
		again    = "turn.completed " + request
		end      = "assistant.completed turn.completed run.completed"
	)
	few := []string{created, claim + " " + request, answer + " " + start, executed + " " + result + " " + again, end}
	claimed := []string{claim, request, answer + " " + start, executed + " " + result + " " + again, end}
	model := []string{claim, request, answer + " " + start, executed + " " + result, again, end}
	tools := []string{claim + " " + request, answer, start, executed + " " + result + " " + again, end}
	every := []string{claim, "run.prepared " + request, answer, start, executed, result, again, end}
	prepared := slices.Clone(few)
	prepared[1] = claim + " run.prepared " + request
	for _, c := range []struct {
		at    []hooks.Gate
		other []string // but for the first
	}{
		{nil, few[1:]},
		{[]hooks.Gate{hooks.GateBeforeInput}, few[1:]},
		{[]hooks.Gate{hooks.GateTransformContext}, model},
		{[]hooks.Gate{hooks.GateBeforeProviderHeaders}, model},
		{[]hooks.Gate{hooks.GateBeforeProviderRequest}, model},
		{[]hooks.Gate{hooks.GateAfterProviderResponse}, few[1:]},
		{[]hooks.Gate{hooks.GateBeforeToolCall}, tools},
		{[]hooks.Gate{hooks.GateBeforeExecute}, tools},
		{[]hooks.Gate{hooks.GateAfterToolCall}, []string{claim + " " + request, answer + " " + start, executed, result + " " + again, end}},
		{[]hooks.Gate{hooks.GateBeforeRunStart}, slices.Replace(slices.Clone(claimed), 1, 2, "run.prepared "+request)},
		{allGates, every},
	} {
		pure := few
		if slices.Contains(c.at, hooks.GateBeforeRunStart) {
			pure = prepared
		}
		if got := lookedUp(t, c.at, everyGate).steps(t); !slices.Equal(got, pure) {
			t.Errorf("pure at %v: the run was%s\nwant%s", c.at, lines(got), lines(pure))
		}
		if got, want := lookedUp(t, c.at, noGate).steps(t), append([]string{created}, c.other...); !slices.Equal(got, want) {
			t.Errorf("at %v: the run was%s\nwant%s", c.at, lines(got), lines(want))
		}
	}
}

// TestOneHookThatIsNotPureIsAskedAboutDurableFacts: what it is asked about is
// in the log by then, also behind one that is pure; and the other gates go on as
// if it were not there.
func TestOneHookThatIsNotPureIsAskedAboutDurableFacts(t *testing.T) {
	t.Parallel()
	for gate, last := range map[hooks.Gate]event.Type{
		hooks.GateBeforeRunStart:   event.TypeRunStarted,
		hooks.GateTransformContext: event.TypeToolResult,
		hooks.GateBeforeToolCall:   event.TypeToolProposed,
		hooks.GateBeforeExecute:    event.TypeToolProposed,
		hooks.GateAfterToolCall:    event.TypeToolExecuted,
	} {
		for _, pure := range []bool{false, true} {
			var seen event.Type
			g := lookedUp(t, allGates, func(g hooks.Gate) bool { return g != gate })
			see := func(sessionID string) {
				events := g.Events(t, sessionID)
				seen = events[len(events)-1].Type
			}
			h := hooks.Hooks{}
			switch gate {
			case hooks.GateBeforeRunStart:
				h.BeforeRunStart = looks(func(in hooks.BeforeRunStart) { see(in.SessionID) }, hooks.BeforeRunStartResult{Action: hooks.ActionContinue}, pure)
			case hooks.GateTransformContext:
				h.TransformContext = looks(func(in hooks.TransformContext) { see(in.SessionID) }, hooks.TransformContextResult{Action: hooks.ActionContinue}, pure)
			case hooks.GateBeforeToolCall:
				h.BeforeToolCall = looks(func(in hooks.BeforeToolCall) { see(in.SessionID) }, hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, pure)
			case hooks.GateBeforeExecute:
				h.BeforeExecute = looks(func(in hooks.BeforeExecute) { see(in.SessionID) }, hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, pure)
			case hooks.GateAfterToolCall:
				h.AfterToolCall = looks(func(in hooks.AfterToolCall) { see(in.SessionID) }, hooks.AfterToolCallResult{Action: hooks.ActionContinue}, pure)
			default:
				t.Fatal(gate)
			}
			// One of two at the gate is not pure, or both are.
			g.Use(declared(g.Engine.Hooks, func(g hooks.Gate) bool { return g == gate }).Then(h))
			n := len(g.steps(t))
			if (seen == last) == pure || pure && n != 5 || !pure && n < 6 {
				t.Errorf("%s, pure %v: asked when the last event was %s, %d appends", gate, pure, seen, n)
			}
		}
	}
}

// looks is a hook that calls see.
func looks[In hooks.Input[In, Out], Out hooks.Result](see func(In), says Out, pure bool) hooks.Func[In, Out] {
	return declare(func(_ context.Context, in In) (Out, error) {
		see(in)
		return says, nil
	}, pure)
}

var (
	uuids   = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	digests = regexp.MustCompile(`[0-9a-f]{64}`)
)

// story is a log and its ledger as text, in which ids and digests are numbered
// as they come.
func story(t *testing.T, events []event.Event, rec []loop.LedgerRow) []string {
	t.Helper()
	names := map[string]string{}
	number := func(id string) string {
		if names[id] == "" {
			names[id] = fmt.Sprintf("<%d>", len(names)+1)
		}
		return names[id]
	}
	var out []string
	add := func(line string) {
		out = append(out, digests.ReplaceAllStringFunc(uuids.ReplaceAllStringFunc(line, number), number))
	}
	for _, e := range events {
		add(fmt.Sprintf("%d %s run %s turn %d by %v at %v: %s", e.Seq, e.Type, e.RunID, e.Turn, e.Actor, e.At.UnixNano()-events[0].At.UnixNano(), e.Payload))
	}
	for _, r := range rec {
		// The digests are of texts with ids in them.
		r.InputSHA256, r.OutputSHA256, r.PrevHash, r.PayloadSHA256 = [32]byte{}, [32]byte{}, [32]byte{}, nil
		r.Deadline, r.At = 0, r.At.Add(-time.Duration(events[0].At.UnixNano()))
		line, err := json.Marshal(r.Row)
		if err != nil {
			t.Fatal(err)
		}
		add(string(line))
	}
	return out
}

// TestPureHooksLeaveTheSameLog, event by event and decision by decision.
func TestPureHooksLeaveTheSameLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var stories [2][]string
		var appends [2]int
		for i, pure := range []func(hooks.Gate) bool{noGate, everyGate} {
			g := newGated(t, pure)
			g.log.LoseAcks(func(loop.Append) error {
				appends[i]++
				return nil
			})
			g.play(t)
			events, _ := checked(t, g.Bench, g.id)
			stories[i] = story(t, events, ledger(g.Bench, g.id))
		}
		if !reflect.DeepEqual(stories[0], stories[1]) {
			t.Errorf("with pure hooks\n got %s\nwant %s", lines(stories[1]), lines(stories[0]))
		}
		// Both claims, the answer, and of both tools that they ran and the result.
		if appends[0]-appends[1] != 7 {
			t.Errorf("%d appends, and %d with pure hooks", appends[0], appends[1])
		}
	})
}

// TestOutcomesOfPureHooksAreRecordedAsTheyCome: a tool that takes its time keeps none of
// the others from being in the log, with what pure hooks said of them.
func TestOutcomesOfPureHooksAreRecordedAsTheyCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), strict(t, calls("slow", "quick", "middling")),
			afterTime("slow", time.Hour, "slow ran"), afterTime("quick", time.Second, "quick ran"), afterTime("middling", time.Minute, "middling ran"))
		text := "reviewed"
		b.Use(hooks.Hooks{AfterToolCall: looks(func(hooks.AfterToolCall) {}, hooks.AfterToolCallResult{Action: hooks.ActionTransform, Content: &text}, true)})
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		for i, d := range []time.Duration{2 * time.Second, 2 * time.Minute} {
			pause(t.Context(), d)
			events, s := checked(t, b, j.SessionID)
			if n := len(results(s)); n != i+1 || len(payloads[event.ToolExecuted](t, events)) != n {
				t.Errorf("%d results after %v", n, d)
			}
		}
		w.kill()
		_ = w.wait(t)
		b.Advance(t, buried(t, b, j, w.id))
		events, s := checked(t, b, j.SessionID)
		want := []string{"outcome_unknown outcome unknown: the tool was started and then interrupted before it answered. It may have taken effect. It was not run again.", text, text}
		if !slices.Equal(told(s), want) {
			t.Errorf("results %q; want %q", told(s), want)
		}
		for _, r := range ledger(b, j.SessionID) {
			if p, err := event.Decode(events[r.EventSeq-1]); err != nil || p.(event.ToolResult).CallID != r.Subject {
				t.Errorf("what was said of %s is stored with %+v, %v", r.Subject, p, err)
			}
		}
	})
}

// TestTurnThatAPureHookTerminatesEndsWithItsCalls, although the answer that has
// them was not durable.
func TestTurnThatAPureHookTerminatesEndsWithItsCalls(t *testing.T) {
	t.Parallel()
	var c counted
	var d diary
	b := looptest.NewBench(looptest.NewLog(), strict(t, calls("free", "bad", "after")), c.tool("free"), c.tool("bad"), c.tool("after"))
	b.Use(hooks.Hooks{
		OnTurnEnd: d.hooks(b).OnTurnEnd,
		BeforeToolCall: declare(beforeCall(map[string]hooks.BeforeToolCallResult{
			"bad": {Action: hooks.ActionTerminate, Reason: hooks.Reason{Text: "that is enough"}},
		}), true),
	})
	j := b.Start(t, b.Session(t), "hi")
	if run := b.Advance(t, j); run.Reason != "terminated_by_hook" || len(c.sorted()) != 0 {
		t.Errorf("run %+v, ran %q", run, c.sorted())
	}
	checked(t, b, j.SessionID)
	if want := []string{"turn 1 ends with 3 calls after model.requested"}; !slices.Equal(d.lines, want) {
		t.Errorf("told %q; want %q", d.lines, want)
	}
	if got, want := rows(ledger(b, j.SessionID)), []string{"BeforeToolCall anonymous/1 continue void", "BeforeToolCall anonymous/1 terminate"}; !slices.Equal(got, want) {
		t.Errorf("ledger %q; want %q", got, want)
	}
}

// TestCancelBetweenAPureAnswerAndItsAppend: the plan is made again on the
// cancel. What was asked about stays what it was, and what was said leads to
// nothing; only a run that was not even claimed leaves no row.
func TestCancelBetweenAPureAnswerAndItsAppend(t *testing.T) {
	t.Parallel()
	const start, context, call, execute, after = "BeforeRunStart anonymous/1 transform", "TransformContext anonymous/1 transform",
		"BeforeToolCall anonymous/1 transform", "BeforeExecute anonymous/1 continue", "AfterToolCall anonymous/1 transform"
	at := []hooks.Gate{hooks.GateBeforeRunStart, hooks.GateTransformContext, hooks.GateBeforeToolCall, hooks.GateBeforeExecute, hooks.GateAfterToolCall}
	for typ, c := range map[event.Type]struct {
		asked, ran int
		ledger     []string
		result     string
	}{
		event.TypeRunStarted:  {2, 0, nil, ""},
		event.TypeToolStarted: {4, 0, []string{start, context, call + " void", execute + " void"}, "cancelled This call was not run: the run was cancelled first."},
		event.TypeToolResult:  {6, 1, []string{start, context, call, execute, after, context + " void"}, "reviewed"},
	} {
		var n counted
		g := lookedUp(t, at, everyGate)
		agent := g.Engine.Agents["demo"]
		agent.Tools = []loop.Tool{n.tool("look")}
		g.Engine.Agents["demo"] = agent
		j := g.Start(t, g.id, "hi")
		tried, cancelled := 0, false
		hooked(g.Bench, func(a loop.Append) {
			if has(a, typ) {
				if tried++; !cancelled {
					cancelled = true
					if err := cancel(t, g.Bench, j); err != nil {
						t.Error(err)
					}
				}
			}
		})
		if run := g.Advance(t, j); run.Status != loop.RunCancelled || run.Reason != "enough" {
			t.Errorf("%s: run %+v", typ, run)
		}
		events, s := checked(t, g.Bench, g.id)
		if got := rows(ledger(g.Bench, g.id)); !slices.Equal(got, c.ledger) || len(g.asked) != c.asked || len(n.sorted()) != c.ran {
			t.Errorf("%s: ledger %q, %d askings, %d runs; want %q, %d, %d", typ, got, len(g.asked), len(n.sorted()), c.ledger, c.asked, c.ran)
		}
		if got := told(s); c.result != "" && !slices.Equal(got, []string{c.result}) || c.result == "" && got != nil {
			t.Errorf("%s: results %q; want %q", typ, got, c.result)
		}
		if n := len(payloads[event.ToolStarted](t, events)); n != c.ran {
			t.Errorf("%s: %d starts in %v", typ, n, looptest.Types(events))
		}
		for _, a := range g.asked {
			if a.Gate != hooks.GateBeforeToolCall {
				continue
			}
			if p := payloads[event.ToolProposed](t, events); len(p) != 1 || p[0].CallID != a.Subject {
				t.Errorf("%s: asked about the call %s; the log has %+v", typ, a.Subject, p)
			}
		}
	}
}

// TestPureHooksOfAConflictThatStopsNothingAreAskedOnce, about the ids that
// become durable.
func TestPureHooksOfAConflictThatStopsNothingAreAskedOnce(t *testing.T) {
	t.Parallel()
	g := lookedUp(t, allGates, everyGate)
	j := g.Start(t, g.id, "hi")
	n := 0
	hooked(g.Bench, func(a loop.Append) {
		if !a.Deltas && a.Expected%2 == 0 || n == 0 {
			n++
			title := fmt.Sprint(n)
			if err := g.Commands.UpdateSession(t.Context(), loop.UpdateSession{TenantID: looptest.Tenant, SessionID: g.id, Title: &title, Actor: looptest.Tester}); err != nil {
				t.Error(err)
			}
		}
	})
	if run := g.Advance(t, j); run.Status != loop.RunCompleted || n < 2 {
		t.Errorf("run %+v after %d conflicts", run, n)
	}
	checked(t, g.Bench, g.id)
	rec := ledger(g.Bench, g.id)
	if len(rec) != len(g.asked) {
		t.Fatalf("%d askings, ledger %v", len(g.asked), rows(rec))
	}
	for i, r := range rec {
		if r.ID != g.asked[i].id || r.Position != g.asked[i].Position || !r.Effective {
			t.Errorf("row %+v; asked %+v", r.Row, g.asked[i])
		}
	}
}

// TestRunThatSomebodyElseClaimsWhilePureHooksAreAsked is theirs alone.
func TestRunThatSomebodyElseClaimsWhilePureHooksAreAsked(t *testing.T) {
	t.Parallel()
	g := lookedUp(t, allGates, everyGate)
	j := g.Start(t, g.id, "hi")
	taken := false
	hooked(g.Bench, func(loop.Append) {
		if !taken {
			taken = true
			claimed(t, g.Bench, j, "other", 1)
		}
	})
	if run := g.Advance(t, j); run.Status != loop.RunRunning || run.WorkerID != "other" {
		t.Errorf("run %+v", run)
	}
	checked(t, g.Bench, g.id)
	if rec := ledger(g.Bench, g.id); len(rec) != 1 || rec[0].Gate != hooks.GateBeforeInput { // nothing of it
		t.Errorf("ledger %v", rows(rec))
	}
}

// TestRunThatIsCancelledWhilePureHooksAreAskedAboutItsStart ends once: it was
// not claimed, so whoever cancels it tells of that.
func TestRunThatIsCancelledWhilePureHooksAreAskedAboutItsStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		b := looptest.NewBench(looptest.NewLog(), uncalled(t))
		b.Use(ponders(hooks.GateBeforeRunStart, hooks.Pure()).Then(hooks.Hooks{OnRunEnd: d.hooks(b).OnRunEnd}))
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		pause(t.Context(), time.Second)
		if run := b.Run(t, j); run.Status != loop.RunQueued {
			t.Errorf("run %+v; want no claim yet", run)
		}
		events, _ := cancelledNow(t, b, j, w, 0)
		if n := len(payloads[event.RunStarted](t, events)); n != 0 || !slices.Equal(d.lines, []string{"run cancelled enough after run.cancelled"}) {
			t.Errorf("log %v, told %q", looptest.Types(events), d.lines)
		}
		pause(t.Context(), 2*time.Hour)
	})
}

// TestRunThatIsLostWhilePureHooksAreAskedIsLeftAlone: a worker that has to go
// hands back what it holds, and nothing else.
func TestRunThatIsLostWhilePureHooksAreAskedIsLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), uncalled(t))
		b.Use(ponders(hooks.GateBeforeRunStart, hooks.Pure()))
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		synctest.Wait()
		claimed(t, b, j, "other", 1)
		synctest.Wait()
		close(w.interrupt)
		if err := w.wait(t); err != nil {
			t.Error(err)
		}
		if run := b.Run(t, j); run.Status != loop.RunRunning || run.WorkerID != "other" {
			t.Errorf("run %+v", run)
		}
		checked(t, b, j.SessionID)
		pause(t.Context(), 2*time.Hour)
	})
}
