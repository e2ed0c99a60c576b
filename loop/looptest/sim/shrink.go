package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// plays is how often a schedule is played to make it shorter.
const plays = 600

// Shrink plays a schedule that broke a promise with fewer and simpler choices, as
// long as the same promise is broken, and returns the last one that did, with its
// trace.
func Shrink(t *testing.T, r Result, m Mutation) Result {
	t.Helper()
	best, left := r.chosen, plays
	breaks := func(list []uint32) bool {
		left--
		again := play(t, played(list), m, false)
		if again.Found == nil || again.Found.Rule != r.Found.Rule {
			return false
		}
		// What comes behind the violation is nobody's choice any more.
		best = again.chosen[:min(len(list), len(again.chosen))]
		return true
	}
	for size := len(best) / 2; size > 0; size /= 2 {
		for at := 0; at < len(best) && left > 0; {
			end := min(at+size, len(best))
			simpler := slices.Clone(best)
			clear(simpler[at:end])
			switch {
			case breaks(slices.Delete(slices.Clone(best), at, end)):
			case !slices.Equal(simpler, best) && breaks(simpler):
				at = end
			default:
				at = end
			}
		}
	}
	return play(t, played(best), m, true)
}

// Told is a schedule in words: what broke, and the steps that led there.
func (r Result) Told() string {
	if r.Found == nil {
		return "nothing was broken"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Found)
	for _, line := range r.Trace {
		fmt.Fprintf(&b, "%s\n", line)
		if strings.Contains(line, "VIOLATED") {
			break
		}
	}
	return b.String()
}
