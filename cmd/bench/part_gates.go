package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
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
	// funcs are n pure Go hooks.
	funcs func(n int) hooks.Hooks
	// plain is one that is not pure and has no name, as people write them. It does
	// something before it goes on.
	plain func(do func()) hooks.Hooks
	// question is what a plugin is asked, as ask does.
	question func() *pluginv1.EvaluateRequest
	// when is a condition that looks at what the gate is about, and refuse what
	// a rule would do if it held.
	when, refuse string
	// inRuns says that the reference run passes the gate.
	inRuns bool
}

// gateCases are in the order in which a run passes them.
var gateCases = []gateCase{
	atGate(
		wire.BeforeInput, func(h *hooks.Hooks) *hooks.BeforeInputFunc { return &h.BeforeInput },
		hooks.BeforeInput{TenantID: tenantID, SessionID: askedRun.SessionID, Agent: agentName, Text: userText},
		hooks.BeforeInputResult{Action: hooks.ActionContinue},
	).ruled(`text.contains("zebra")`, "block", true),
	atGate(
		wire.BeforeRunStart, func(h *hooks.Hooks) *hooks.BeforeRunStartFunc { return &h.BeforeRunStart },
		hooks.BeforeRunStart{RunRef: askedRun, System: "Answer briefly.", Messages: askedMessages, Tools: []string{toolName}},
		hooks.BeforeRunStartResult{Action: hooks.ActionContinue},
	).ruled(`system.contains("zebra")`, "block", true),
	atGate(
		wire.TransformContext, func(h *hooks.Hooks) *hooks.TransformContextFunc { return &h.TransformContext },
		hooks.TransformContext{RunRef: askedRun, Turn: 1, Attempt: 1, Messages: askedMessages},
		hooks.TransformContextResult{Action: hooks.ActionContinue},
	).ruled(`messages.exists(m, m.text.contains("zebra"))`, "block", true),
	atGate(
		wire.BeforeProviderHeaders, func(h *hooks.Hooks) *hooks.BeforeProviderHeadersFunc { return &h.BeforeProviderHeaders },
		hooks.BeforeProviderHeaders{RunRef: askedRun, Turn: 1, Attempt: 1, Model: modelName, Headers: askedHeaders},
		hooks.BeforeProviderHeadersResult{Action: hooks.ActionContinue},
	).ruled(`"Zebra" in headers`, "block", false),
	atGate(
		wire.BeforeProviderRequest, func(h *hooks.Hooks) *hooks.BeforeProviderRequestFunc { return &h.BeforeProviderRequest },
		hooks.BeforeProviderRequest{RunRef: askedRun, Turn: 1, Attempt: 1, Model: modelName, Body: askedBody},
		hooks.BeforeProviderRequestResult{Action: hooks.ActionContinue},
	).ruled("has(body.zebra)", "block", false),
	atGate(
		wire.AfterProviderResponse, func(h *hooks.Hooks) *hooks.AfterProviderResponseFunc { return &h.AfterProviderResponse },
		hooks.AfterProviderResponse{RunRef: askedRun, Turn: 1, Attempt: 1, Model: modelName, Status: 200, Headers: askedHeaders},
		hooks.AfterProviderResponseResult{Action: hooks.ActionContinue},
	).ruled("status == 418", "block", false),
	atGate(
		wire.BeforeToolCall, func(h *hooks.Hooks) *hooks.BeforeToolCallFunc { return &h.BeforeToolCall },
		hooks.BeforeToolCall{RunRef: askedRun, Turn: 1, Revision: 1, Call: askedCall},
		hooks.BeforeToolCallResult{Action: hooks.ActionContinue},
	).ruled(`call.arguments.city == "Zebra"`, "block", true),
	atGate(
		wire.BeforeExecute, func(h *hooks.Hooks) *hooks.BeforeExecuteFunc { return &h.BeforeExecute },
		hooks.BeforeExecute{RunRef: askedRun, Turn: 1, Attempt: 1, Call: askedCall},
		hooks.BeforeExecuteResult{Action: hooks.ActionContinue},
	).ruled(`call.arguments.city == "Zebra"`, "block", true),
	atGate(
		wire.AfterToolCall, func(h *hooks.Hooks) *hooks.AfterToolCallFunc { return &h.AfterToolCall },
		hooks.AfterToolCall{RunRef: askedRun, Turn: 1, Attempt: 1, Call: askedCall, Content: toolResult},
		hooks.AfterToolCallResult{Action: hooks.ActionContinue},
	).ruled(`content.contains("zebra")`, "withhold", true),
}

// atGate is a gate whose hooks are in the field, are asked about in and answer
// goOn.
func atGate[In hooks.Input[In, Out], Out hooks.Result](c wire.Codec[In, Out], field func(*hooks.Hooks) *hooks.Func[In, Out], in In, goOn Out) gateCase {
	with := func(f hooks.Func[In, Out]) (h hooks.Hooks) {
		*field(&h) = f
		return h
	}
	return gateCase{
		gate: c.Gate, question: func() *pluginv1.EvaluateRequest { return c.Ask(in) },
		ask:   func(ctx context.Context, a *hooks.Asker, h hooks.Hooks) error { return askOnce(ctx, a, *field(&h), in) },
		funcs: func(n int) hooks.Hooks { return with(passes[In](n, goOn)) },
		plain: func(do func()) hooks.Hooks {
			return with(func(context.Context, In) (Out, error) {
				do()
				return goOn, nil
			})
		},
	}
}

func (g gateCase) ruled(when, refuse string, inRuns bool) gateCase {
	g.when, g.refuse, g.inRuns = when, refuse, inRuns
	return g
}

// What is asked about where no run asks: of the sizes of the reference run.
var (
	askedRun = hooks.RunRef{
		TenantID: tenantID, SessionID: "019ad2b0-9d3c-7b52-8f3e-5f0f5a6c1d2e", RunID: "019ad2b0-9d3d-7c10-9a41-0c6e7b8d9f01", Agent: agentName,
	}
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
