package rules

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// File is the text of a file of rules, and the name that errors tell.
type File struct {
	Name string
	Text []byte
}

// Set is the rules of some files. It is never changed once it is made, so many
// goroutines may use it at once. The zero value has no rules.
type Set struct {
	rules    []*rule // in the order of the files
	examples []*example
	now      func() time.Time
}

// Option changes how a [Set] is made.
type Option func(*Set)

// WithClock is what the variable now tells; without it, it is [time.Now].
func WithClock(now func() time.Time) Option { return func(s *Set) { s.now = now } }

// Load reads the rules of files. Their order is that of the rules. It returns
// an [*Errors] if anything is wrong with what stands there, and no set then: of
// a policy that is half understood nothing is in force.
func Load(paths []string, opts ...Option) (*Set, error) {
	var files []File
	for _, path := range paths[:min(len(paths), MaxFiles+1)] {
		text, err := readFile(path)
		if err != nil {
			return nil, fmt.Errorf("load rules: %w", err)
		}
		files = append(files, File{Name: path, Text: text})
	}
	return Parse(files, opts...)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
}

// Parse is [Load] of files that were read already.
func Parse(files []File, opts ...Option) (*Set, error) {
	set := &Set{now: time.Now}
	for _, o := range opts {
		o(set)
	}
	p := &problems{order: map[string]int{}}
	if len(files) > MaxFiles {
		p.add(files[MaxFiles].Name, place{}, "there are more than %d files of rules", MaxFiles)
		files = files[:MaxFiles]
	}
	seen := map[string]*rule{}
	for i, f := range files {
		p.order[f.Name] = i
		if s := parse(f.Name, f.Text, p); s != nil {
			set.read(s, seen)
		}
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return set, nil
}

// read adds what a file has to the set.
func (set *Set) read(s *source, seen map[string]*rule) {
	has := false
	s.fields(s.root, "a file of rules", map[string]func(*yaml.Node){
		"rules": func(n *yaml.Node) {
			has = true
			if n.Kind != yaml.SequenceNode {
				s.errorAt(n, "expected rules as a list, not %s", kindOf(n))
				return
			}
			for _, one := range n.Content {
				if len(seen) >= MaxRules {
					s.errorAt(one, "there are more than %d rules", MaxRules)
					return
				}
				set.add(s, one, seen)
			}
		},
		"examples": func(n *yaml.Node) {
			c := &compiler{source: s}
			set.examples = append(set.examples, c.examples(n, nil)...)
		},
	})
	if s.root.Kind == yaml.MappingNode && !has {
		s.errorAt(s.root, "the file has no key rules")
	}
}

func (set *Set) add(s *source, n *yaml.Node, seen map[string]*rule) {
	r := s.readRule(n)
	id := idOf(n)
	if first := seen[id]; first != nil && id != "" {
		s.errorAt(n, "the id %q is that of the rule at %s:%d", cut(id, maxIDBytes), first.File, first.Line)
		return
	}
	if id == "" {
		id = fmt.Sprintf("%s:%d", s.name, n.Line)
	}
	seen[id] = &rule{Rule: Rule{File: s.name, Line: n.Line}}
	if r != nil {
		set.rules = append(set.rules, r)
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

// Hooks are the rules as hooks, one per rule, in their order. A rule has a row
// in the ledger wherever its matchers fit, also where its condition does not
// hold.
func (set *Set) Hooks() hooks.Hooks {
	return hooksOf(set.rules, set.clock())
}

func (set *Set) clock() func() time.Time {
	if set.now == nil {
		return time.Now
	}
	return set.now
}

func hooksOf(rules []*rule, now func() time.Time) hooks.Hooks {
	// One composition per gate: Then of each to the next would nest them as deep
	// as there are rules.
	var h hooks.Hooks
	for half := range slices.Chunk(rules, max(1, (len(rules)+1)/2)) {
		if len(rules) == 1 {
			return half[0].hook(now)
		}
		h = h.Then(hooksOf(half, now))
	}
	return h
}

// Rules are those of the set in the order in which they are asked: by gate, by
// phase, and then as they stand in the files.
func (set *Set) Rules() []Rule {
	var out []Rule
	for _, g := range gates {
		for _, phase := range []hooks.Phase{hooks.PhaseMutate, hooks.PhaseValidate} {
			for _, r := range set.rules {
				if r.gate == g && r.Phase == phase {
					out = append(out, r.Rule)
				}
			}
		}
	}
	return out
}
