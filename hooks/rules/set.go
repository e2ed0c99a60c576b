package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
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
		text, err := yamlfile.Read(path)
		if err != nil {
			return nil, fmt.Errorf("load rules: %w", err)
		}
		files = append(files, File{Name: path, Text: text})
	}
	return Parse(files, opts...)
}

// Parse is [Load] of files that were read already.
func Parse(files []File, opts ...Option) (*Set, error) {
	p := &yamlfile.Problems{}
	r := NewReader(opts...)
	if len(files) > MaxFiles {
		p.Add(files[MaxFiles].Name, yamlfile.Place{}, "there are more than %d files of rules", MaxFiles)
		files = files[:MaxFiles]
	}
	for _, f := range files {
		if s := yamlfile.Parse(f.Name, f.Text, Expected, p); s != nil {
			r.File(s)
		}
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return r.Set(), nil
}

// Hooks are the rules as hooks, one per rule, in their order. A rule has a row
// in the ledger wherever its matchers fit, also where its condition does not
// hold.
func (set *Set) Hooks() hooks.Hooks {
	return hooksOf(set.rules, set.clock())
}

// HooksIn is [Set.Hooks] of the rules that stand in one of the files.
func (set *Set) HooksIn(file string) hooks.Hooks {
	var there []*rule
	for _, r := range set.rules {
		if r.File == file {
			there = append(there, r)
		}
	}
	return hooksOf(there, set.clock())
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
