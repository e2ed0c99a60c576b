package sim

import (
	"context"
	"errors"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// hookLimit and shadowLimit are odd times, so that they end with no other.
const (
	hookLimit   = 1937 * time.Millisecond
	shadowLimit = 2129 * time.Millisecond
)

// side is the hooks in force, or those in shadow beside them.
type side struct {
	*world
	script
	shadow bool
}

// name is that of one of its hooks.
func (s side) name(of string) string {
	if s.shadow {
		return of + "'s shadow"
	}
	return of
}

func (s side) has(g hooks.Gate) bool {
	of, ok := s.gates[g]
	return ok && (!s.shadow || of.shadow)
}

func (s side) opts(g hooks.Gate) []hooks.Option {
	out := []hooks.Option{hooks.TimeLimit(hookLimit)}
	if s.shadow {
		out = []hooks.Option{hooks.TimeLimit(shadowLimit), hooks.Shadow()}
	}
	if s.gates[g].pure {
		out = append(out, hooks.Pure())
	}
	return out
}

// ask lets a hook wait for its turn, and draws what it answers: how many of the
// answers of its gate there are is n, and the first is continue.
func (s side) ask(ctx context.Context, g hooks.Gate, subject string, n int) (int, error) {
	w := s.world
	a, of := actorOf(ctx), w.script.gates[g]
	id := hooks.DecisionID(ctx)
	known := a.known // what was recorded when it was asked, not when it gets to answer
	if !w.pause(ctx, &point{actor: a, what: s.name("hook at "+string(g)) + " for " + subject, hook: true, obeys: !of.stubborn}) {
		return 0, context.Canceled
	}
	w.hookAsked(a, g, id, known)
	w.narrow(ctx)
	if !w.src.rarely(12) {
		return 0, nil
	}
	v := w.src.draw(n + 2)
	switch v {
	case n:
		return 0, errors.New("the hook's own trouble")
	case n + 1:
		panic("a hook's bug")
	}
	return v, nil
}

// hooks has those that the script wants.
func (s script) hooks(w *world) hooks.Hooks {
	h := side{w, s, true}.hooks().Then(side{w, s, false}.hooks())
	h.OnRunEnd = func(_ context.Context, in hooks.RunEnd) { w.runEnded(in) }
	return h
}

func (s side) hooks() hooks.Hooks {
	var h hooks.Hooks
	no := hooks.Reason{Code: "no", Text: "not like this"}
	if g := hooks.GateBeforeInput; s.has(g) {
		h.BeforeInput = hooks.Named(s.name("input"), "1", func(ctx context.Context, in hooks.BeforeInput) (hooks.BeforeInputResult, error) {
			v, err := s.ask(ctx, g, in.InputID, 4)
			changed := "as changed: " + in.Text
			return []hooks.BeforeInputResult{
				{Action: hooks.ActionContinue}, {Action: hooks.ActionTransform, Text: &changed},
				{Action: hooks.ActionHandled, Reply: "it is noon"}, {Action: hooks.ActionBlock, Reason: no},
			}[v], err
		}, s.opts(g)...)
	}
	if g := hooks.GateBeforeRunStart; s.has(g) {
		h.BeforeRunStart = hooks.Named(s.name("run"), "1", func(ctx context.Context, in hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			v, err := s.ask(ctx, g, in.RunID, 4)
			return []hooks.BeforeRunStartResult{
				{Action: hooks.ActionContinue}, {Action: hooks.ActionTransform, Append: []hooks.HiddenMessage{{Role: hooks.RoleUser, Text: "by the way"}}},
				{Action: hooks.ActionTransform, Tools: &[]string{"once"}}, {Action: hooks.ActionBlock, Reason: no},
			}[v], err
		}, s.opts(g)...)
	}
	if g := hooks.GateTransformContext; s.has(g) {
		h.TransformContext = hooks.Named(s.name("context"), "1", func(ctx context.Context, in hooks.TransformContext) (hooks.TransformContextResult, error) {
			v, err := s.ask(ctx, g, in.RunID, 3)
			return []hooks.TransformContextResult{
				{Action: hooks.ActionContinue}, {Action: hooks.ActionTransform, Messages: &in.Messages}, {Action: hooks.ActionBlock, Reason: no},
			}[v], err
		}, s.opts(g)...)
	}
	s.toolHooks(&h, no)
	return h
}

func (s side) toolHooks(h *hooks.Hooks, no hooks.Reason) {
	changed, wrong := `{"changed":true}`, true
	if g := hooks.GateBeforeToolCall; s.has(g) {
		h.BeforeToolCall = hooks.Named(s.name("call"), "1", func(ctx context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			v, err := s.ask(ctx, g, in.Call.ID, 5)
			return []hooks.BeforeToolCallResult{
				{Action: hooks.ActionContinue}, {Action: hooks.ActionTransform, Arguments: &changed}, {Action: hooks.ActionAsk, Reason: no},
				{Action: hooks.ActionBlock, Reason: no}, {Action: hooks.ActionTerminate, Reason: no},
			}[v], err
		}, s.opts(g)...)
	}
	if g := hooks.GateBeforeExecute; s.has(g) {
		h.BeforeExecute = hooks.Named(s.name("execute"), "1", func(ctx context.Context, in hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
			v, err := s.ask(ctx, g, in.Call.ID, 2)
			return []hooks.BeforeExecuteResult{{Action: hooks.ActionContinue}, {Action: hooks.ActionBlock, Reason: no}}[v], err
		}, s.opts(g)...)
	}
	if g := hooks.GateAfterToolCall; s.has(g) {
		text := "redacted"
		h.AfterToolCall = hooks.Named(s.name("output"), "1", func(ctx context.Context, in hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
			v, err := s.ask(ctx, g, in.Call.ID, 4)
			return []hooks.AfterToolCallResult{
				{Action: hooks.ActionContinue}, {Action: hooks.ActionTransform, Content: &text}, {Action: hooks.ActionTransform, IsError: &wrong},
				{Action: hooks.ActionWithhold, Reason: no},
			}[v], err
		}, s.opts(g)...)
	}
}
