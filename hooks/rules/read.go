package rules

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// kindOf names what a node is, for errors.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	return strconv.Quote(cut(n.Value, 40))
}

// isText reports whether a scalar is one that says what it is: `no` and 12 in
// the place of a text are more likely slips.
func isText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Tag == "!!str" || n.Tag == "!!timestamp")
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// fields calls read for each key of a mapping that it knows, in the order of the
// file, and notes the others.
func (s *source) fields(n *yaml.Node, what string, known map[string]func(*yaml.Node)) bool {
	if n.Kind != yaml.MappingNode {
		s.errorAt(n, "expected %s as a mapping, not %s", what, kindOf(n))
		return false
	}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		read := known[key.Value]
		if read == nil {
			s.errorAt(key, "%s has no key %q; expected one of %s", what, cut(key.Value, maxIDBytes), strings.Join(slices.Sorted(maps.Keys(known)), ", "))
			continue
		}
		read(value)
	}
	return true
}

// items are those of a list; a single value is a list of one.
func items(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

// text reads a text that is not blank.
func (s *source) text(n *yaml.Node, what string) (string, bool) {
	switch {
	case !isText(n):
		s.errorAt(n, "expected %s as a text, not %s", what, kindOf(n))
		return "", false
	case strings.TrimSpace(n.Value) == "":
		s.errorAt(n, "expected %s; it is empty", what)
		return "", false
	case len(n.Value) > maxTextBytes:
		s.errorAt(n, "%s has %d bytes; at most %d are taken", what, len(n.Value), maxTextBytes)
		return "", false
	}
	return n.Value, true
}

// word reads one of several words.
func (s *source) word(n *yaml.Node, what string, words ...string) string {
	if n.Kind == yaml.ScalarNode && slices.Contains(words, n.Value) {
		return n.Value
	}
	s.errorAt(n, "%s is %s; expected one of %s", what, kindOf(n), strings.Join(words, ", "))
	return ""
}

// name reads an id or a code: they are columns and stand in URLs and logs.
func (s *source) identifier(n *yaml.Node, what string) string {
	v, ok := s.text(n, what)
	if !ok {
		return ""
	}
	for _, r := range v {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !letter && !strings.ContainsRune("._-", r) {
			s.errorAt(n, "%s is %q; expected letters, digits, . _ and -", what, cut(v, maxIDBytes))
			return ""
		}
	}
	if len(v) > maxIDBytes {
		s.errorAt(n, "%s has %d bytes; at most %d are taken", what, len(v), maxIDBytes)
		return ""
	}
	return v
}

// globs reads one glob or a list of them.
func (s *source) globs(n *yaml.Node, what string) []string {
	list := items(n)
	if len(list) == 0 || len(list) > maxGlobs {
		s.errorAt(n, "%s has %d globs; expected 1 to %d", what, len(list), maxGlobs)
		return nil
	}
	var out []string
	for _, item := range list {
		g, ok := s.text(item, what)
		if !ok {
			continue
		}
		if _, err := path.Match(g, ""); err != nil || len(g) > maxGlobBytes {
			s.errorAt(item, "%s: %q is no glob, such as memory_*", what, cut(g, maxGlobBytes))
			continue
		}
		out = append(out, g)
	}
	return out
}

func (s *source) duration(n *yaml.Node) time.Duration {
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d < minTimeLimit || d > MaxTimeLimit {
		s.errorAt(n, "timeout is %s; expected a time from %s to %s, such as 200ms", kindOf(n), minTimeLimit, MaxTimeLimit)
		return 0
	}
	return d
}

func (s *source) boolean(n *yaml.Node, what string) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		s.errorAt(n, "%s is %s; expected true or false", what, kindOf(n))
		return false
	}
	return strings.EqualFold(n.Value, "true")
}

func (s *source) number(n *yaml.Node, what string) int {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil || v < 0 {
		s.errorAt(n, "%s is %s; expected a number from 0", what, kindOf(n))
		return 0
	}
	return v
}
