package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// maxEntries is how many entries a list such as hooks may have.
const maxEntries = 500

// listEntry is one of a list that is being read: a kind with what it is configured
// with, and beside it keys that are common to kinds.
type listEntry struct {
	*configReader
	node *yaml.Node // the entry
	kind string
	with *yaml.Node // what the kind is configured with
	// common are the other keys of the entry.
	common map[string]*yaml.Node
}

// list reads a list of that name, with one for each entry.
func (r *configReader) list(n *yaml.Node, name string, one func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		r.file.ErrorAt(n, "expected %s as a list, not %s", name, yamlfile.KindOf(n))
		return
	}
	for i, entry := range n.Content {
		if i >= maxEntries {
			r.file.ErrorAt(entry, "there are more than %d %s", maxEntries, name)
			return
		}
		one(entry)
	}
}

// entry reads which kind an entry is of, and which of the common keys it has. Noun
// and article are for errors.
func (r *configReader) entry(n *yaml.Node, article, noun string, kinds, common []string) (listEntry, bool) {
	e := listEntry{configReader: r, node: n, common: map[string]*yaml.Node{}}
	known := map[string]func(*yaml.Node){}
	for _, name := range kinds {
		known[name] = func(with *yaml.Node) {
			if e.kind != "" {
				r.file.ErrorAt(n, "the %s is %s and %s; expected one of them", noun, e.kind, name)
				return
			}
			e.kind, e.with = name, with
		}
	}
	for _, name := range common {
		known[name] = func(n *yaml.Node) { e.common[name] = n }
	}
	if !r.file.Fields(n, article+" "+noun, known) {
		return e, false
	}
	if e.kind == "" {
		r.file.ErrorAt(n, "the %s has no kind; expected one of %s", noun, strings.Join(slices.Sorted(slices.Values(kinds)), ", "))
	}
	return e, e.kind != ""
}

// errorAt notes what is wrong with a value of the entry. Path names it below the
// kind, such as when[0].argument, "" for all of it; of a path that is not there the
// place is that of as much of it as is.
func (e *listEntry) errorAt(path, format string, args ...any) {
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

// place is where the entry stands.
func (e *listEntry) place() string { return fmt.Sprintf("%s:%d", e.file.Name, e.node.Line) }
