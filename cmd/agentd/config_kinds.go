package main

import (
	"errors"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/guard"
	"github.com/seed-2ca4966b/agentd/hooks/rules"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// hookKind is a sort of entry in the list hooks.
type hookKind struct {
	// config returns a pointer to what an entry is decoded into: see
	// [yamlfile.File.Decode].
	config func() hookSource
	// takes are the common keys that make sense.
	takes []string
}

// hookSource is what an entry of a kind is configured with, once it was decoded.
type hookSource interface {
	// register adds the hooks, or notes with e.errorAt what is wrong with the
	// entry. A file that it needs it reads with e.content, so that a change of
	// the file is seen. The common keys are applied by add.
	register(e *hookEntry, add func(part))
}

// hookKinds are what an entry of the list hooks may be. Another kind is a struct
// with yaml tags, its method register (or a func for guardKind), a line here and
// one in docs/config.md. Secrets are never values in the file: a key names the
// variable or the file that has one.
var hookKinds = map[string]hookKind{
	"budget":                   countingKind(guard.Budget),
	"deny_tools":               guardKind(guard.DenyTools),
	"max_input_bytes":          guardKind(guard.MaxInputBytes),
	"prompt_injection_markers": countingKind(guard.PromptInjectionMarkers),
	"rate_limit":               countingKind(guard.RateLimit),
	"redact":                   guardKind(guard.Redact),
	"require_approval":         guardKind(guard.RequireApproval),
	"rules":                    {func() hookSource { return &ruleFiles{} }, []string{"shadow"}},
	"webhook":                  {func() hookSource { return &webhookEntry{} }, []string{"id", "phase", "tools", "agents", "tenants", "on_failure", "timeout", "shadow"}},
}

// guardKind is the kind of a builtin guard.
func guardKind[C any](from func(C, ...hooks.Option) (hooks.Hooks, error)) hookKind {
	return countingKind(func(c C, _ counter, opts ...hooks.Option) (hooks.Hooks, error) { return from(c, opts...) })
}

// countingKind is the kind of one that needs the database.
func countingKind[C, D any](construct func(C, D, ...hooks.Option) (hooks.Hooks, error)) hookKind {
	from := func(c C, with counter, opts ...hooks.Option) (hooks.Hooks, error) {
		return construct(c, any(with).(D), opts...)
	}
	return hookKind{
		config: func() hookSource { return &guarding[C]{from: from} },
		takes:  []string{"id", "tools", "agents", "tenants", "on_failure", "timeout", "shadow"},
	}
}

// guarding is a builtin guard with its config.
type guarding[C any] struct {
	from   func(C, counter, ...hooks.Option) (hooks.Hooks, error)
	config C
}

// ReadYAML implements [yamlfile.Value].
func (g *guarding[C]) ReadYAML(f *yamlfile.File, n *yaml.Node, what string) {
	f.Decode(n, what, &g.config)
}

func (g *guarding[C]) register(e *hookEntry, add func(part)) {
	// A guard that counts does so under its id and its scope.
	h, err := g.from(g.config, e.counters, e.opts...)
	var bad *setting.Error
	switch {
	case errors.As(err, &bad):
		e.errorAt(bad.Field, "%s", strings.TrimPrefix(bad.Field+": "+bad.Problem, ": "))
	case err != nil:
		e.errorAt("", "%v", err)
	default:
		add(placed(h, e.place()))
	}
}

// ruleFiles are files of rules, by their names relative to the config file.
type ruleFiles []string

func (k *ruleFiles) register(e *hookEntry, add func(part)) {
	for _, name := range *k {
		if len(e.out.files) > rules.MaxFiles {
			e.errorAt("", "there are more than %d files of rules", rules.MaxFiles)
			return
		}
		path := e.beside(name)
		text, err := e.content(path)
		if err != nil {
			e.errorAt("", "%s cannot be read: %s", path, unreadable(err))
			continue
		}
		if f := yamlfile.Parse(path, text, rules.Expected, &e.problems); f != nil {
			e.rules.File(f)
			add(e.rulesIn(path))
		}
	}
}
