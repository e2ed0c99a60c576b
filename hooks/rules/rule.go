package rules

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// Rule is who a rule of a [Set] is and how it is asked.
type Rule struct {
	ID          string
	Description string
	Gate        hooks.Gate
	Phase       hooks.Phase
	// Action is the key of what it does, such as block or redact.
	Action string
	// When is its condition as it was written, "" if it always holds.
	When  string
	Scope hooks.Scope
	// OnFailure is what becomes of what it is asked about when it fails.
	OnFailure hooks.FailurePolicy
	TimeLimit time.Duration
	// Shadow says that it is only tried: see [hooks.Shadow].
	Shadow bool
	// Digest is the SHA-256 of the rule in hex, without its examples, whether it
	// is a shadow, and whatever stands between its words; Version is the
	// beginning of it. So a rule that is put in force is the one that was tried.
	Version, Digest string
	// Pure is false if the rule looks at the time, or into a time zone.
	Pure bool
	// File and Line are where it stands.
	File string
	Line int
}

// rule is one that is ready to be asked.
type rule struct {
	Rule
	gate        *gate
	when        *program
	action      action
	code        string
	config      string
	impure      bool
	expressions int
	examples    []*example
}

// readRule makes a rule of a node. It returns nil if something is wrong with
// it, and has noted what.
func (s *source) readRule(n *yaml.Node) *rule {
	r := &rule{Rule: Rule{File: s.Name, Line: n.Line, TimeLimit: hooks.DefaultTimeLimit}}
	if n.Kind != yaml.MappingNode {
		s.ErrorAt(n, "expected a rule as a mapping with id, gate and what it does, not %s", yamlfile.KindOf(n))
		return nil
	}
	before := s.Problems().Count()
	// The rest means something else at another gate.
	i := slices.IndexFunc(n.Content, func(n *yaml.Node) bool { return n.Value == "gate" })
	if i < 0 || i%2 == 1 {
		s.ErrorAt(n, "the rule has no gate; expected one of %s", strings.Join(gateNames(), ", "))
		return nil
	}
	if r.gate = gateNamed(s.Word(n.Content[i+1], "gate", gateNames()...)); r.gate == nil {
		return nil
	}
	r.Gate = r.gate.name
	c := &compiler{source: s, gate: r.gate, rule: r}
	c.rule.OnFailure = hooks.FailClosed
	if r.Gate == hooks.GateAfterProviderResponse {
		r.OnFailure = hooks.FailOpen
	}
	s.Fields(n, "a rule", c.keys())
	c.finish(n)
	if s.Problems().Count() > before {
		return nil
	}
	config := s.plain(n)
	config.object.members = slices.DeleteFunc(config.object.members, func(m member) bool { return m.name == "examples" || m.name == "shadow" })
	r.config = config.String()
	sum := sha256.Sum256([]byte(r.config))
	r.Digest = hex.EncodeToString(sum[:])
	r.Version, r.Pure = r.Digest[:12], !r.impure
	return r
}

