package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/rules"
)

const (
	partGates = "gates"
	asking    = "one asking"
	allocs    = "allocations"
)

// gateCase is a gate with everything that asks it: what hooks cost is what it
// takes to ask them, when they have no objection.
type gateCase struct {
	gate hooks.Gate
	// ask asks the gate's hooks once.
	ask func(ctx context.Context, a *hooks.Asker, h hooks.Hooks) error
	// funcs are n Go hooks.
	funcs func(n int) hooks.Hooks
	// when is a condition that looks at what the gate is about, and refuse what
	// a rule would do if it held.
	when, refuse string
	// inRuns says that the reference run passes the gate.
	inRuns bool
}

// gateCases are in the order in which a run passes them.
var gateCases = []gateCase{
	{
		gate: hooks.GateBeforeInput, when: `text.contains("zebra")`, refuse: "block", inRuns: true,
		ask: func(ctx context.Context, a *hooks.Asker, h hooks.Hooks) error {
			return askOnce(ctx, a, h.BeforeInput, hooks.BeforeInput{Text: userText})
		},
		funcs: func(n int) hooks.Hooks {
			return hooks.Hooks{BeforeInput: passes[hooks.BeforeInput](n, hooks.BeforeInputResult{Action: hooks.ActionContinue})}
		},
	},
	{
		gate: hooks.GateBeforeRunStart, when: `system.contains("zebra")`, refuse: "block", inRuns: true,
		ask: func(ctx context.Context, a *hooks.Asker, h hooks.Hooks) error {
			return askOnce(ctx, a, h.BeforeRunStart, hooks.BeforeRunStart{System: "Answer briefly.", Messages: askedMessages, Tools: []string{toolName}})
		},
		funcs: func(n int) hooks.Hooks {
			return hooks.Hooks{BeforeRunStart: passes[hooks.BeforeRunStart](n, hooks.BeforeRunStartResult{Action: hooks.ActionContinue})}
		},
	},
	{
		gate: hooks.GateTransformContext, when: `messages.exists(m, m.text.contains("zebra"))`, refuse: "block", inRuns: true,
		ask: func(ctx context.Context, a *hooks.Asker, h hooks.Hooks) error {
			return askOnce(ctx, a, h.TransformContext, hooks.TransformContext{Turn: 1, Attempt: 1, Messages: askedMessages})
		},
		funcs: func(n int) hooks.Hooks {
			return hooks.Hooks{TransformContext: passes[hooks.TransformContext](n, hooks.TransformContextResult{Action: hooks.ActionContinue})}
		},
	},
	{
		gate: hooks.GateBeforeProviderHeaders, when: `"Zebra" in headers`, refuse: "block",
		ask: func(ctx context.Context, a *hooks.Asker, h hooks.Hooks) error {
			return askOnce(ctx, a, h.BeforeProviderHeaders, hooks.BeforeProviderHeaders{Turn: 1, Attempt: 1, Model: modelName, Headers: askedHeaders})
		},
		funcs: func(n int) hooks.Hooks {
			return hooks.Hooks{BeforeProviderHeaders: passes[hooks.BeforeProviderHeaders](n, hooks.BeforeProviderHeadersResult{Action: hooks.ActionContinue})}
		},
	},
	{
		gate: hooks.GateBeforeProviderRequest, when: "has(body.zebra)", refuse: "block",
		ask: func(ctx context.Context, a *hooks.Asker, h hooks.Hooks) error {
			return askOnce(ctx, a, h.BeforeProviderRequest, hooks.BeforeProviderRequest{Turn: 1, Attempt: 1, Model: modelName, Body: askedBody})
		},
		funcs: func(n int) hooks.Hooks {
			return hooks.Hooks{BeforeProviderRequest: passes[hooks.BeforeProviderRequest](n, hooks.BeforeProviderRequestResult{Action: hooks.ActionContinue})}
		},
	},
	{
		gate: hooks.GateAfterProviderResponse, when: "status == 418", refuse: "block",
		ask: func(ctx context.Context, a *hooks.Asker, h hooks.Hooks) error {
			return askOnce(ctx, a, h.AfterProviderResponse, hooks.AfterProviderResponse{Turn: 1, Attempt: 1, Model: modelName, Status: 200, Headers: askedHeaders})
		},
		funcs: func(n int) hooks.Hooks {
			return hooks.Hooks{AfterProviderResponse: passes[hooks.AfterProviderResponse](n, hooks.AfterProviderResponseResult{Action: hooks.ActionContinue})}
		},
	},
	{
		gate: hooks.GateBeforeToolCall, when: `call.arguments.city == "Zebra"`, refuse: "block", inRuns: true,
		ask: func(ctx context.Context, a *hooks.Asker, h hooks.Hooks) error {
			return askOnce(ctx, a, h.BeforeToolCall, hooks.BeforeToolCall{Turn: 1, Revision: 1, Call: askedCall})
		},
		funcs: func(n int) hooks.Hooks {
			return hooks.Hooks{BeforeToolCall: passes[hooks.BeforeToolCall](n, hooks.BeforeToolCallResult{Action: hooks.ActionContinue})}
		},
	},
	{
		gate: hooks.GateBeforeExecute, when: `call.arguments.city == "Zebra"`, refuse: "block", inRuns: true,
		ask: func(ctx context.Context, a *hooks.Asker, h hooks.Hooks) error {
			return askOnce(ctx, a, h.BeforeExecute, hooks.BeforeExecute{Turn: 1, Attempt: 1, Call: askedCall})
		},
		funcs: func(n int) hooks.Hooks {
			return hooks.Hooks{BeforeExecute: passes[hooks.BeforeExecute](n, hooks.BeforeExecuteResult{Action: hooks.ActionContinue})}
		},
	},
	{
		gate: hooks.GateAfterToolCall, when: `content.contains("zebra")`, refuse: "withhold", inRuns: true,
		ask: func(ctx context.Context, a *hooks.Asker, h hooks.Hooks) error {
			return askOnce(ctx, a, h.AfterToolCall, hooks.AfterToolCall{Turn: 1, Attempt: 1, Call: askedCall, Content: toolResult})
		},
		funcs: func(n int) hooks.Hooks {
			return hooks.Hooks{AfterToolCall: passes[hooks.AfterToolCall](n, hooks.AfterToolCallResult{Action: hooks.ActionContinue})}
		},
	},
}

