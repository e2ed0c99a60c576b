package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// maxPluginConfig is how long the config of one plugin may be, as JSON.
const maxPluginConfig = 64 << 10

// pluginPolicy are the common keys that are about how a plugin is asked.
var pluginPolicy = []string{"agents", "on_failure", "shadow", "tenants", "timeout", "tools"}

// pluginSetting is what the config file says of one plugin.
type pluginSetting struct {
	// place is where.
	place string
	// disabled: it is not started.
	disabled bool
	// config stands in the place of some of its manifest's.
	config yamlfile.Object
	// asked are how it is asked at gates.
	asked []hooks.Option
}

// without says what a plugin that is down comes to.
func (s pluginSetting) without() string {
	r := hooks.Registration{OnFailure: hooks.FailClosed}
	for _, o := range s.asked {
		o(&r)
	}
	switch {
	case r.Shadow:
		return "and nothing comes of that"
	case r.OnFailure == hooks.FailOpen:
		return "and gates are open without it"
	}
	return "and gates are closed without it"
}

// pluginSettings are those of the config file, by the plugin's id. They are not changed
// once they are read.
type pluginSettings map[string]pluginSetting

// plugins reads the mapping of that name.
func (r *configReader) plugins(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		r.file.ErrorAt(n, "expected plugins as a mapping of ids, not %s", yamlfile.KindOf(n))
		return
	}
	r.out.plugins = pluginSettings{}
	for i := 0; i < len(n.Content); i += 2 {
		id := n.Content[i]
		switch {
		case len(r.out.plugins) >= maxEntries:
			r.file.ErrorAt(id, "there are more than %d plugins", maxEntries)
			return
		case !pluginhost.ValidID(id.Value):
			r.file.ErrorAt(id, "%q is the id of no plugin; expected 1 to 64 lower-case letters, digits, dots, dashes and underscores", yamlfile.Cut(id.Value, yamlfile.MaxIDBytes))
			continue
		}
		r.out.plugins[id.Value] = r.plugin(id, n.Content[i+1])
	}
}

func (r *configReader) plugin(id, n *yaml.Node) pluginSetting {
	s := pluginSetting{place: fmt.Sprintf("%s:%d", r.file.Name, id.Line)}
	var scope hooks.Scope
	keys := map[string]func(*yaml.Node){
		"disabled": func(n *yaml.Node) { s.disabled = r.file.Boolean(n, "disabled") },
		"config": func(n *yaml.Node) {
			if r.file.Decode(n, "config", &s.config); len(s.config.JSON()) > maxPluginConfig {
				r.file.ErrorAt(n, "config has %d bytes as JSON; at most %d are taken", len(s.config.JSON()), maxPluginConfig)
			}
		},
	}
	for _, key := range pluginPolicy {
		keys[key] = func(n *yaml.Node) {
			if o := commonKeys[key](r.file, n, &scope); o != nil {
				s.asked = append(s.asked, o)
			}
		}
	}
	r.file.Fields(n, "the plugin "+id.Value, keys)
	if len(scope.Tools)+len(scope.Agents)+len(scope.Tenants) > 0 {
		s.asked = append(s.asked, hooks.AlsoOnly(scope))
	}
	return s
}

// configure returns what is to be started of what was found.
func (s pluginSettings) configure(found []pluginhost.Bundle) []pluginhost.Bundle {
	var out []pluginhost.Bundle
	for _, b := range found {
		if one := s[b.ID]; !one.disabled {
			out = append(out, b.Configured(one.config))
		}
	}
	return out
}

// hooks are those of the plugins of a generation, asked as the settings say.
func (s pluginSettings) hooks(c *pluginhost.Caller, g *pluginhost.Generation) (all hooks.Hooks) {
	for _, p := range g.Plugins() {
		all = all.Then(c.Only(p).With(s[p.ID()].asked...))
	}
	return all
}

// observers carry out the rules of the plugins, for the agents and tenants of the
// settings. A plugin in shadow has none: nothing comes of it.
func (s pluginSettings) observers(c *pluginhost.Caller) (all []stream.Registration) {
	for _, rule := range c.Observers() {
		asked := hooks.Registration{Only: rule.Only}
		for _, o := range s[rule.Plugin].asked {
			o(&asked)
		}
		if rule.Only = asked.Only; !asked.Shadow {
			all = append(all, rule)
		}
	}
	return all
}

// started is the same of two settings by which the same is started with the same.
func (s pluginSettings) started() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(s)) {
		if one := s[id]; one.disabled {
			fmt.Fprintf(&b, "%s is disabled\n", id)
		} else if config := one.config.JSON(); string(config) != "{}" {
			fmt.Fprintf(&b, "%s %s\n", id, config)
		}
	}
	return b.String()
}

// missing tells of those that are about no plugin of these ids.
func (s pluginSettings) missing(ids []string) (all []string) {
	for _, id := range slices.Sorted(maps.Keys(s)) {
		if !slices.Contains(ids, id) {
			all = append(all, fmt.Sprintf("%s: there is no plugin %s", s[id].place, id))
		}
	}
	return all
}

func idsOf(bundles []pluginhost.Bundle) (ids []string) {
	for _, b := range bundles {
		ids = append(ids, b.ID)
	}
	return ids
}

// pluginConfig are the settings of the config file that --config, or the directory, has.
func (f configFlags) pluginConfig() (pluginSettings, error) {
	c, err := hookConfig{path: f.path(), unasked: true}.read()
	if err != nil {
		return nil, badConfig(err)
	}
	return c.plugins, nil
}
