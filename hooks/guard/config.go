package guard

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// ConfigError says which field of a guard's config cannot be meant, and why.
type ConfigError struct {
	// Guard is the kind, such as deny_tools.
	Guard string
	// Field is its name in a configuration file, such as tools[2], "" for the
	// config as a whole.
	Field string
	// Problem says what was expected.
	Problem string
}

// Error returns the three as one line.
func (e *ConfigError) Error() string {
	if e.Field == "" {
		return e.Guard + ": " + e.Problem
	}
	return e.Guard + ": " + e.Field + ": " + e.Problem
}

// badConfig makes a [ConfigError].
func badConfig(guard, field, format string, args ...any) error {
	return &ConfigError{Guard: guard, Field: field, Problem: fmt.Sprintf(format, args...)}
}

// What a config may have.
const (
	maxGlobs    = 100
	maxListed   = 100
	maxText     = 1 << 10
	maxPatterns = 32
)

// checkGlobs refuses globs of which one is none: a guard with such a one would
// guard less than it says.
func checkGlobs(guard, field string, globs []string) error {
	if len(globs) > maxGlobs {
		return badConfig(guard, field, "has %d globs; at most %d are taken", len(globs), maxGlobs)
	}
	for i, g := range globs {
		at := fmt.Sprintf("%s[%d]", field, i)
		if g == "" || len(g) > maxText {
			return badConfig(guard, at, "must be a glob of 1 to %d bytes, such as memory_*", maxText)
		}
		if _, err := path.Match(g, ""); err != nil {
			return badConfig(guard, at, "%q is no glob, such as memory_*", g)
		}
	}
	return nil
}

// oneMatches reports which of well-formed globs name matches.
func oneMatches(globs []string, name string) (string, bool) {
	i := slices.IndexFunc(globs, func(g string) bool {
		hit, _ := hooks.MatchName(g, name)
		return hit
	})
	if i < 0 {
		return "", false
	}
	return globs[i], true
}

// given is what is registered where opts say nothing else: a check of the
// host's, with its config as JSON.
func given(config any, phase hooks.Phase, opts []hooks.Option, own ...hooks.Option) []hooks.Option {
	text, _ := json.Marshal(config) // configs always encode
	all := append([]hooks.Option{hooks.InPhase(phase), hooks.OfKind(hooks.KindHost), hooks.WithConfig(string(text))}, own...)
	return append(all, opts...)
}

// registered is what opts make of a registration under id.
func registered(id string, opts []hooks.Option) hooks.Registration {
	r := hooks.Registration{ID: id}
	for _, o := range opts {
		o(&r)
	}
	return r
}

// shorten cuts what is shown of s to n bytes, as whole characters.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// quoted is s as it is shown in a reason: cut, and without what would make it
// look like something else.
func quoted(s string) string { return fmt.Sprintf("%q", shorten(s, maxShown)) }

// maxShown is how much is shown of a name or a value that a model wrote.
const maxShown = 80

// maxRule is how long the name of a rule is recorded.
const maxRule = 128
