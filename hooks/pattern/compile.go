package pattern

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// What a pattern may have.
const (
	// MaxBytes is how long one may be.
	MaxBytes = 1 << 10
	// MaxInstructions is what its program may come to: what it takes to look for
	// it grows with that.
	MaxInstructions = 2_000
)

// maxWays is how many pairs of an instruction and one that may come next the
// program of a pattern may have: a row of parts that may all be left out has as
// many as the square of its length.
const maxWays = 100_000

// ErrEmptyMatch is of a pattern that would be found everywhere.
var ErrEmptyMatch = errors.New("the pattern matches the empty text, so it would be found everywhere")

// Compile compiles a pattern (RE2) whose program is not too large, which is
// counted before anything is made of it: a few characters can stand for millions
// of instructions. The error is a sentence for whoever wrote the pattern.
func Compile(text string) (*regexp.Regexp, error) {
	if _, err := parse(text); err != nil {
		return nil, err
	}
	return regexp.Compile(text)
}

func parse(text string) (*syntax.Regexp, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("the pattern has %d bytes; at most %d are taken", len(text), MaxBytes)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("no regular expression that is taken here: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if n := instructions(parsed); n > MaxInstructions {
		return nil, fmt.Errorf("the pattern comes to about %d instructions; at most %d are taken: repeat less", n, MaxInstructions)
	}
	return parsed, nil
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
		n = min(n*max(re.Min, re.Max, 1), 1<<30)
	}
	return n
}
