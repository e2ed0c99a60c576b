package setting

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
)

// Redaction is what is looked for in texts and what takes its place, as it stands in
// a config.
type Redaction struct {
	// Patterns names sets of patterns and single ones: see [PatternNames].
	Patterns []string
	// Matching are regular expressions as package regexp knows them (RE2). None may
	// match the empty text.
	Matching []string
	// With stands in the place of what was found; "" is [redacted].
	With string
}

// What a redaction may have.
const (
	maxPatterns    = 32
	maxReplacement = 256
)

// PatternNames are what [Redaction] knows: the sets of package pattern, which stand
// for several, and its patterns.
func PatternNames() []string { return append(pattern.Sets(), pattern.Names()...) }

// Redactor compiles it for a config of that kind. The error is an [Error].
func (r Redaction) Redactor(kind string) (*pattern.Redactor, error) {
	with := cmp.Or(r.With, "[redacted]")
	switch n := len(r.Patterns) + len(r.Matching); {
	case n == 0:
		return nil, Errorf(kind, "patterns", "names nothing to look for; expected some of %s, or matching", strings.Join(PatternNames(), ", "))
	case n > maxPatterns:
		return nil, Errorf(kind, "", "has %d patterns; at most %d are taken", n, maxPatterns)
	case len(with) > maxReplacement || !utf8.ValidString(with) || strings.IndexByte(with, 0) >= 0:
		return nil, Errorf(kind, "with", "must be a text of at most %d bytes", maxReplacement)
	}
	var rules []pattern.Rule
	for i, name := range r.Patterns {
		named, ok := pattern.Lookup(name, with)
		if !ok {
			return nil, Errorf(kind, fmt.Sprintf("patterns[%d]", i), "%.80q is none of %s", name, strings.Join(PatternNames(), ", "))
		}
		rules = append(rules, named...)
	}
	builtin := len(rules)
	for i, text := range r.Matching {
		rules = append(rules, pattern.Rule{Name: fmt.Sprintf("matching[%d]", i), Pattern: text, With: with})
	}
	made, err := pattern.New(rules...)
	var bad *pattern.RuleError
	if errors.As(err, &bad) {
		return nil, Errorf(kind, fmt.Sprintf("matching[%d]", bad.Index-builtin), "%v", bad.Err)
	}
	return made, nil
}
