package guard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// What a config may have.
const (
	maxListed = 100
	maxText   = 1 << 10
)

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
