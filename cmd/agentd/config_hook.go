package main

import (
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

const (
	minHookTimeout = time.Millisecond
	maxHookTimeout = 30 * time.Second
)

// hookEntry is one of the list hooks that is being read.
type hookEntry struct {
	listEntry
	// opts are what the common keys say.
	opts []hooks.Option
}

// hooks reads the list of that name.
func (r *configReader) hooks(n *yaml.Node) { r.list(n, "hooks", r.hook) }

func (r *configReader) hook(n *yaml.Node) {
	entry, ok := r.entry(n, "a", "hook", slices.Collect(maps.Keys(hookKinds)), slices.Collect(maps.Keys(commonKeys)))
	if ok {
		e := &hookEntry{listEntry: entry}
		e.register()
	}
}

// register makes the hooks of an entry and adds them.
func (e *hookEntry) register() {
	kind := hookKinds[e.kind]
	opts, ok := e.options(kind.takes)
	e.opts = opts
	config := kind.config()
	if !e.file.Decode(e.with, e.kind, config) {
		return
	}
	config.register(e, func(p part) {
		p.hooks = p.hooks.With(opts...)
		e.add(e.node, p)
		if ok && e.common["tools"] != nil && !aboutCalls(p.hooks) {
			e.file.ErrorAt(e.common["tools"], "%s is about no tool call, so it has no tools", e.kind)
		}
	})
}

func aboutCalls(h hooks.Hooks) bool {
	return h.BeforeToolCall != nil || h.BeforeExecute != nil || h.AfterToolCall != nil
}

// options are what the common keys say, of which an entry may have those in
// takes.
func (e *hookEntry) options(takes []string) (opts []hooks.Option, ok bool) {
	before := e.problems.Count()
	var scope hooks.Scope
	for _, key := range slices.Sorted(maps.Keys(e.common)) {
		n := e.common[key]
		if !slices.Contains(takes, key) {
			e.file.ErrorAt(n, "%s takes no %s here; expected %s", e.kind, key, orElse(strings.Join(takes, ", "), "no key beside it"))
			continue
		}
		if o := commonKeys[key](e.file, n, &scope); o != nil {
			opts = append(opts, o)
		}
	}
	if len(scope.Tools)+len(scope.Agents)+len(scope.Tenants) > 0 {
		opts = append(opts, hooks.Only(scope))
	}
	return opts, e.problems.Count() == before
}

// commonKeys read the keys that kinds have in common. One returns an option, or
// adds to the scope.
var commonKeys = map[string]func(f *yamlfile.File, n *yaml.Node, scope *hooks.Scope) hooks.Option{
	"id": func(f *yamlfile.File, n *yaml.Node, _ *hooks.Scope) hooks.Option {
		id := f.Identifier(n, "id")
		return func(r *hooks.Registration) { r.ID = id }
	},
	"phase": func(f *yamlfile.File, n *yaml.Node, _ *hooks.Scope) hooks.Option {
		return hooks.InPhase(hooks.Phase(f.Word(n, "phase", string(hooks.PhaseMutate), string(hooks.PhaseValidate))))
	},
	"on_failure": func(f *yamlfile.File, n *yaml.Node, _ *hooks.Scope) hooks.Option {
		if f.Word(n, "on_failure", string(hooks.FailClosed), string(hooks.FailOpen)) == string(hooks.FailOpen) {
			return hooks.OnFailureOpen()
		}
		return hooks.OnFailureClosed()
	},
	"shadow": func(f *yamlfile.File, n *yaml.Node, _ *hooks.Scope) hooks.Option {
		if f.Boolean(n, "shadow") {
			return hooks.Shadow()
		}
		return nil // rules may have said it themselves
	},
	"timeout": func(f *yamlfile.File, n *yaml.Node, _ *hooks.Scope) hooks.Option {
		return hooks.TimeLimit(f.Duration(n, "timeout", minHookTimeout, maxHookTimeout))
	},
	"tools": func(f *yamlfile.File, n *yaml.Node, scope *hooks.Scope) hooks.Option {
		scope.Tools = f.Globs(n, "tools")
		return nil
	},
	"agents": func(f *yamlfile.File, n *yaml.Node, scope *hooks.Scope) hooks.Option {
		scope.Agents = f.Globs(n, "agents")
		return nil
	},
	"tenants": func(f *yamlfile.File, n *yaml.Node, scope *hooks.Scope) hooks.Option {
		scope.Tenants = f.Globs(n, "tenants")
		return nil
	},
}
