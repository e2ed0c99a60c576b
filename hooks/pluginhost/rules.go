package pluginhost

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/hooks/stream/builtin"
)

// Observers carry out the stream rules of the plugins, in the order in which those
// were discovered, and of one plugin in the order in which it has told them: each
// with the plugin's version and the digest of its bundle. They know nothing of
// processes, so they act also while a plugin is down.
//
// A plugin that was never up in this generation has none that anybody knows. No model
// is asked then: see [Caller.Hooks].
func (c *Caller) Observers() []stream.Registration {
	var all []stream.Registration
	for _, p := range c.plugins {
		all = append(all, p.observers()...)
	}
	return all
}

// observers are known once the plugin was up.
func (p *called) observers() []stream.Registration {
	a := p.Answer()
	if a == nil {
		return nil
	}
	p.compile.Do(func() {
		// It was greeted, so there is nothing wrong with them.
		p.rules, _ = compileRules(p.ID(), a.GetStreamRules())
		for i := range p.rules {
			p.rules[i].Version, p.rules[i].Digest = p.Version(), p.Digest()
		}
	})
	return p.rules
}

const (
	// maxRules is how many stream rules a plugin may have: each looks at each chunk.
	maxRules = 32
	// maxLanes is how many lanes there are.
	maxLanes = 3
)

// compileRules makes observers of the rules of a plugin. The error says which rule
// cannot be carried out, and why.
func compileRules(plugin string, rules []*pluginv1.StreamRule) ([]stream.Registration, error) {
	if len(rules) > maxRules {
		return nil, fmt.Errorf("it has %d stream rules, of %d that a plugin may have", len(rules), maxRules)
	}
	var out []stream.Registration
	for i, r := range rules {
		shown := wire.Shorten(r.GetId(), maxName)
		if !hooks.ValidName(r.GetId()) {
			return nil, fmt.Errorf("stream rule %q: its id %s", shown, hooks.NameRule)
		}
		if slices.ContainsFunc(rules[:i], func(other *pluginv1.StreamRule) bool { return other.GetId() == r.GetId() }) {
			return nil, fmt.Errorf("stream rule %q: there are two", shown)
		}
		reg, err := compileRule(r)
		if err != nil {
			return nil, fmt.Errorf("stream rule %q: %w", shown, err)
		}
		reg.Plugin, reg.ID = plugin, plugin+":"+r.GetId()
		out = append(out, reg)
	}
	return out, nil
}

func compileRule(r *pluginv1.StreamRule) (stream.Registration, error) {
	var none stream.Registration
	lanes, err := lanesOf(r.GetLanes())
	if err != nil {
		return none, err
	}
	if err := checkGlobs(r.GetAgents(), r.GetTenants()); err != nil {
		return none, err
	}
	var reg stream.Registration
	switch rule := r.GetRule().(type) {
	case *pluginv1.StreamRule_Redact:
		reg, err = redacting(rule.Redact, lanes)
	case *pluginv1.StreamRule_Halt:
		reg, err = halting(rule.Halt, lanes)
	default:
		err = errors.New("it is neither redact nor halt, which is what this agentd carries out")
	}
	if err != nil {
		return none, err
	}
	// What a model says in a summary or a title is an answer as well.
	reg.Class = stream.ClassAny
	if len(r.GetAgents())+len(r.GetTenants()) > 0 {
		reg.Only = &hooks.Scope{Agents: slices.Clone(r.GetAgents()), Tenants: slices.Clone(r.GetTenants())}
	}
	return reg, nil
}

// redacting is the builtin observer of that kind, which knows the patterns of a rule as
// those that it is to match, and the sets as its patterns.
func redacting(r *pluginv1.Redact, lanes []stream.Lane) (stream.Registration, error) {
	if len(r.GetPatterns())+len(r.GetSets()) == 0 {
		return stream.Registration{}, errors.New("it has no pattern and no set of them")
	}
	reg, err := builtin.Redact(builtin.RedactConfig{Patterns: r.GetSets(), Matching: r.GetPatterns(), With: r.GetReplacement(), Lanes: lanes})
	return reg, inItsWords(err, map[string]string{"patterns": "sets", "matching": "patterns", "with": "replacement"})
}

func halting(h *pluginv1.Halt, lanes []stream.Lane) (stream.Registration, error) {
	if len(lanes) == 0 {
		lanes = []stream.Lane{stream.LaneText, stream.LaneReasoning, stream.LaneToolArguments}
	}
	reg, err := builtin.HaltOnPattern(builtin.HaltOnPatternConfig{Patterns: []string{h.GetPattern()}, Reason: h.GetReason(), Lanes: lanes})
	if err != nil {
		return reg, inItsWords(err, map[string]string{"patterns[0]": "pattern", "patterns": "pattern"})
	}
	switch h.GetOnStop() {
	case pluginv1.StopPolicy_STOP_POLICY_UNSPECIFIED, pluginv1.StopPolicy_STOP_POLICY_END_TURN:
		reg.OnStop = stream.StopEndTurn
	case pluginv1.StopPolicy_STOP_POLICY_FAIL:
		reg.OnStop = stream.StopFail
	case pluginv1.StopPolicy_STOP_POLICY_RETRY:
		reg.OnStop = stream.StopRetry
	case pluginv1.StopPolicy_STOP_POLICY_FALLBACK:
		reg.OnStop = stream.StopFallback
	default:
		return reg, fmt.Errorf("on_stop: there is no policy %d", h.GetOnStop())
	}
	return reg, nil
}

var index = regexp.MustCompile(`\[\d+\]$`)

// inItsWords is the error of a builtin observer with the names that the fields have in
// a rule.
func inItsWords(err error, words map[string]string) error {
	var bad *setting.Error
	if !errors.As(err, &bad) {
		return err
	}
	if bad.Field == "" {
		return errors.New("it " + bad.Problem)
	}
	field, known := words[bad.Field]
	if !known {
		at := index.FindString(bad.Field)
		name := bad.Field[:len(bad.Field)-len(at)]
		if field, known = words[name]; !known {
			field = name
		}
		field += at
	}
	return errors.New(field + ": " + bad.Problem)
}

// lanesOf are the lanes of a rule by their names; none is all of them.
func lanesOf(given []pluginv1.Lane) ([]stream.Lane, error) {
	if len(given) > maxLanes {
		return nil, fmt.Errorf("it has %d lanes, of %d that there are", len(given), maxLanes)
	}
	var lanes []stream.Lane
	for _, l := range given {
		switch l {
		case pluginv1.Lane_LANE_TEXT:
			lanes = append(lanes, stream.LaneText)
		case pluginv1.Lane_LANE_REASONING:
			lanes = append(lanes, stream.LaneReasoning)
		case pluginv1.Lane_LANE_TOOL_ARGUMENTS:
			lanes = append(lanes, stream.LaneToolArguments)
		case pluginv1.Lane_LANE_UNSPECIFIED:
			fallthrough
		default:
			return nil, fmt.Errorf("there is no lane %d", l)
		}
	}
	return lanes, nil
}
