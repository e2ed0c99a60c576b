package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// Config is what a plugin is and does. Everything but the ID may be left out.
type Config struct {
	// ID is the plugin's name: lower-case letters, digits, dots, dashes and
	// underscores, at most 64. It is the one in its manifest.
	ID string
	// Version is the plugin's own. It stands in the ledger.
	Version string

	// Hooks are asked at the gates, and notified. The host asks about a gate only if
	// there is a hook for it. They are called from several goroutines at once.
	//
	// A gate's func is one hook, whatever is composed in it: its phase and what it is
	// asked about are in On, and what fails inside of a func that is Named is a
	// refusal. [hooks.DecisionID] works as it does in the host's own process.
	//
	// A notification that panics is told again, with all of its batch.
	Hooks hooks.Hooks
	// On says when the hook of a gate is asked. A gate that is not in it is asked
	// about everything, in the first phase.
	On map[hooks.Gate]On

	// OnEvent is asked at the gates in Events and told the notifications in it, such
	// as "BeforeToolCall" and "OnRunEnd"; Hooks has none there.
	OnEvent func(context.Context, PluginEvent) (EventResult, error)
	Events  []string

	// Tools are those that the plugin has.
	Tools []Tool
	// StreamRules are about the answers of models.
	StreamRules []StreamRule

	// Configure is called before anything else with what the manifest says under
	// config, {} if nothing. An error says that the plugin cannot be used.
	Configure func(config json.RawMessage) error
	// Ready is called once the host knows the plugin, in a goroutine of its own. Its
	// context ends with the plugin.
	Ready func(context.Context, *Host)
	// Health says whether the plugin can do its work; nil is always.
	Health func(context.Context) error
}

// On is when the hook of a gate is asked. The zero value leaves nothing out.
type On struct {
	// Phase is hooks.PhaseMutate if it is empty.
	Phase hooks.Phase
	// Tools, Agents and Tenants are globs, of which [hooks.MatchName] has to match
	// one; an empty list leaves nothing out.
	Tools   []string
	Agents  []string
	Tenants []string
	// Redacting is what [hooks.Redacting] declares.
	Redacting bool
	// FailClosed refuses at AfterProviderResponse, too, when the hook fails.
	FailClosed bool
}

var (
	idPattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	toolPattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
)

// describe checks the config and makes of it what the host is told.
func (c Config) describe() (*pluginv1.BootstrapResponse, error) {
	if !idPattern.MatchString(c.ID) {
		return nil, fmt.Errorf("the id %q is not 1 to 64 lower-case letters, digits, dots, dashes and underscores", c.ID)
	}
	out := &pluginv1.BootstrapResponse{Id: c.ID, Version: wire.Text(c.Version), Sdk: "go/" + version}
	gates, err := c.gates()
	if err != nil {
		return nil, err
	}
	for _, g := range gates {
		s, err := c.On[g].subscription(g)
		if err != nil {
			return nil, err
		}
		out.Subscriptions = append(out.Subscriptions, s)
	}
	for g := range c.On {
		if !slices.Contains(gates, g) {
			return nil, fmt.Errorf("on %s: no hook is asked there", g)
		}
	}
	out.Notifications = c.notifications()
	for i, t := range c.Tools {
		if slices.ContainsFunc(c.Tools[:i], func(other Tool) bool { return other.Name == t.Name }) {
			return nil, fmt.Errorf("tool %q: there are two", t.Name)
		}
		spec, err := t.spec()
		if err != nil {
			return nil, err
		}
		out.Tools = append(out.Tools, spec)
	}
	for i, r := range c.StreamRules {
		if slices.ContainsFunc(c.StreamRules[:i], func(other StreamRule) bool { return other.ID == r.ID }) {
			return nil, fmt.Errorf("stream rule %q: there are two", r.ID)
		}
		rule, err := r.message()
		if err != nil {
			return nil, err
		}
		out.StreamRules = append(out.StreamRules, rule)
	}
	return out, nil
}

// version of this SDK.
const version = "1"

// gates are those where there is a hook, in the order of a run.
func (c Config) gates() ([]hooks.Gate, error) {
	var gates []hooks.Gate
	for _, r := range c.Hooks.Set().Hooks {
		if !slices.Contains(gates, r.Gate) {
			gates = append(gates, r.Gate)
		}
	}
	told := c.told()
	if (c.OnEvent == nil) != (len(c.Events) == 0) {
		return nil, errors.New("events and OnEvent go together")
	}
	for i, name := range c.Events {
		g := hooks.Gate(name)
		switch _, isNotice := told[name]; {
		case slices.Contains(c.Events[:i], name):
			return nil, fmt.Errorf("event %s: it is there twice", name)
		case isNotice && told[name].hooked, slices.Contains(gates, g):
			return nil, fmt.Errorf("event %s: there is a hook for it", name)
		case isNotice:
		case wire.Number(g) == pluginv1.Gate_GATE_UNSPECIFIED:
			return nil, fmt.Errorf("event %q: there is no gate or notification of that name", name)
		default:
			gates = append(gates, g)
		}
	}
	slices.SortFunc(gates, func(a, b hooks.Gate) int { return int(wire.Number(a)) - int(wire.Number(b)) })
	return gates, nil
}

func (o On) subscription(g hooks.Gate) (*pluginv1.Subscription, error) {
	s := &pluginv1.Subscription{
		Gate: wire.Number(g), Phase: pluginv1.Phase_PHASE_MUTATE, Tools: o.Tools, Agents: o.Agents, Tenants: o.Tenants,
		Redacting: o.Redacting, FailClosed: o.FailClosed,
	}
	switch o.Phase {
	case hooks.PhaseValidate:
		s.Phase = pluginv1.Phase_PHASE_VALIDATE
	case hooks.PhaseMutate, "":
	default:
		return nil, fmt.Errorf("on %s: %q is no phase", g, o.Phase)
	}
	if err := checkGlobs(o.Tools, o.Agents, o.Tenants); err != nil {
		return nil, fmt.Errorf("on %s: %w", g, err)
	}
	return s, nil
}

func checkGlobs(lists ...[]string) error {
	for _, globs := range lists {
		for _, g := range globs {
			if _, err := path.Match(g, ""); err != nil || g == "" || wire.Text(g) != g {
				return fmt.Errorf("%q is no glob, such as memory_*", g)
			}
		}
	}
	return nil
}
