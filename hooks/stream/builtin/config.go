package builtin

import (
	"encoding/json"
	"fmt"
	"path"
)

// ConfigError says which field of an observer's config cannot be meant, and why.
type ConfigError struct {
	// Observer is the kind, such as redact.
	Observer string
	// Field is its name in a configuration file, such as tools[2], "" for the
	// config as a whole.
	Field string
	// Problem says what was expected.
	Problem string
}

// Error returns the three as one line.
func (e *ConfigError) Error() string {
	if e.Field == "" {
		return e.Observer + ": " + e.Problem
	}
	return e.Observer + ": " + e.Field + ": " + e.Problem
}

// badConfig makes a [ConfigError].
func badConfig(observer, field, format string, args ...any) error {
	return &ConfigError{Observer: observer, Field: field, Problem: fmt.Sprintf(format, args...)}
}

// What a config may have.
const (
	maxGlobs     = 100
	maxGlobBytes = 1 << 10
)

// checkGlobs refuses globs of which one is none: it would leave out less, or more,
// than it says.
func checkGlobs(observer, field string, globs []string) error {
	if len(globs) > maxGlobs {
		return badConfig(observer, field, "has %d globs; at most %d are taken", len(globs), maxGlobs)
	}
	for i, g := range globs {
		at := fmt.Sprintf("%s[%d]", field, i)
		if g == "" || len(g) > maxGlobBytes {
			return badConfig(observer, at, "must be a glob of 1 to %d bytes, such as memory_*", maxGlobBytes)
		}
		if _, err := path.Match(g, ""); err != nil {
			return badConfig(observer, at, "%q is no glob, such as memory_*", g)
		}
	}
	return nil
}

// asJSON is a config as it is stored.
func asJSON(config any) string {
	text, _ := json.Marshal(config) // configs always encode
	return string(text)
}
