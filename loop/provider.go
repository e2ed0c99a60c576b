package loop

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"unicode"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// provider is the model of agent as one that speaks HTTP, if it is one and
// there is a hook at a provider gate.
func (r *runner) provider(agent Agent) (ProviderModel, bool) {
	h := r.asks.Hooks
	if h.BeforeProviderHeaders == nil && h.BeforeProviderRequest == nil && h.AfterProviderResponse == nil {
		return nil, false
	}
	model, ok := agent.Model.(ProviderModel)
	return model, ok
}

// asksRequest reports whether a hook is asked before the model of agent is
// sent anything.
func (r *runner) asksRequest(agent Agent) bool {
	h := r.asks.Hooks
	if h.BeforeProviderHeaders == nil && h.BeforeProviderRequest == nil {
		return false
	}
	_, ok := agent.Model.(ProviderModel)
	return ok
}

// passProvider asks the gates about the HTTP request of the call, before
// anything of it is announced or sent. It leaves the request in r.context.
func (r *runner) passProvider(ctx context.Context, agent Agent, turn, attempt int) (decisions []hooks.Decision, blocked *hooks.Reason, err error) {
	model, ok := r.provider(agent)
	if !ok {
		return nil, nil, nil
	}
	p, err := written(model, r.modelRequest(agent, turn, attempt))
	if err != nil {
		// The call must not go out by a way that asks nobody.
		r.context.broken = err
		return nil, nil, nil
	}
	at := func(g hooks.Gate) hooks.Position { return r.position(g, turn, r.callOf(turn), attempt) }
	headers, err := askOnce(ctx, r, r.asks.Hooks.BeforeProviderHeaders, at(hooks.GateBeforeProviderHeaders),
		hooks.BeforeProviderHeaders{RunRef: r.ref(), Turn: turn, Attempt: attempt, Model: agent.ModelName, Headers: p.Headers}, nil)
	if err != nil {
		return nil, nil, err
	}
	decisions = headers.decisions
	if headers.verdict.Action == hooks.ActionBlock {
		return decisions, &headers.verdict.Reason, nil
	}
	body, err := askOnce(ctx, r, r.asks.Hooks.BeforeProviderRequest, at(hooks.GateBeforeProviderRequest),
		hooks.BeforeProviderRequest{RunRef: r.ref(), Turn: turn, Attempt: attempt, Model: agent.ModelName, Body: p.Body}, nil)
	if err != nil {
		return nil, nil, err
	}
	decisions = append(decisions[:len(decisions):len(decisions)], body.decisions...)
	if body.verdict.Action == hooks.ActionBlock {
		return decisions, &body.verdict.Reason, nil
	}
	r.context.provider = &ProviderRequest{Headers: headers.verdict.Value.Headers, Body: body.verdict.Value.Body}
	r.context.values = newValues(p.Headers, headers.verdict.Value.Headers)
	return decisions, nil, nil
}

// minValue is how long a header's value must be to be taken for a secret: what
// is shorter is in many texts.
const minValue = 8

// newValues finds the values, and the words in them, that hooks have set.
func newValues(before, after []hooks.Header) *strings.Replacer {
	var found []string
	for _, h := range after {
		if slices.Contains(before, h) {
			continue
		}
		for _, s := range append(strings.Fields(h.Value), h.Value) {
			if len(s) >= minValue {
				found = append(found, s)
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	// The longest first: one may be in another.
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(found))
	for _, s := range found {
		pairs = append(pairs, s, "[header]")
	}
	return strings.NewReplacer(pairs...)
}

// withoutValues takes the values of headers that hooks have set out of a text
// of the provider, which may repeat them when it refuses them.
func (c modelCall) withoutValues(text string) string {
	if c.values == nil {
		return text
	}
	return c.values.Replace(text)
}

// written lets the model write a call down. A panic in it fails the call and
// not the worker.
func written(model ProviderModel, req ModelRequest) (p ProviderRequest, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
	}()
	return model.Request(req)
}

// panicked is that an adapter has panicked. What with is told only where the
// runtime says it: other values may hold what the model wrote.
func panicked(v any) error {
	why := fmt.Sprintf("a %T", v)
	if e, ok := v.(runtime.Error); ok {
		why = e.Error()
	}
	return fmt.Errorf("model panicked with %s\n%s", why, debug.Stack())
}

func (r *runner) modelRequest(agent Agent, turn, attempt int) ModelRequest {
	return ModelRequest{
		Model: agent.ModelName, System: r.context.system, Messages: r.context.messages, Tools: specs(r.context.tools),
		SessionID: r.job.SessionID, RunID: r.job.RunID, Turn: turn, Attempt: attempt,
	}
}

// stream prepares the call; the adapter is entered when the sequence is
// read.
func (r *runner) stream(ctx context.Context, t Turn, ans *answer) iter.Seq2[stream.Chunk, error] {
	agent, call := r.agent(), r.context
	req := r.modelRequest(agent, t.No, t.Attempt)
	received := r.received(t, ans)
	return func(yield func(stream.Chunk, error) bool) {
		switch {
		case call.broken != nil:
			yield(stream.Chunk{}, call.broken)
		case call.provider != nil:
			agent.Model.(ProviderModel).Send(ctx, req, *call.provider, received)(yield)
		default:
			agent.Model.Stream(ctx, req)(yield)
		}
	}
}

var (
	// errRefused ends a call whose answer a hook does not want read.
	errRefused = errors.New("a hook refused the provider's answer")
	// errReceivedTwice is a bug of the adapter: the answer to a position was
	// given.
	errReceivedTwice = errors.New("the model reported the beginning of its answer twice")
)

// received asks AfterProviderResponse. The adapter calls it from where it
// reads, so it works on copies; ans takes what comes of it.
func (r *runner) received(t Turn, ans *answer) func(context.Context, ProviderResponse) error {
	h := r.asks.Hooks.AfterProviderResponse
	if h == nil {
		return nil
	}
	call := r.context
	p := r.position(hooks.GateAfterProviderResponse, t.No, r.callOf(t.No), t.Attempt)
	in := hooks.AfterProviderResponse{RunRef: r.ref(), Turn: t.No, Attempt: t.Attempt, Model: t.Model}
	return func(ctx context.Context, resp ProviderResponse) error {
		if in.Headers != nil {
			return errReceivedTwice
		}
		in.Status, in.Headers = resp.Status, visibleHeaders(resp.Headers, call)
		v, decisions, err := hooks.Ask(ctx, r.asks.Asker, h, p, in, nil)
		if err != nil {
			return err
		}
		if v.Action != hooks.ActionBlock {
			ans.decided(decisions, nil)
			return nil
		}
		ans.decided(decisions, &v.Reason)
		return errRefused
	}
}

// visibleHeaders is what hooks see of the header of the answer to call: bounded
// text without control characters, without cookies, and without what hooks have
// set.
func visibleHeaders(headers []hooks.Header, call modelCall) []hooks.Header {
	out := make([]hooks.Header, 0, len(headers))
	for _, h := range headers {
		if strings.EqualFold(h.Name, "Set-Cookie") || len(h.Name) > hooks.MaxHeaderName {
			continue
		}
		if len(out) == hooks.MaxHeaders {
			break
		}
		value := strings.Map(visible, strings.ToValidUTF8(call.withoutValues(h.Value), "\uFFFD"))
		out = append(out, hooks.Header{Name: h.Name, Value: event.Shorten(value, hooks.MaxHeaderValue)})
	}
	return out
}

func visible(r rune) rune {
	if unicode.IsControl(r) && r != '\t' {
		return unicode.ReplacementChar
	}
	return r
}
