package pluginhost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"sync"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// Caller calls the plugins of one generation. Who has acquired the generation may use
// it until he releases that. It is safe for concurrent use.
type Caller struct {
	service *Service
	plugins []*called
}

// called is a plugin with what bounds the calls of its hooks.
type called struct {
	*Plugin
	service *Service
	slots   *slots

	define  sync.Once
	own     []definition
	compile sync.Once
	rules   []stream.Registration
}

// Hooks are the gates at which the plugins are asked, in the order in which they were
// discovered: each with the plugin's id, version and the digest of its bundle, in the
// phase and about what it has subscribed to. At other gates the field is nil.
//
// A plugin that was never up in this generation, so that nobody knows what it would
// be asked, is asked at every gate, where it is unavailable. What it has subscribed to,
// and which rules it has, is known once it is up: the hooks are other ones then, see
// [Config.Changed]. These here stay closed, since who has them has none of its rules.
func (c *Caller) Hooks() hooks.Hooks {
	var h hooks.Hooks
	for _, p := range c.plugins {
		h = h.Then(p.hooks())
	}
	return h
}

// Only is [Caller.Hooks] of one plugin of the generation, for who wants to know at
// which gates it is asked.
func (c *Caller) Only(one *Plugin) hooks.Hooks {
	for _, p := range c.plugins {
		if p.Plugin == one {
			return p.hooks()
		}
	}
	return hooks.Hooks{}
}

// allGates are those of a plugin of which nobody knows at which it is asked.
var allGates = func() []*pluginv1.Subscription {
	var all []*pluginv1.Subscription
	for g := pluginv1.Gate_GATE_BEFORE_INPUT; wire.GateOf(g) != ""; g++ {
		all = append(all, &pluginv1.Subscription{Gate: g, Phase: pluginv1.Phase_PHASE_MUTATE})
	}
	return all
}()

func (p *called) hooks() hooks.Hooks {
	subscriptions, ask := allGates, p.unknown
	if a := p.Answer(); a != nil {
		subscriptions, ask = a.GetSubscriptions(), p.evaluate
	}
	var h hooks.Hooks
	for _, s := range subscriptions {
		switch wire.GateOf(s.GetGate()) {
		case hooks.GateBeforeInput:
			h.BeforeInput = at(p, ask, s, wire.BeforeInput)
		case hooks.GateBeforeRunStart:
			h.BeforeRunStart = at(p, ask, s, wire.BeforeRunStart)
		case hooks.GateTransformContext:
			h.TransformContext = at(p, ask, s, wire.TransformContext)
		case hooks.GateBeforeProviderHeaders:
			h.BeforeProviderHeaders = at(p, ask, s, wire.BeforeProviderHeaders)
		case hooks.GateBeforeProviderRequest:
			h.BeforeProviderRequest = at(p, ask, s, wire.BeforeProviderRequest)
		case hooks.GateAfterProviderResponse:
			h.AfterProviderResponse = at(p, ask, s, wire.AfterProviderResponse)
		case hooks.GateBeforeToolCall:
			h.BeforeToolCall = at(p, ask, s, wire.BeforeToolCall)
		case hooks.GateBeforeExecute:
			h.BeforeExecute = at(p, ask, s, wire.BeforeExecute)
		case hooks.GateAfterToolCall:
			h.AfterToolCall = at(p, ask, s, wire.AfterToolCall)
		case hooks.GateOnChunk, hooks.GateOnEnd: // no plugin sees a chunk
		}
	}
	return h
}

// question asks a plugin; its answer has at most limit bytes.
type question func(ctx context.Context, q *pluginv1.EvaluateRequest, limit int) (*pluginv1.EvaluateResponse, error)

// at makes the hook of one gate.
func at[In hooks.Input[In, Out], Out hooks.Result](p *called, ask question, s *pluginv1.Subscription, c wire.Codec[In, Out]) hooks.Func[In, Out] {
	return hooks.Named(p.ID(), p.Version(), func(ctx context.Context, in In) (Out, error) {
		var none Out
		q := c.Ask(in)
		q.DecisionId = hooks.DecisionID(ctx)
		a, err := ask(ctx, q, wire.MaxAnswer(c.Gate))
		if err != nil {
			return none, err
		}
		out, err := c.Answered(a)
		if err != nil {
			return none, own(err)
		}
		return out, nil
	}, p.options(s)...)
}

// options are what the plugin has subscribed with.
func (p *called) options(s *pluginv1.Subscription) []hooks.Option {
	out := []hooks.Option{
		hooks.OfKind(hooks.KindPlugin), hooks.WithDigest(p.Digest()), hooks.QueueLimit(queueTime), hooks.WithConfig(p.described()),
	}
	if s.GetPhase() == pluginv1.Phase_PHASE_VALIDATE {
		out = append(out, hooks.InPhase(hooks.PhaseValidate))
	}
	only := hooks.Scope{Tenants: s.GetTenants(), Agents: s.GetAgents(), Tools: s.GetTools()}
	if len(only.Tenants)+len(only.Agents)+len(only.Tools) > 0 {
		only = hooks.Scope{Tenants: slices.Clone(only.Tenants), Agents: slices.Clone(only.Agents), Tools: slices.Clone(only.Tools)}
		out = append(out, hooks.Only(only))
	}
	if s.GetRedacting() {
		out = append(out, hooks.Redacting())
	}
	if s.GetFailClosed() {
		out = append(out, hooks.OnFailureClosed())
	}
	return out
}

// described is what of the manifest stands in the hook set: no config, which may hold
// secrets, but its digest.
func (p *called) described() string {
	config := ""
	if p.bundle.Config != nil {
		sum := sha256.Sum256(p.bundle.Config)
		config = "sha256:" + hex.EncodeToString(sum[:])
	}
	text, _ := json.Marshal(struct {
		Concurrency int    `json:"concurrency"`
		Queue       int    `json:"queue"`
		SDK         string `json:"sdk,omitempty"`
		Config      string `json:"config,omitempty"`
	}{concurrency, queue, p.Answer().GetSdk(), config}) // such a struct always has a JSON form
	return string(text)
}