// What is asked about where no run asks: of the sizes of the reference run.
var (
	askedMessages = []hooks.Message{{Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: userText}}}}
	askedCall     = hooks.ToolCall{ID: "call", Name: toolName, Arguments: toolArguments}
	askedHeaders  = []hooks.Header{{Name: "Accept", Value: "text/event-stream"}, {Name: "Content-Type", Value: "application/json"}}
	askedBody     = `{"model":"bench","stream":true,"messages":[{"role":"system","content":"Answer briefly."},{"role":"user","content":"` + userText + `"}]}`
)

func askOnce[In hooks.Input[In, Out], Out hooks.Result](ctx context.Context, a *hooks.Asker, f hooks.Func[In, Out], in In) error {
	verdict, _, err := hooks.Ask(ctx, a, f, hooks.Position{}, in, nil)
	if err == nil && verdict.Action != hooks.ActionContinue {
		err = fmt.Errorf("the hooks do not let it pass: %s, %s", verdict.Action, verdict.Reason.Text)
	}
	return err
}

// rules are n of them, each a hook.
func (g gateCase) rules(n int) (hooks.Hooks, error) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range n {
		fmt.Fprintf(&text, "  - {id: bench-%d, gate: %s, when: '%s', %s: no zebras}\n", i+1, g.gate, g.when, g.refuse)
	}
	set, err := rules.Parse([]rules.File{{Name: "bench.yaml", Text: []byte(text.String())}})
	if err != nil {
		return hooks.Hooks{}, err
	}
	return set.Hooks(), nil
}

