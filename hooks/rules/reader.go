package rules

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// Error is one thing that is wrong with a file of rules.
type Error = yamlfile.Error

// Errors are what is wrong with a set of rules, in the order of the files, at
// most [MaxErrors].
type Errors = yamlfile.Errors

// Expected is what a file of rules should be, for [yamlfile.Parse].
const Expected = "a mapping with the key rules"

// source is a file that rules are read from.
type source struct{ *yamlfile.File }

// Reader makes one [Set] of rules that stand in several files, also in files
// that have other keys beside theirs. What is wrong is noted with the files: if
// anything is, the set must not be used. One goroutine uses it at a time.
type Reader struct {
	set  *Set
	seen map[string]*rule
}

// NewReader returns one that has read nothing yet.
func NewReader(opts ...Option) *Reader {
	r := &Reader{set: &Set{now: time.Now}, seen: map[string]*rule{}}
	for _, o := range opts {
		o(r.set)
	}
	return r
}

// File reads a file of rules. The order of the files is that of their rules.
func (r *Reader) File(f *yamlfile.File) {
	has := false
	keys := r.Keys(f)
	list := keys["rules"]
	keys["rules"] = func(n *yaml.Node) { has = true; list(n) }
	f.Fields(f.Root, "a file of rules", keys)
	if f.Root.Kind == yaml.MappingNode && !has {
		f.ErrorAt(f.Root, "the file has no key rules")
	}
}

// Keys read the values that the keys of a file of rules have, rules and
// examples, for a file that has others too: see [yamlfile.File.Fields].
func (r *Reader) Keys(f *yamlfile.File) map[string]func(*yaml.Node) {
	s := &source{f}
	return map[string]func(*yaml.Node){
		"rules": func(n *yaml.Node) {
			if n.Kind != yaml.SequenceNode {
				s.ErrorAt(n, "expected rules as a list, not %s", yamlfile.KindOf(n))
				return
			}
			for _, one := range n.Content {
				if len(r.seen) >= MaxRules {
					s.ErrorAt(one, "there are more than %d rules", MaxRules)
					return
				}
				r.add(s, one)
			}
		},
		"examples": func(n *yaml.Node) {
			c := &compiler{source: s}
			r.set.examples = append(r.set.examples, c.examples(n, nil)...)
		},
	}
}

// Set is what was read.
func (r *Reader) Set() *Set { return r.set }

func (r *Reader) add(s *source, n *yaml.Node) {
	one := s.readRule(n)
	id := idOf(n)
	if first := r.seen[id]; first != nil && id != "" {
		s.ErrorAt(n, "the id %q is that of the rule at %s:%d", yamlfile.Cut(id, yamlfile.MaxIDBytes), first.File, first.Line)
		return
	}
	if id == "" {
		id = fmt.Sprintf("%s:%d", s.Name, n.Line)
	}
	r.seen[id] = &rule{Rule: Rule{File: s.Name, Line: n.Line}}
	if one != nil {
		r.set.rules = append(r.set.rules, one)
	}
}

// idOf is the id of a rule with which other things may be wrong.
func idOf(n *yaml.Node) string {
	if n.Kind != yaml.MappingNode {
		return ""
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == "id" && n.Content[i+1].Kind == yaml.ScalarNode {
			return strings.TrimSpace(n.Content[i+1].Value)
		}
	}
	return ""
}
