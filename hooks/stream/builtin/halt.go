package builtin

import (
	"cmp"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/hooks/setting"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// HaltOnPatternConfig says what stops an answer.
type HaltOnPatternConfig struct {
	// Patterns are regular expressions as package regexp knows them (RE2), of which
	// one has to be found; empty is [RefusalPatterns].
	Patterns []string `json:"patterns,omitempty" yaml:"patterns"`
	// Lanes are those that are looked at; empty is the text alone. In the arguments
	// of tools a pattern sees JSON as it is written, with its escapes.
	Lanes []stream.Lane `json:"lanes,omitempty" yaml:"lanes"`
	// Window is how many bytes may be between the ends of what is found, at most
	// [MaxHaltWindow]; 0 is 4 KiB. What is longer is not found.
	Window int `json:"window,omitempty" yaml:"window,positive"`
	// Reason is what is said to people, and to a model that is asked again; ""
	// says that the answer matched a pattern.
	Reason string `json:"reason,omitempty" yaml:"reason"`
}

// What a config may have.
const (
	// MaxHaltWindow is how large a window may be.
	MaxHaltWindow = 16 << 10

	defaultHaltWindow = 4 << 10
	maxHaltPatterns   = 32
)

// The reasons where none is configured.
const (
	reasonPattern = "The answer matched a pattern that is not to be in answers."
	reasonRefusal = "The answer reads like a refusal."
)

// RefusalPatterns are the phrases with which models refuse in English. They are
// an example and no judgement: a refusal in other words, or in another language,
// is not found, and whoever quotes one of them is. What is common in honest
// answers, such as «I can't find the order», is left out.
func RefusalPatterns() []string {
	const (
		cannot = `(?:can['’]?t|cannot|can not|won['’]?t|will not|am unable to|am not able to)`
		deeds  = `(?:help|assist|comply|do that|provide|fulfil|fulfill|support|discuss|generate|create|write|share|engage|participate)`
	)
	return []string{
		`(?i)\bI ` + cannot + ` ` + deeds + `\b`,
		`(?i)\bI['’]m (?:sorry, I['’]m )?(?:unable|not able) to ` + deeds + `\b`,
		`(?i)\bas an AI(?: language)?(?: model| assistant)?,? I (?:` + cannot + `|don['’]t|do not)\b`,
		`(?i)\bI (?:must|have to) (?:respectfully |politely )?(?:decline|refuse)\b`,
		`(?i)\b(?:goes against|violates|would violate|is against) (?:my|our) (?:guidelines|policy|policies|content policy|content policies|programming|principles)\b`,
	}
}

// HaltOnPattern stops an answer when a pattern is found in it, before the chunk
// with which it is found: what came before is accepted. Which chunk that is
// depends on where the provider splits the answer; whether it is stopped does not.
//
// A condition about what follows, such as \b at the end of a pattern, holds when
// the next character has come, at the latest at the end of the answer.
//
// Of what it sees nothing is kept, and nothing is in the reason.
func HaltOnPattern(c HaltOnPatternConfig) (stream.Registration, error) {
	const kind = "halt_on_pattern"
	bad := func(field, format string, args ...any) (stream.Registration, error) {
		return stream.Registration{}, setting.Errorf(kind, field, format, args...)
	}
	switch {
	case len(c.Patterns) > maxHaltPatterns:
		return bad("patterns", "has %d patterns; at most %d are taken", len(c.Patterns), maxHaltPatterns)
	case c.Window < 0 || c.Window > MaxHaltWindow:
		return bad("window", "must be 1 to %d bytes", MaxHaltWindow)
	case len(c.Reason) > stream.MaxReason || !utf8.ValidString(c.Reason) || strings.IndexByte(c.Reason, 0) >= 0:
		return bad("reason", "must be a text of at most %d bytes", stream.MaxReason)
	}
	lanes, err := lanesOf(kind, c.Lanes, stream.LaneText)
	if err != nil {
		return stream.Registration{}, err
	}
	patterns, reason := c.Patterns, cmp.Or(c.Reason, reasonPattern)
	if len(patterns) == 0 {
		patterns, reason = RefusalPatterns(), cmp.Or(c.Reason, reasonRefusal)
	}
	var parsed []*syntax.Regexp
	for i, p := range patterns {
		re, err := parsePattern(p)
		if err != nil {
			return bad(fmt.Sprintf("patterns[%d]", i), "%v", err)
		}
		parsed = append(parsed, re)
	}
	n, about, err := newNeedle(parsed, cmp.Or(c.Window, defaultHaltWindow))
	switch {
	case err != nil && about < 0:
		return bad("patterns", "%v", err)
	case err != nil:
		return bad(fmt.Sprintf("patterns[%d]", about), "%v", err)
	}
	return stream.Registration{
		ID: "halt-on-pattern", Version: "1", Config: asJSON(c),
		New: func(stream.Call) stream.Observer {
			return &halt{needle: n, lanes: lanes, reason: reason}
		},
	}, nil
}

// halt is the observer of one attempt.
type halt struct {
	needle *needle
	lanes  []stream.Lane
	reason string
	open   opened[*search]
}

// OnChunk implements [stream.Observer].
func (h *halt) OnChunk(c stream.Chunk) stream.Verdict {
	if c.Kind == stream.KindFinish || !slices.Contains(h.lanes, c.Lane) {
		return stream.Continue()
	}
	name := blockName{c.Lane, c.BlockID}
	s, ok := h.open.get(name)
	if !ok {
		s = h.needle.search()
		h.open.put(name, s)
	}
	found := false
	if c.Kind == stream.KindEnd {
		found = s.end()
		h.open.drop(name)
	} else {
		found = s.take(c.Text)
	}
	if found {
		return stream.Stop(h.reason)
	}
	return stream.Continue()
}

// OnEnd implements [stream.Observer].
func (h *halt) OnEnd(stream.Summary) { h.open = opened[*search]{} }
