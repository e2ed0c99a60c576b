package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/hooks/stream/builtin"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// observerKind is a sort of entry in the list observers.
type observerKind struct {
	// config returns a pointer to what an entry is decoded into: see
	// [yamlfile.File.Decode].
	config func() observerSource
	// order is where it should stand.
	order redactOrder
}

// observerSource is what an entry of a kind is configured with, once it was
// decoded.
type observerSource interface {
	// registration makes the observer. The common keys are applied to what it
	// returns.
	registration() (stream.Registration, error)
}

// redactOrder is where an observer should stand if secrets are taken out.
type redactOrder uint8

const (
	anywhere redactOrder = iota
	// beforeRedact: what it makes of an answer may hold secrets in a form in which
	// they cannot be found before.
	beforeRedact
	// behindRedact: what it tells of an answer should be what is left of it.
	behindRedact
)

// observerKinds are what an entry of the list observers may be. Another kind is a
// config with yaml tags, its constructor, a line here and one in docs/config.md.
var observerKinds = map[string]observerKind{
	"halt_on_pattern":        {observerOf(builtin.HaltOnPattern), anywhere},
	"metrics":                {observerOf(builtin.Metrics), behindRedact},
	"normalize_tool_dialect": {observerOf(builtin.NormalizeToolDialect), beforeRedact},
	"redact":                 {observerOf(builtin.Redact), anywhere},
}

// observerOf is what an entry of a builtin observer is decoded into.
func observerOf[C any](from func(C) (stream.Registration, error)) func() observerSource {
	return func() observerSource { return &observing[C]{from: from} }
}

// observing is a builtin observer with its config.
type observing[C any] struct {
	from   func(C) (stream.Registration, error)
	config C
}

// ReadYAML implements [yamlfile.Value]. A kind with nothing behind it has a config
// in which nothing is said.
func (o *observing[C]) ReadYAML(f *yamlfile.File, n *yaml.Node, what string) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	f.Decode(n, what, &o.config)
}

func (o *observing[C]) registration() (stream.Registration, error) { return o.from(o.config) }

// observerEntry is one of the list observers, or one of the program's own.
type observerEntry struct {
	stream.Registration
	// place is where it was asked for.
	place string
	order redactOrder
	// id is where its id stands in the config file, nil if it is not there.
	id *yaml.Node
}

// observers reads the list of that name.
func (r *configReader) observers(n *yaml.Node) { r.list(n, "observers", r.observer) }

func (r *configReader) observer(n *yaml.Node) {
	e, ok := r.entry(n, "an", "observer", slices.Collect(maps.Keys(observerKinds)), slices.Collect(maps.Keys(observerKeys)))
	if !ok {
		return
	}
	kind := observerKinds[e.kind]
	config := kind.config()
	before := r.problems.Count()
	r.file.Decode(e.with, e.kind, config)
	if r.problems.Count() > before {
		return
	}
	reg, err := config.registration()
	var bad *setting.Error
	switch {
	case errors.As(err, &bad):
		e.errorAt(bad.Field, "%s", strings.TrimPrefix(bad.Field+": "+bad.Problem, ": "))
		return
	case err != nil:
		e.errorAt("", "%v", err)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(e.common)) {
		observerKeys[key](r.file, e.common[key], &reg)
	}
	if at := e.common["on_failure"]; at != nil && reg.Redacting && reg.OnFailure == stream.FailDetach {
		r.file.ErrorAt(at, "%s takes secrets out, so the answer is stopped when it fails; expected %s", e.kind, stream.FailStop)
	}
	if r.problems.Count() > before {
		return
	}
	one := observerEntry{Registration: reg, place: e.place(), order: kind.order, id: n}
	if at := e.common["id"]; at != nil {
		one.id = at
	}
	r.out.observed = append(r.out.observed, one)
}

// observerKeys read the keys that kinds of observers have in common.
var observerKeys = map[string]func(f *yamlfile.File, n *yaml.Node, r *stream.Registration){
	"id": func(f *yamlfile.File, n *yaml.Node, r *stream.Registration) { r.ID, _ = f.Text(n, "id") },
	"calls": func(f *yamlfile.File, n *yaml.Node, r *stream.Registration) {
		r.Class = stream.Class(f.Word(n, "calls", string(stream.ClassMain), string(stream.ClassCompaction), string(stream.ClassTitle), string(stream.ClassAny)))
	},
	"on_stop": func(f *yamlfile.File, n *yaml.Node, r *stream.Registration) {
		r.OnStop = stream.StopPolicy(f.Word(n, "on_stop", string(stream.StopEndTurn), string(stream.StopFail), string(stream.StopRetry), string(stream.StopFallback)))
	},
	"on_failure": func(f *yamlfile.File, n *yaml.Node, r *stream.Registration) {
		r.OnFailure = stream.FailurePolicy(f.Word(n, "on_failure", string(stream.FailDetach), string(stream.FailStop)))
	},
	"agents": func(f *yamlfile.File, n *yaml.Node, r *stream.Registration) {
		scopeOf(r).Agents = f.Globs(n, "agents")
	},
	"tenants": func(f *yamlfile.File, n *yaml.Node, r *stream.Registration) {
		scopeOf(r).Tenants = f.Globs(n, "tenants")
	},
}

func scopeOf(r *stream.Registration) *hooks.Scope {
	if r.Only == nil {
		r.Only = &hooks.Scope{}
	}
	return r.Only
}

// observe joins the observers, and notes which of them cannot be meant.
func (r *configReader) observe() {
	var regs []stream.Registration
	for _, o := range r.out.observed {
		regs = append(regs, o.Registration)
	}
	set, err := stream.NewSet(regs...)
	for _, bad := range refusedObservers(err) {
		o := r.out.observed[bad.Index-1]
		text := fmt.Sprintf("the %s %q of the observer %s", strings.ToLower(bad.Field), yamlfile.Cut(o.ID, yamlfile.MaxIDBytes), bad.Problem)
		if o.id == nil {
			r.problems.Add(o.place, yamlfile.Place{}, "%s", text)
			continue
		}
		r.file.ErrorAt(o.id, "%s", text)
	}
	r.out.observers = set
}

// refusedObservers are what is wrong with the registrations of a set.
func refusedObservers(err error) (all []*stream.RegistrationError) {
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
		return nil
	}
	for _, one := range several.Unwrap() {
		var bad *stream.RegistrationError
		if errors.As(one, &bad) {
			all = append(all, bad)
		}
	}
	return all
}

// misplaced tells of observers that stand where they can be had, and are not
// likely to be meant.
func misplaced(list []observerEntry) (all []string) {
	for i, one := range list {
		for j, redact := range list {
			switch {
			case !redact.Redacting || i == j:
			case one.order == beforeRedact && i > j:
				all = append(all, fmt.Sprintf("%s: the observer %s stands behind %s (%s), which does not see the calls that it makes of a text: put it before", one.place, one.ID, redact.ID, redact.place))
			case one.order == behindRedact && i < j:
				all = append(all, fmt.Sprintf("%s: the observer %s stands before %s (%s) and tells of what that takes out: put it behind", one.place, one.ID, redact.ID, redact.place))
			}
		}
	}
	return all
}
