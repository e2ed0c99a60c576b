package pattern

import "fmt"

// Rule is something to look for and what takes its place. Those of [Lookup] also
// know which of what they find is meant.
type Rule struct {
	// Name is under which [Pass.Found] counts it.
	Name string
	// Pattern is a regular expression (RE2) that does not match the empty text.
	Pattern string
	// With stands in the place of what is found.
	With string
	// check says whether what was found is meant; nil for always. The pattern of
	// a rule with a check finds nothing that is longer than some tens of bytes.
	check func(found []byte) bool
}

// RuleError says which rule cannot be taken, and why.
type RuleError struct {
	// Index is its place, from 0.
	Index int
	Err   error
}

// Error returns the two as one line.
func (e *RuleError) Error() string { return fmt.Sprintf("pattern %d: %v", e.Index+1, e.Err) }

// Unwrap returns what is wrong with the rule.
func (e *RuleError) Unwrap() error { return e.Err }

// Redactor is a list of rules, compiled. It is never changed and safe for
// concurrent use; the streams and passes that it makes are not. The zero value
// finds nothing.
type Redactor struct {
	rules    []Rule
	programs []*program
	// auto remembers what the programs come to.
	auto *automaton
	// with are the replacements as they stand in a text, and quoted those in a
	// JSON text.
	with, quoted []string
}

// New compiles rules. The error is a [*RuleError]. A rule whose pattern an
// earlier one has as well is left out: it would find nothing.
func New(rules ...Rule) (*Redactor, error) {
	r := &Redactor{}
	type key struct {
		pattern string
		checked bool
	}
	have := map[key]bool{}
	for i, rule := range rules {
		re, err := Compile(rule.Pattern)
		if err == nil && re.MatchString("") {
			err = ErrEmptyMatch
		}
		var p *program
		if err == nil {
			p, err = compile(rule.Pattern, rule.check)
		}
		if err != nil {
			return nil, &RuleError{i, err}
		}
		if k := (key{rule.Pattern, rule.check != nil}); !have[k] {
			have[k] = true
			r.add(rule, p)
		}
	}
	r.auto = newAutomaton(r.programs)
	return r, nil
}

func (r *Redactor) add(rule Rule, p *program) {
	p.rule = len(r.rules)
	r.rules = append(r.rules, rule)
	r.programs = append(r.programs, p)
	r.with = append(r.with, rule.With)
	q := quote(rule.With)
	r.quoted = append(r.quoted, q[1:len(q)-1])
}

func (r *Redactor) newCover() cover { return cover{counts: make([]int, len(r.rules))} }
