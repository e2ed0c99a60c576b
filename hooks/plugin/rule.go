package plugin

import (
	"fmt"
	"regexp"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// StreamRule says what is done with the answers of models while they arrive. It is
// data, and the host carries it out: no plugin ever sees a chunk. It has one of
// Redact and Halt.
type StreamRule struct {
	// ID is its name within the plugin, which [hooks.ValidName] takes. The ledger has it
	// behind the plugin's and a colon.
	ID string
	// Lanes are where it holds: text, reasoning, tool_arguments. None is all of them.
	Lanes []string
	// Agents and Tenants are globs; an empty list leaves nothing out.
	Agents  []string
	Tenants []string

	Redact *Redact
	Halt   *Halt
}

// Redact puts a replacement in the place of what one of its patterns matches,
// wherever the answer was cut into chunks.
type Redact struct {
	// Patterns are regular expressions as package regexp knows them.
	Patterns []string
	// Sets name patterns that agentd has, such as secrets. The host checks them.
	Sets []string
	// Replacement is the host's own word if it is empty.
	Replacement string
}

// Halt ends an answer in which its pattern matches.
type Halt struct {
	// Pattern is a regular expression as package regexp knows them.
	Pattern string
	// Reason is a sentence for people. It is stored and shown.
	Reason string
	// OnStop is what follows: end_turn, which is what "" means, fail, retry, fallback.
	OnStop string
}

var lanes = map[string]pluginv1.Lane{
	"text": pluginv1.Lane_LANE_TEXT, "reasoning": pluginv1.Lane_LANE_REASONING, "tool_arguments": pluginv1.Lane_LANE_TOOL_ARGUMENTS,
}

var stopPolicies = map[string]pluginv1.StopPolicy{
	"": pluginv1.StopPolicy_STOP_POLICY_END_TURN, "end_turn": pluginv1.StopPolicy_STOP_POLICY_END_TURN,
	"fail": pluginv1.StopPolicy_STOP_POLICY_FAIL, "retry": pluginv1.StopPolicy_STOP_POLICY_RETRY,
	"fallback": pluginv1.StopPolicy_STOP_POLICY_FALLBACK,
}

func (r StreamRule) message() (*pluginv1.StreamRule, error) {
	if !hooks.ValidName(r.ID) {
		return nil, fmt.Errorf("stream rule %q: the id %s", r.ID, hooks.NameRule)
	}
	out := &pluginv1.StreamRule{Id: r.ID, Agents: r.Agents, Tenants: r.Tenants}
	if err := checkGlobs(r.Agents, r.Tenants); err != nil {
		return nil, fmt.Errorf("stream rule %s: %w", r.ID, err)
	}
	for _, name := range r.Lanes {
		lane, ok := lanes[name]
		if !ok {
			return nil, fmt.Errorf("stream rule %s: %q is no lane", r.ID, name)
		}
		out.Lanes = append(out.Lanes, lane)
	}
	var patterns []string
	switch {
	case (r.Redact == nil) == (r.Halt == nil):
		return nil, fmt.Errorf("stream rule %s: it has to have one of Redact and Halt", r.ID)
	case r.Redact != nil:
		patterns = r.Redact.Patterns
		if len(patterns)+len(r.Redact.Sets) == 0 {
			return nil, fmt.Errorf("stream rule %s: it has no pattern", r.ID)
		}
		out.Rule = &pluginv1.StreamRule_Redact{Redact: &pluginv1.Redact{
			Patterns: patterns, Sets: r.Redact.Sets, Replacement: wire.Text(r.Redact.Replacement),
		}}
	default:
		patterns = []string{r.Halt.Pattern}
		policy, ok := stopPolicies[r.Halt.OnStop]
		if !ok {
			return nil, fmt.Errorf("stream rule %s: %q is none of end_turn, fail, retry, fallback", r.ID, r.Halt.OnStop)
		}
		out.Rule = &pluginv1.StreamRule_Halt{Halt: &pluginv1.Halt{Pattern: r.Halt.Pattern, Reason: wire.Text(r.Halt.Reason), OnStop: policy}}
	}
	for _, p := range patterns {
		// Regexp takes what is no text, and no message does.
		if _, err := regexp.Compile(p); err != nil || p == "" || wire.Text(p) != p {
			return nil, fmt.Errorf("stream rule %s: %q is no pattern", r.ID, p)
		}
	}
	return out, nil
}
