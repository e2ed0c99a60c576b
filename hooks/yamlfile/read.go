package yamlfile

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// KindOf names what a node is, for errors.
func KindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	return strconv.Quote(Cut(n.Value, 40))
}

// IsText reports whether a scalar is one that says what it is: `no` and 12 in
// the place of a text are more likely slips.
func IsText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Tag == "!!str" || n.Tag == "!!timestamp")
}

// isNull reports whether nothing stands there.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// Fields calls read for each key of a mapping that it knows, in the order of the
// file, and notes the others.
func (f *File) Fields(n *yaml.Node, what string, known map[string]func(*yaml.Node)) bool {
	if n.Kind != yaml.MappingNode {
		f.ErrorAt(n, "expected %s as a mapping, not %s", what, KindOf(n))
		return false
	}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		read := known[key.Value]
		if read == nil {
			f.ErrorAt(key, "%s has no key %q; expected one of %s", what, Cut(key.Value, MaxIDBytes), strings.Join(slices.Sorted(maps.Keys(known)), ", "))
			continue
		}
		read(value)
	}
	return true
}

// Items are those of a list; a single value is a list of one.
func Items(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

// Text reads a text that is not blank.
func (f *File) Text(n *yaml.Node, what string) (string, bool) {
	switch {
	case !IsText(n):
		f.ErrorAt(n, "expected %s as a text, not %s", what, KindOf(n))
		return "", false
	case strings.TrimSpace(n.Value) == "":
		f.ErrorAt(n, "expected %s; it is empty", what)
		return "", false
	case len(n.Value) > MaxTextBytes:
		f.ErrorAt(n, "%s has %d bytes; at most %d are taken", what, len(n.Value), MaxTextBytes)
		return "", false
	}
	return n.Value, true
}

// Word reads one of several words.
func (f *File) Word(n *yaml.Node, what string, words ...string) string {
	if n.Kind == yaml.ScalarNode && slices.Contains(words, n.Value) {
		return n.Value
	}
	f.ErrorAt(n, "%s is %s; expected one of %s", what, KindOf(n), strings.Join(words, ", "))
	return ""
}

// Identifier reads an id or a code: they are columns and stand in URLs and logs.
func (f *File) Identifier(n *yaml.Node, what string) string {
	v, ok := f.Text(n, what)
	if !ok {
		return ""
	}
	for _, r := range v {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !letter && !strings.ContainsRune("._-", r) {
			f.ErrorAt(n, "%s is %q; expected letters, digits, . _ and -", what, Cut(v, MaxIDBytes))
			return ""
		}
	}
	if len(v) > MaxIDBytes {
		f.ErrorAt(n, "%s has %d bytes; at most %d are taken", what, len(v), MaxIDBytes)
		return ""
	}
	return v
}

// Globs reads one glob or a list of them.
func (f *File) Globs(n *yaml.Node, what string) []string {
	list := Items(n)
	if len(list) == 0 || len(list) > maxGlobs {
		f.ErrorAt(n, "%s has %d globs; expected 1 to %d", what, len(list), maxGlobs)
		return nil
	}
	var out []string
	for _, item := range list {
		g, ok := f.Text(item, what)
		if !ok {
			continue
		}
		if _, err := path.Match(g, ""); err != nil || len(g) > maxGlobBytes {
			f.ErrorAt(item, "%s: %q is no glob, such as memory_*", what, Cut(g, maxGlobBytes))
			continue
		}
		out = append(out, g)
	}
	return out
}

// Duration reads a time from least to most.
func (f *File) Duration(n *yaml.Node, what string, least, most time.Duration) time.Duration {
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d < least || d > most {
		f.ErrorAt(n, "%s is %s; expected a time from %s to %s, such as 200ms", what, KindOf(n), least, most)
		return 0
	}
	return d
}

// Boolean reads true or false.
func (f *File) Boolean(n *yaml.Node, what string) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		f.ErrorAt(n, "%s is %s; expected true or false", what, KindOf(n))
		return false
	}
	return strings.EqualFold(n.Value, "true")
}

// Number reads a whole number from 0.
func (f *File) Number(n *yaml.Node, what string) int {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil || v < 0 {
		f.ErrorAt(n, "%s is %s; expected a number from 0", what, KindOf(n))
		return 0
	}
	return v
}
