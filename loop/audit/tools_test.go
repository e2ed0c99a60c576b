package audit_test

import (
	"context"
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/audit"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// narrowed is the log of a run whose tools a hook and then a tool have narrowed, which
// says twice how far it is.
func narrowed(t *testing.T) (w written) {
	t.Helper()
	both := looptest.Answer(looptest.ToolCall("a", "look", `{}`), looptest.ToolCall("b", "find", `{}`), looptest.Finish(stream.FinishToolCalls))
	log := looptest.NewLog()
	look := looptest.Tool{Name: "look", Run: func(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
		in.Progress("half")
		return loop.ToolOutput{Content: "seen"}, hooks.NarrowTools(ctx, []string{"look"})
	}}
	b := looptest.NewBench(log, looptest.Answers(both, both, looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop))),
		look, looptest.Says("find", "found"), looptest.Says("pay", "paid"))
	b.Use(hooks.Hooks{TransformContext: func(ctx context.Context, _ hooks.TransformContext) (hooks.TransformContextResult, error) {
		return hooks.TransformContextResult{Action: hooks.ActionContinue}, hooks.NarrowTools(ctx, []string{"look", "find"})
	}})
	j := b.Start(t, b.Session(t), "hi")
	b.Advance(t, j)
	w.events = b.Events(t, j.SessionID)
	for _, row := range log.Ledger(j.SessionID) {
		w.decisions = append(w.decisions, audit.DecisionOf(row))
	}
	return w
}

func TestRulesOfTools(t *testing.T) {
	t.Parallel()
	whole := narrowed(t)
	type left = event.ToolsNarrowed
	for name, c := range map[string]struct {
		rule   audit.Rule
		change func(*written)
	}{
		"as it was": {"", func(*written) {}},
		"without the decisions, of which nobody knows": {"", func(w *written) { w.decisions = nil }},
		"the model is told of one":                     {audit.RuleTools, edit(1, func(_ *event.Event, p *event.ModelRequested) { p.Tools = append(p.Tools, "pay") })},
		"one is started":                               {audit.RuleTools, edit(0, func(_ *event.Event, p *left) { p.Tools = []string{"find"} })},
		"nobody has done it":                           {audit.RuleTools, edit(0, func(_ *event.Event, p *left) { p.DecisionID = "" })},
		"two have done it":                             {audit.RuleTools, edit(0, func(_ *event.Event, p *left) { p.CallID = "x" })},
		"a decision that there is not":                 {audit.RuleTools, edit(0, func(_ *event.Event, p *left) { p.DecisionID = "x" })},
		"a call that there is not":                     {audit.RuleTools, edit(1, func(_ *event.Event, p *left) { p.CallID = "x" })},
		"by somebody else":                             {audit.RuleLease, edit(0, func(e *event.Event, _ *left) { e.Actor = event.System("worker:x") })},
		"said by somebody else":                        {audit.RuleLease, edit(0, func(e *event.Event, _ *event.ToolProgress) { e.Actor = event.System("worker:x") })},
		"said as if it were before the first":          {audit.RuleAttempt, edit(0, func(_ *event.Event, p *event.ToolProgress) { p.Number = 0 })},
		"said in another attempt":                      {audit.RuleTransition, edit(0, func(_ *event.Event, p *event.ToolProgress) { p.Attempt = 2 })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := written{slices.Clone(whole.events), slices.Clone(whole.decisions)}
			c.change(&w)
			found := audit.Check(w.events, w.decisions)
			if c.rule == "" && len(found) > 0 || c.rule != "" && !slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Rule == c.rule }) {
				t.Errorf("%v; want %q", found, c.rule)
			}
		})
	}
}