// keys are those of a rule.
func (c *compiler) keys() map[string]func(*yaml.Node) {
	r := c.rule
	known := map[string]func(*yaml.Node){
		"id":          func(n *yaml.Node) { r.ID = c.Identifier(n, "id") },
		"description": func(n *yaml.Node) { r.Description, _ = c.Text(n, "description") },
		"gate":        func(*yaml.Node) {},
		"phase": func(n *yaml.Node) {
			r.Phase = hooks.Phase(c.Word(n, "phase", string(hooks.PhaseMutate), string(hooks.PhaseValidate)))
		},
		"agents":  func(n *yaml.Node) { r.Scope.Agents = c.Globs(n, "agents") },
		"tenants": func(n *yaml.Node) { r.Scope.Tenants = c.Globs(n, "tenants") },
		"tools": func(n *yaml.Node) {
			if !c.gate.call {
				c.ErrorAt(n, "%s is about no tool call, so it has no tools", c.gate.name)
				return
			}
			r.Scope.Tools = c.Globs(n, "tools")
		},
		"when": func(n *yaml.Node) { r.When, r.when = n.Value, c.condition(n) },
		"code": func(n *yaml.Node) { r.code = c.Identifier(n, "code") },
		"on_failure": func(n *yaml.Node) {
			r.OnFailure = hooks.FailurePolicy(c.Word(n, "on_failure", string(hooks.FailClosed), string(hooks.FailOpen)))
		},
		"timeout":  func(n *yaml.Node) { r.TimeLimit = c.Duration(n, "timeout", minTimeLimit, MaxTimeLimit) },
		"shadow":   func(n *yaml.Node) { r.Shadow = c.Boolean(n, "shadow") },
		"examples": func(n *yaml.Node) { r.examples = c.examples(n, r.gate) },
	}
	for _, key := range actions {
		known[key] = func(n *yaml.Node) {
			switch {
			case !slices.Contains(c.gate.actions, key):
				c.ErrorAt(n, "%s cannot %s; expected one of %s", c.gate.name, key, strings.Join(c.gate.actions, ", "))
			case r.Action != "":
				c.ErrorAt(n, "the rule has %s and %s; expected one of them", r.Action, key)
			default:
				r.action = c.action(key, n)
			}
			r.Action = key
		}
	}
	return known
}

// finish fills in what the rule does not say, and refuses what does not go
// together.
func (c *compiler) finish(n *yaml.Node) {
	r := c.rule
	changes := r.Action == doTransform || r.Action == doRedact
	switch {
	case !slices.ContainsFunc(n.Content, func(n *yaml.Node) bool { return n.Value == "id" }):
		c.ErrorAt(n, "the rule has no id")
	case r.Action == "":
		c.ErrorAt(n, "the rule does nothing; expected one of %s", strings.Join(c.gate.actions, ", "))
	case changes && r.Phase == hooks.PhaseValidate:
		c.ErrorAt(n, "the rule changes something, which phase validate may not; expected phase mutate")
	}
	if r.Phase == "" {
		r.Phase = hooks.PhaseValidate
		if changes {
			r.Phase = hooks.PhaseMutate
		}
	}
	if r.code == "" {
		r.code = "rule." + r.Action
	}
}

// decide asks the rule.
func (r *rule) decide(ctx context.Context, v *vars) (said, error) {
	none := said{action: hooks.ActionContinue}
	if err := v.check(); err != nil {
		return none, err
	}
	if r.when != nil {
		out, err := r.when.eval(ctx, v)
		if err != nil {
			return none, err
		}
		holds, ok := out.(types.Bool)
		if !ok {
			return none, r.when.fail(fmt.Errorf("when is of type %s; expected true or false", out.Type().TypeName()))
		}
		if !holds {
			return none, nil
		}
	}
	out := said{reason: hooks.Reason{Code: r.code, Rule: r.ID}}
	if err := r.action.do(ctx, v, &out); err != nil {
		return none, err
	}
	return out, nil
}

// options are how the rule is registered.
func (r *rule) options() []hooks.Option {
	opts := []hooks.Option{
		hooks.OfKind(hooks.KindRule), hooks.InPhase(r.Phase), hooks.TimeLimit(r.TimeLimit),
		hooks.WithDigest(r.Digest), hooks.WithConfig(r.config), hooks.OnFailureClosed(),
	}
	if r.OnFailure == hooks.FailOpen {
		opts = append(opts, hooks.OnFailureOpen())
	}
	if r.Action == doRedact {
		opts = append(opts, hooks.Redacting())
	}
	if r.Pure {
		opts = append(opts, hooks.Pure())
	}
	if r.Shadow {
		opts = append(opts, hooks.Shadow())
	}
	if s := r.Scope; len(s.Tools)+len(s.Agents)+len(s.Tenants) > 0 {
		opts = append(opts, hooks.Only(s))
	}
	return opts
}