// asked is a kind of hooks whose cost is measured at each gate.
type asked struct {
	name  string
	hooks hooks.Hooks
}

// kinds are what is compared at a gate, nothing first. The function lets go of
// connections to r.
func (b *bench) kinds(g gateCase, r *receiver) (_ []asked, free func(), err error) {
	list := []asked{{name: "0 hooks"}}
	for _, n := range b.gateFuncs {
		list = append(list, asked{fmt.Sprintf("%d Go", n), g.funcs(n)})
	}
	for _, n := range b.gateRules {
		h, err := g.rules(n)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, asked{fmt.Sprintf("%d rules", n), h})
	}
	w, err := r.webhook(g.gate, b.gatesAt)
	if err != nil {
		return nil, nil, err
	}
	return append(list, asked{"1 webhook", w.Hooks()}), w.Close, nil
}

// measureGates measures what it costs to ask at each gate, and what that makes
// of the rate of runs.
func (b *bench) measureGates(ctx context.Context) (err error) {
	defer func(s sizes) { b.sizes = s }(b.sizes)
	r, err := startReceiver(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	b.time, b.warm = b.time/2, b.warm/2
	if _, err := b.runRate(ctx, hooks.Hooks{}); err != nil { // the first is slower than the others
		return err
	}
	for _, g := range gateCases {
		if err := b.measureGate(ctx, g, r); err != nil {
			return err
		}
	}
	return nil
}

// measureGate compares with runs without hooks, right before those with them.
func (b *bench) measureGate(ctx context.Context, g gateCase, r *receiver) error {
	kinds, free, err := b.kinds(g, r)
	if err != nil {
		return err
	}
	defer free()
	name := func(k asked) string { return string(g.gate) + " " + k.name }
	for _, k := range kinds {
		if err := b.addAsking(ctx, g, name(k), k.hooks); err != nil {
			return fmt.Errorf("%s: %w", name(k), err)
		}
	}
	if !g.inRuns {
		return nil
	}
	for i, k := range kinds {
		perSec, err := b.runRate(ctx, k.hooks)
		if err != nil {
			return fmt.Errorf("%s: %w", name(k), err)
		}
		b.add(partGates, name(k), rate, perSecond, perSec)
		if i > 0 {
			b.addRatio(partGates, name(k), vsNone, perSec, b.last(partGates, name(kinds[0]), rate))
		}
	}
	return nil
}

// addAsking measures asking alone: no run, no row.
func (b *bench) addAsking(ctx context.Context, g gateCase, item string, h hooks.Hooks) error {
	asker := &hooks.Asker{HookSet: h.Set().Digest}
	if err := g.ask(ctx, asker, h); err != nil { // the first one is not like the others
		return err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	from, n := time.Now(), 0
	for ; n == 0 || time.Since(from) < b.time/4; n++ {
		for range askedAtOnce {
			if err := g.ask(ctx, asker, h); err != nil {
				return err
			}
		}
	}
	took := time.Since(from)
	runtime.ReadMemStats(&after)
	asked := float64(n * askedAtOnce)
	b.add(partGates, item, asking, "µs", float64(took.Nanoseconds())/1000/asked)
	b.add(partGates, item, allocs, "", float64(after.Mallocs-before.Mallocs)/asked)
	return nil
}

// askedAtOnce keeps the clock out of what it measures.
const askedAtOnce = 10

// runRate is how many reference runs there are in a second.
func (b *bench) runRate(ctx context.Context, h hooks.Hooks) (float64, error) {
	_, url, ids, err := b.seeded(ctx, b.pg, b.gatesAt)
	if err != nil {
		return 0, err
	}
	done, err := playRuns(ctx, stackConfig{url: url, model: instantModel{}, hooks: h}, ids, b.gatesAt, b.warm, b.time)
	return done.rate, err
}
