package rules

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

var errMatchesNothing = errors.New("the pattern matches the empty text, so it would be found everywhere")

// compilePattern compiles a regular expression (RE2) whose program is not too large.
// The size is counted before anything is made of it: a few characters can stand
// for millions of instructions.
func compilePattern(text string) (*regexp.Regexp, error) {
	if len(text) > maxPatternBytes {
		return nil, fmt.Errorf("the pattern has %d bytes; at most %d are taken", len(text), maxPatternBytes)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("no regular expression that is taken here: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if n := instructions(parsed); n > maxProgram {
		return nil, fmt.Errorf("the pattern comes to about %d instructions; at most %d are taken: repeat less", n, maxProgram)
	}
	return regexp.Compile(text)
}

// instructions is about how many the program of a pattern has.
func instructions(re *syntax.Regexp) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		n = min(n+instructions(sub), 1<<30)
	}
	if re.Op == syntax.OpRepeat {
		times := max(re.Min, re.Max)
		n = min(n*max(times, 1), 1<<30)
	}
	return n
}
