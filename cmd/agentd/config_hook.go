package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

const (
	// maxEntries is how many entries the list hooks may have.
	maxEntries     = 500
	minHookTimeout = time.Millisecond
	maxHookTimeout = 30 * time.Second
)

// hookEntry is one of the list hooks that is being read: a kind with what it is
// configured with, and beside it keys that are common to kinds.
type hookEntry struct {
	*configReader
	node *yaml.Node // the entry
	kind string
	with *yaml.Node // what the kind is configured with
	// common are the other keys of the entry.
	common map[string]*yaml.Node
	// opts are what they say.
	opts []hooks.Option
}

// errorAt notes what is wrong with a value of the entry. Path names it below the
// kind, such as when[0].argument, "" for all of it; of a path that is not there the
// place is that of as much of it as is.
func (e *hookEntry) errorAt(path, format string, args ...any) {
	at := e.with
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		next := yamlfile.Key(at, step)
		if i, err := strconv.Atoi(step); err == nil && i < len(yamlfile.Items(at)) {
			next = yamlfile.Items(at)[i]
		}
		if next == nil {
			break
		}
		at = next
	}
	e.file.ErrorAt(at, format, args...)
}

// hooks reads the list of that name.
func (r *configReader) hooks(n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		r.file.ErrorAt(n, "expected hooks as a list, not %s", yamlfile.KindOf(n))
		return
	}
	for i, one := range n.Content {
		if i >= maxEntries {
			r.file.ErrorAt(one, "there are more than %d hooks", maxEntries)
			return
		}
		r.hook(one)
	}
}

func (r *configReader) hook(n *yaml.Node) {
	e := &hookEntry{configReader: r, node: n, common: map[string]*yaml.Node{}}
	kindNames := strings.Join(slices.Sorted(maps.Keys(hookKinds)), ", ")
	known := map[string]func(*yaml.Node){}
	for name := range hookKinds {
		known[name] = func(with *yaml.Node) {
			if e.kind != "" {
				r.file.ErrorAt(n, "the hook is %s and %s; expected one of them", e.kind, name)
				return
			}
			e.kind, e.with = name, with
		}
	}
	for name := range commonKeys {
		known[name] = func(n *yaml.Node) { e.common[name] = n }
	}
	if !r.file.Fields(n, "a hook", known) {
		return
	}
	if e.kind == "" {
		r.file.ErrorAt(n, "the hook has no kind; expected one of %s", kindNames)
		return
	}
	e.register()
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

// place is where the entry stands.
func (e *hookEntry) place() string { return fmt.Sprintf("%s:%d", e.file.Name, e.node.Line) }

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
