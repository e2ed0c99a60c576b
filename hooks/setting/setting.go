// Package setting has what the configs of guards, of observers and of a plugin's
// stream rules have in common: how one says that it cannot be meant, and what is to
// be redacted.
package setting

import (
	"fmt"
	"path"
)

// Error says which field of a config cannot be meant, and why.
type Error struct {
	// Kind is of what, such as deny_tools or redact.
	Kind string
	// Field is its name in a configuration file, such as tools[2], "" for the
	// config as a whole.
	Field string
	// Problem says what was expected.
	Problem string
}

// Error returns the three as one line.
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Kind + ": " + e.Problem
	}
	return e.Kind + ": " + e.Field + ": " + e.Problem
}

// Errorf makes an [Error].
func Errorf(kind, field, format string, args ...any) error {
	return &Error{Kind: kind, Field: field, Problem: fmt.Sprintf(format, args...)}
}

// What a list of globs may have.
const (
	maxGlobs     = 100
	maxGlobBytes = 1 << 10
)

// CheckGlobs refuses globs of which one is none: what they are for would hold for
// less, or more, than they say. The error is an [Error].
func CheckGlobs(kind, field string, globs []string) error {
	if len(globs) > maxGlobs {
		return Errorf(kind, field, "has %d globs; at most %d are taken", len(globs), maxGlobs)
	}
	for i, g := range globs {
		at := fmt.Sprintf("%s[%d]", field, i)
		if g == "" || len(g) > maxGlobBytes {
			return Errorf(kind, at, "must be a glob of 1 to %d bytes, such as memory_*", maxGlobBytes)
		}
		if _, err := path.Match(g, ""); err != nil {
			return Errorf(kind, at, "%q is no glob, such as memory_*", g)
		}
	}
	return nil
}
