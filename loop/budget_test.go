package loop_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// turns is a model that asks in each turn for those tools, and at last for none.
// Each answer takes 3 and 5 tokens.
func turns(names ...[]string) looptest.Model {
	return func(_ context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		pieces := []any{looptest.Text("so"), looptest.Finish(stream.FinishStop)}
		if req.Turn <= len(names) {
			pieces = nil
			for i, name := range names[req.Turn-1] {
				pieces = append(pieces, looptest.ToolCall(fmt.Sprint("p", i), name, fmt.Sprintf(`{"n":%d}`, i)))
			}
			pieces = append(pieces, looptest.Finish(stream.FinishToolCalls))
		}
		for _, c := range looptest.Answer(pieces...) {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// price gives the agent of b prices.
func price(b *looptest.Bench, p loop.Prices) {
	a := b.Engine.Agents["demo"]
	a.Prices = p
	b.Engine.Agents["demo"] = a
}

// toll is how a run ended, and what it took.
type toll struct {
	reason     string
	turns, ran int
	// told are the reasons of the results.
	told []hooks.ResultReason
}

func tollOf(s loop.State, run loop.Run, ran int) toll {
	e := toll{reason: run.Reason, turns: len(run.Turns), ran: ran}
	for _, r := range results(s) {
		e.told = append(e.told, r.Reason)
	}
	return e
}

func (e toll) String() string {
	return fmt.Sprintf("%s after %d turns and %d tools, told %q", e.reason, e.turns, e.ran, e.told)
}

const limited = hooks.ReasonLimit

// TestLimitsOfWhatARunTakes: three tools, two more, and an answer; 8 tokens
// each, which cost 3*2.5 + 5*15 = 82.5 millionths, rounded up.
func TestLimitsOfWhatARunTakes(t *testing.T) {
	t.Parallel()
	whole := toll{"stop", 3, 5, []hooks.ResultReason{"", "", "", "", ""}}
	first := toll{"", 1, 0, []hooks.ResultReason{limited, limited, limited}}
	second := toll{"", 2, 3, []hooks.ResultReason{"", "", "", limited, limited}}
	because := func(e toll, reason event.FailReason) toll {
		e.reason = string(reason)
		return e
	}
	for name, c := range map[string]struct {
		limits loop.Limits
		want   toll
		says   []string
	}{
		"tool calls: more than it needs": {loop.Limits{ToolCalls: 6}, whole, nil},
		"tool calls: what it needs":      {loop.Limits{ToolCalls: 5}, whole, nil},
		"tool calls: one less": {
			loop.Limits{ToolCalls: 4}, toll{"tool_call_limit", 2, 4, []hooks.ResultReason{"", "", "", "", limited}},
			[]string{"number 5", "4 is the limit", "4 were started"},
		},
		"tool calls: used up by the first turn": {
			loop.Limits{ToolCalls: 3}, because(second, event.FailToolCallLimit), []string{"number 5", "3 is the limit", "3 were started"},
		},
		"tool calls: in the middle of the first turn": {
			loop.Limits{ToolCalls: 1}, toll{"tool_call_limit", 1, 1, []hooks.ResultReason{"", limited, limited}},
			[]string{"number 3", "1 is the limit", "1 were started"},
		},
		"tokens: reached by the last answer": {loop.Limits{Tokens: 24}, whole, nil},
		"tokens: above what two turns take":  {loop.Limits{Tokens: 17}, whole, nil},
		"tokens: what two turns take":        {loop.Limits{Tokens: 16}, because(second, event.FailTokenLimit), []string{"after 16 tokens", "16 is the limit"}},
		"tokens: one less":                   {loop.Limits{Tokens: 15}, because(second, event.FailTokenLimit), []string{"after 16 tokens", "15 is the limit"}},
		"tokens: what one turn takes":        {loop.Limits{Tokens: 8}, because(first, event.FailTokenLimit), []string{"after 8 tokens", "8 is the limit"}},
		"cost: above what two turns cost":    {loop.Limits{CostMicros: 167}, whole, nil},
		"cost: what two turns cost":          {loop.Limits{CostMicros: 166}, because(second, event.FailCostLimit), []string{"cost 0.000166", "0.000166 is the limit"}},
		"cost: one less":                     {loop.Limits{CostMicros: 165}, because(second, event.FailCostLimit), []string{"cost 0.000166", "0.000165 is the limit"}},
		"cost: what one turn costs":          {loop.Limits{CostMicros: 83}, because(first, event.FailCostLimit), []string{"cost 0.000083", "0.000083 is the limit"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c2 counted
			b := looptest.NewBench(looptest.NewLog(), strict(t, turns([]string{"look", "look", "look"}, []string{"look", "look"})), c2.tool("look"))
			price(b, loop.Prices{Input: 2_500_000, Output: 15_000_000})
			limit(b, c.limits)
			id := b.Session(t)
			run := b.Advance(t, b.Start(t, id, "hi"))
			_, s := checked(t, b, id)
			if got := tollOf(s, run, len(c2.sorted())); got.String() != c.want.String() {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
			for _, part := range c.says {
				if !strings.Contains(run.Error, part) {
					t.Errorf("it says %q, without %q", run.Error, part)
				}
			}
			limit(b, loop.Limits{})
			goesOn(t, b, id)
		})
	}
}

// TestOnlyCallsThatWereStartedCount: what a hook blocks, what is no tool and
// what people deny leaves room.
func TestOnlyCallsThatWereStartedCount(t *testing.T) {
	t.Parallel()
	var c counted
	b := looptest.NewBench(looptest.NewLog(), strict(t, turns([]string{"blocked", "none", "free", "more"}, []string{"free"})), c.tool("blocked"), c.tool("free"), c.tool("more"))
	b.Use(hooks.Hooks{BeforeToolCall: beforeCall(map[string]hooks.BeforeToolCallResult{"blocked": {Action: hooks.ActionBlock}})})
	limit(b, loop.Limits{ToolCalls: 3})
	id := b.Session(t)
	run := b.Advance(t, b.Start(t, id, "hi"))
	_, s := checked(t, b, id)
	if run.Reason != "stop" || !slices.Equal(c.sorted(), []string{`free {"n":0}`, `free {"n":2}`, `more {"n":3}`}) {
		t.Errorf("%s %q, ran %q, told %q", run.Reason, run.Error, c.sorted(), told(s))
	}
}

// TestACallThatWaitsForPeopleHasItsPlace: those behind it are refused at once,
// and the run ends only if it is started.
func TestACallThatWaitsForPeopleHasItsPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		yes    bool
		reason string
		ran    []string
	}{
		"yes": {true, "tool_call_limit", []string{`pay {"n":0}`}},
		"no":  {false, "stop", []string{`free {"n":0}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ran counted
			b := looptest.NewBench(looptest.NewLog(), strict(t, turns([]string{"pay", "free"}, []string{"free"})), ran.tool("pay"), ran.tool("free"))
			permit(b, loop.Permission{Tools: "pay", Mode: loop.PermissionAsk})
			limit(b, loop.Limits{ToolCalls: 1})
			j := b.Start(t, b.Session(t), "hi")
			b.Advance(t, j)
			decide(t, b, openApprovals(t, b, j)[0], c.yes)
			run := b.Advance(t, next(t, b, j))
			_, s := checked(t, b, j.SessionID)
			if run.Reason != c.reason || !slices.Equal(ran.sorted(), c.ran) || results(s)[1].Reason != limited {
				t.Errorf("%s %q, ran %q, told %q", run.Reason, run.Error, ran.sorted(), told(s))
			}
		})
	}
}

// TestALimitThatWasLoweredMeanwhileHoldsForWhatWasApproved: a yes is none to
// one call too many.
func TestALimitThatWasLoweredMeanwhileHoldsForWhatWasApproved(t *testing.T) {
	t.Parallel()
	var ran counted
	b := looptest.NewBench(looptest.NewLog(), strict(t, turns([]string{"free", "pay"})), ran.tool("pay"), ran.tool("free"))
	permit(b, loop.Permission{Tools: "pay", Mode: loop.PermissionAsk})
	j := b.Start(t, b.Session(t), "hi")
	b.Advance(t, j)
	limit(b, loop.Limits{ToolCalls: 1})
	decide(t, b, openApprovals(t, b, j)[0], true)
	if run := b.Advance(t, next(t, b, j)); run.Reason != string(event.FailToolCallLimit) || len(ran.sorted()) != 1 {
		t.Errorf("%s %q, ran %q", run.Reason, run.Error, ran.sorted())
	}
	checked(t, b, j.SessionID)
}

// TestWhatFailedCallsTookCounts: as far as the provider said.
func TestWhatFailedCallsTookCounts(t *testing.T) {
	t.Parallel()
	busy := func(u stream.Usage) func(func(stream.Chunk, error) bool) {
		return func(yield func(stream.Chunk, error) bool) {
			yield(stream.Chunk{}, &loop.ModelError{Message: "busy", Retryable: true, Usage: u})
		}
	}
	for name, c := range map[string]struct {
		limits loop.Limits
		calls  int
		want   string
	}{
		"below": {loop.Limits{Tokens: 21}, 3, "stop"},
		"at":    {loop.Limits{Tokens: 20}, 2, "token_limit"},
		"cost":  {loop.Limits{CostMicros: 50}, 2, "cost_limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				b := looptest.NewBench(looptest.NewLog(), failing(&calls, busy(stream.Usage{InputTokens: 10}), busy(stream.Usage{InputTokens: 10, OutputTokens: -7})))
				retry(b, loop.Retry{Attempts: 4})
				price(b, loop.Prices{Input: 2_500_000})
				limit(b, c.limits)
				id := b.Session(t)
				run := b.Advance(t, b.Start(t, id, "hi"))
				if run.Reason != c.want || calls != c.calls {
					t.Errorf("%s %q after %d calls; want %s after %d", run.Reason, run.Error, calls, c.want, c.calls)
				}
				events, _ := checked(t, b, id)
				for _, d := range payloads[event.AssistantDiscarded](t, events) {
					if *d.Usage != (stream.Usage{InputTokens: 10}) || *d.Cost != (event.Cost{Micros: 25, InputPrice: 2_500_000}) {
						t.Errorf("discarded %+v, cost %+v", d.Usage, d.Cost)
					}
				}
				want := stream.Usage{InputTokens: 20}
				if c.want == "stop" {
					want = stream.Usage{InputTokens: 23, OutputTokens: 5}
				}
				if got := run.Turns[0].Usage; got != want {
					t.Errorf("the turn took %+v; want %+v", got, want)
				}
			})
		})
	}
}

// TestWhatACallTookThatFailedTheRunCounts: also when the run is taken up again.
func TestWhatACallTookThatFailedTheRunCounts(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), fails(&loop.ModelError{Message: "no", Usage: stream.Usage{InputTokens: 10, OutputTokens: 1}}, looptest.Text("so f")))
	j := b.Start(t, b.Session(t), "hi")
	b.Advance(t, j)
	events, _ := checked(t, b, j.SessionID)
	if got := only[event.AssistantStopped](t, events); got.Usage == nil || *got.Usage != (stream.Usage{InputTokens: 10, OutputTokens: 1}) || got.Cost != nil {
		t.Errorf("stopped %+v", got)
	}
	limit(b, loop.Limits{Tokens: 11})
	if run := b.Advance(t, retaken(t, b, j)); run.Reason != string(event.FailTokenLimit) || len(run.Turns) != 1 {
		t.Errorf("%s %q after %d turns", run.Reason, run.Error, len(run.Turns))
	}
	limit(b, loop.Limits{Tokens: 12})
	play(b, says("at last"))
	if run := b.Advance(t, retaken(t, b, j)); run.Status != loop.RunCompleted {
		t.Errorf("%s %q", run.Reason, run.Error)
	}
	checked(t, b, j.SessionID)
}

// TestAProviderThatDoesNotSayWhatItTookEndsALimitedRun: before it goes on. An
// answer that needs nothing more stands.
func TestAProviderThatDoesNotSayWhatItTookEndsALimitedRun(t *testing.T) {
	t.Parallel()
	silent := func(m looptest.Model) looptest.Model {
		return func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			m.Stream(ctx, req)(func(c stream.Chunk, err error) bool {
				c.Finish.Usage = stream.Usage{}
				return yield(c, err)
			})
		}
	}
	for name, c := range map[string]struct {
		limits loop.Limits
		model  looptest.Model
		want   string
		says   string
	}{
		"tokens":           {loop.Limits{Tokens: 1000}, turns([]string{"look"}), "usage_unknown", "turn 1 took, so the limit of its agent (1000 tokens)"},
		"cost":             {loop.Limits{CostMicros: 2_500_000}, turns([]string{"look"}), "usage_unknown", "(a cost of 2.5)"},
		"no such limit":    {loop.Limits{ToolCalls: 1}, turns([]string{"look"}), "stop", ""},
		"nothing to do":    {loop.Limits{Tokens: 1000}, turns(), "stop", ""},
		"a model that may": {loop.Limits{}, turns([]string{"look"}), "stop", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ran counted
			b := looptest.NewBench(looptest.NewLog(), strict(t, silent(c.model)), ran.tool("look"))
			limit(b, c.limits)
			id := b.Session(t)
			run := b.Advance(t, b.Start(t, id, "hi"))
			if run.Reason != c.want || !strings.Contains(run.Error, c.says) || c.want == "usage_unknown" && len(ran.sorted()) > 0 {
				t.Errorf("%s %q, ran %q", run.Reason, run.Error, ran.sorted())
			}
			checked(t, b, id)
		})
	}
}

// TestARaisedLimitLetsAFailedRunGoOn, and one that was not raised ends it again.
func TestARaisedLimitLetsAFailedRunGoOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ low, high loop.Limits }{
		"tool calls": {loop.Limits{ToolCalls: 2}, loop.Limits{ToolCalls: 4}},
		"tokens":     {loop.Limits{Tokens: 8}, loop.Limits{Tokens: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ran counted
			b := looptest.NewBench(looptest.NewLog(), strict(t, turns([]string{"look", "look", "look"}, []string{"look"})), ran.tool("look"))
			limit(b, c.low)
			j := b.Start(t, b.Session(t), "hi")
			first := b.Advance(t, j)
			j = retaken(t, b, j)
			if again := b.Advance(t, j); again.Reason != first.Reason || first.Status != loop.RunFailed || again.Error != first.Error {
				t.Errorf("%s %q, and then %s %q", first.Reason, first.Error, again.Reason, again.Error)
			}
			limit(b, c.high)
			if run := b.Advance(t, retaken(t, b, j)); run.Status != loop.RunCompleted {
				t.Errorf("%s %q", run.Reason, run.Error)
			}
			checked(t, b, j.SessionID)
		})
	}
}

// TestWhatCountsIsTheSameOverATakeOver: the log as it was after each append,
// and another worker.
func TestWhatCountsIsTheSameOverATakeOver(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]loop.Limits{
		"tool calls": {ToolCalls: 4}, "tokens": {Tokens: 16}, "cost": {CostMicros: 166},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fresh := func() (*looptest.Bench, *looptest.Log) {
					log := looptest.NewLog()
					var ran counted
					b := looptest.NewBench(log, strict(t, paced(turns([]string{"look", "look", "look"}, []string{"look", "look"}))), ran.tool("look"))
					price(b, loop.Prices{Input: 2_500_000, Output: 15_000_000})
					limit(b, l)
					return b, log
				}
				b, log := fresh()
				var appends []loop.Append
				log.FailAppends(func(a loop.Append) error {
					appends = append(appends, a)
					return nil
				})
				j := b.Start(t, b.Session(t), "hi")
				whole := b.Advance(t, j)
				for n := 2; n <= len(appends); n++ {
					b, log := fresh()
					for _, a := range appends[:n] {
						if _, err := log.Append(t.Context(), a); err != nil {
							t.Fatal(err)
						}
					}
					j := j
					if run := b.Run(t, j); run.Status == loop.RunRunning {
						j = buried(t, b, j, run.WorkerID)
					}
					run := b.Advance(t, j)
					_, s := checked(t, b, j.SessionID)
					if run.Reason != whole.Reason || run.Error != whole.Error || len(run.Turns) != len(whole.Turns) {
						t.Errorf("after append %d of %d: %s %q after %d turns; want %s %q, told %q", n, len(appends), run.Reason, run.Error, len(run.Turns), whole.Reason, whole.Error, told(s))
					}
				}
			})
		})
	}
}

// TestCostsAreExact: integers all the way, rounded up once a call.
func TestCostsAreExact(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		usage  stream.Usage
		prices loop.Prices
		want   int64
	}{
		{stream.Usage{InputTokens: 1_000_000, OutputTokens: 1_000_000}, loop.Prices{Input: 2_500_000, Output: 15_000_000}, 17_500_000},
		{stream.Usage{InputTokens: 1}, loop.Prices{Input: 1}, 1},
		{stream.Usage{InputTokens: 400_000}, loop.Prices{Input: 5}, 2},
		{stream.Usage{InputTokens: 400_001}, loop.Prices{Input: 5}, 3},
		{stream.Usage{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64}, loop.Prices{Input: math.MaxInt64, Output: math.MaxInt64}, 1 << 53},
		{stream.Usage{InputTokens: math.MinInt64, OutputTokens: 3}, loop.Prices{Input: 1_000_000, Output: 1_000_000}, 3},
	} {
		b := looptest.NewBench(looptest.NewLog(), looptest.Answers(looptest.Answer(
			stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: stream.FinishStop, Usage: c.usage}},
		)))
		price(b, c.prices)
		run := b.Advance(t, b.Start(t, b.Session(t), "hi"))
		if got := run.Turns[0].CostMicros; got != c.want {
			t.Errorf("%+v at %+v costs %d; want %d", c.usage, c.prices, got, c.want)
		}
	}
	for n, want := range map[int64]string{0: "0", 1: "0.000001", 2_500_000: "2.5", 10_000_000: "10", -1_500_000: "-1.5", math.MaxInt64: "9223372036854.775807"} {
		if got := loop.FormatMicros(n); got != want {
			t.Errorf("%d is %s; want %s", n, got, want)
		}
	}
}
