package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/seed-2ca4966b/agentd/loop"
)

// ToolNames are the names of tools that a provider takes. A tool with another
// name is told to it under one that it takes, made of the tool's own name and a
// digest of it: always the same, so that a provider's cache of prompts stays
// good, and turned back in the answer.
type ToolNames struct {
	// Pattern is a regular expression that a whole name matches; "" means
	// OpenAI's, letters, digits, _ and -. It has to match names of lower-case
	// letters, digits and _ that begin with a letter, since that is what names
	// are made of that do not fit.
	Pattern string
	// MaxLength is the longest name in bytes; 0 means OpenAI's 64. It is at
	// least 24.
	MaxLength int
}

const (
	openAINames      = `[a-zA-Z0-9_-]+`
	openAINameLength = 64
	// minNameLength leaves a name something of its own beside the digest.
	minNameLength = 24
	// nameDigest is how many bytes of the digest a name gets.
	nameDigest = 5
)

// NameRule is a checked [ToolNames], which comes from [ToolNames.Compile]. The
// zero value is none and panics.
type NameRule struct {
	pattern *regexp.Regexp
	max     int
}

// Compile checks n.
func (n ToolNames) Compile() (NameRule, error) {
	rule := NameRule{max: n.MaxLength}
	if rule.max == 0 {
		rule.max = openAINameLength
	}
	if rule.max < minNameLength {
		return rule, fmt.Errorf("length of tool names: %d is less than %d", n.MaxLength, minNameLength)
	}
	pattern := n.Pattern
	if pattern == "" {
		pattern = openAINames
	}
	var err error
	if rule.pattern, err = regexp.Compile(pattern); err != nil {
		return rule, fmt.Errorf("pattern of tool names: %w", err)
	}
	rule.pattern.Longest() // an alternative that matches a part must not hide one that matches all
	for _, name := range []string{"/", "7.", strings.Repeat("abcxyz_0123456789.", 20)} {
		if made := rule.made(name); !rule.fits(made) {
			return rule, fmt.Errorf("pattern of tool names: %q does not match %s, and so no name could be made for a tool whose own does not fit", pattern, made)
		}
	}
	return rule, nil
}

// Wire is the name that the provider is told.
func (r NameRule) Wire(name string) string {
	if r.fits(name) {
		return name
	}
	return r.made(name)
}

func (r NameRule) fits(name string) bool {
	at := r.pattern.FindStringIndex(name)
	return len(name) <= r.max && at != nil && at[0] == 0 && at[1] == len(name)
}

// made is a name for a tool whose own does not fit.
func (r NameRule) made(name string) string {
	sum := sha256.Sum256([]byte(name))
	tail := "_" + hex.EncodeToString(sum[:nameDigest])
	own := strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			return c
		case 'A' <= c && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '_'
	}, name)
	if own == "" || own[0] < 'a' {
		own = "t_" + own
	}
	return own[:min(len(own), r.max-len(tail))] + tail
}

// ToolNames are the names of one request, from the wire to agentd's. Those in
// the history are among them, for a model that calls what it has called before.
func (r NameRule) ToolNames(req loop.ModelRequest) (map[string]string, error) {
	names := make(map[string]string)
	for _, t := range req.Tools {
		wire := r.Wire(t.Name)
		if other, taken := names[wire]; taken && other != t.Name {
			return nil, fmt.Errorf("the tools %s and %s have the same name, %s, for the provider", other, t.Name, wire)
		}
		names[wire] = t.Name
	}
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			if p.ToolCall == nil {
				continue
			}
			if wire := r.Wire(p.ToolCall.Name); names[wire] == "" {
				names[wire] = p.ToolCall.Name
			}
		}
	}
	return names, nil
}
