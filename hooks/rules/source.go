package rules

import (
	"errors"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// source is one file that is being read.
type source struct {
	name     string
	lines    [][]rune
	root     *yaml.Node
	problems *problems
}

// errorAt notes what is wrong at a node.
func (s *source) errorAt(n *yaml.Node, format string, args ...any) {
	s.problems.add(s.name, placeOf(n), format, args...)
}

func placeOf(n *yaml.Node) place { return place{line: n.Line, column: n.Column} }

// parse reads the YAML of a file. It returns nil if there is nothing to go on
// with, and has noted why.
func parse(name string, text []byte, p *problems) *source {
	s := &source{name: name, problems: p}
	switch {
	case len(text) > MaxFileBytes:
		p.add(name, place{}, "the file has %d bytes; at most %d are read", len(text), MaxFileBytes)
		return nil
	case !utf8.Valid(text):
		p.add(name, place{}, "the file is not UTF-8")
		return nil
	case strings.TrimSpace(string(text)) == "":
		p.add(name, place{}, "the file is empty; expected a mapping with the key rules")
		return nil
	}
	if at, r := otherBreak(string(text)); r != 0 {
		p.add(name, at, "U+%04X ends a line for some readers and not for others: write line feeds between lines, and this one in a quoted text as an escape", r)
		return nil
	}
	var doc yaml.Node
	err := yaml.Load(text, &doc, yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxNesting), loaderlimits.AliasNone())))
	if err != nil {
		at := place{}
		var bad *yaml.LoadError
		if errors.As(err, &bad) {
			at, err = place{line: bad.Mark.Line, column: bad.Mark.Column}, errors.New(bad.Message)
		}
		p.add(name, at, "not YAML that is read here: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	}
	for line := range strings.Lines(string(text)) {
		s.lines = append(s.lines, []rune(strings.TrimRight(line, "\r\n")))
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		p.add(name, place{}, "expected one document with the key rules")
		return nil
	}
	s.root = doc.Content[0]
	budget := maxNodes
	if !s.sound(s.root, &budget) {
		return nil
	}
	return s
}

// sound refuses what YAML has and a file of rules does not: names for other
// places, tags, and a key twice.
func (s *source) sound(n *yaml.Node, budget *int) bool {
	*budget--
	switch {
	case *budget < 0:
		s.errorAt(n, "the file has too many values")
		return false
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		s.errorAt(n, "anchors and aliases are not read here; write it out")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		s.errorAt(n, "tags such as %s are not read here", n.Tag)
		return false
	}
	ok := true
	var seen map[string]bool
	if n.Kind == yaml.MappingNode {
		seen = make(map[string]bool, len(n.Content)/2)
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			switch {
			case c.Kind != yaml.ScalarNode:
				s.errorAt(c, "expected a text as the key")
				ok = false
			case seen[c.Value]:
				s.errorAt(c, "the key %q stands twice", cut(c.Value, maxIDBytes))
				ok = false
			}
			seen[c.Value] = true
		}
		ok = s.sound(c, budget) && ok
	}
	return ok
}

// cut shortens what is shown of a text to n bytes, not inside a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// find is where the character at offset of a scalar's value stands in the file.
// White space is not always where it was written: lines are folded. So what is
// compared is everything else, and a place between two words is that of the
// second. Where the two do not go together it is the beginning of the scalar.
func (s *source) find(n *yaml.Node, value []rune, offset int) place {
	at := placeOf(n)
	line, column := at.line-1, at.column-1
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		line, column = line+1, 0
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		column++
	}
	double := n.Style&yaml.DoubleQuotedStyle != 0
	single := n.Style&yaml.SingleQuotedStyle != 0
	for i := 0; ; i++ {
		for i < offset && i < len(value) && blank(value[i]) {
			i++
		}
		if i >= len(value) {
			return place{line: line + 1, column: column + 1}
		}
		for {
			switch {
			case line >= len(s.lines):
				return at
			case column >= len(s.lines[line]):
				line, column = line+1, 0
				continue
			case blank(s.lines[line][column]):
				column++
				continue
			case double && s.lines[line][column] == '\\' && column+1 < len(s.lines[line]) && strings.ContainsRune("ntr ", s.lines[line][column+1]):
				column += 2
				continue
			case double && s.lines[line][column] == '\\' && column+1 == len(s.lines[line]):
				column++
				continue
			}
			break
		}
		if i >= offset {
			return place{line: line + 1, column: column + 1}
		}
		step, ok := written(s.lines[line][column:], value[i], single, double)
		if !ok {
			return at
		}
		column += step
	}
}

func blank(r rune) bool { return r == ' ' || r == '\t' || r == '\n' }

// written is how many characters stand in the file for r.
func written(raw []rune, r rune, single, double bool) (int, bool) {
	switch {
	case single && r == '\'' && len(raw) > 1 && raw[1] == '\'':
		return 2, true
	case double && raw[0] == '\\' && len(raw) > 1:
		switch raw[1] {
		case 'x':
			return 4, true
		case 'u':
			return 6, true
		case 'U':
			return 10, true
		}
		return 2, true
	}
	return 1, raw[0] == r
}

// otherBreak finds the first character that YAML takes for the end of a line and
// most programs do not, so that the lines in an error would be others than those
// in an editor. It returns 0 for none.
func otherBreak(text string) (place, rune) {
	line := 0
	for one := range strings.Lines(text) {
		line++
		if rest, ok := strings.CutSuffix(one, "\n"); ok {
			one = strings.TrimSuffix(rest, "\r")
		}
		if i := strings.IndexAny(one, "\r\u0085\u2028\u2029"); i >= 0 {
			r, _ := utf8.DecodeRuneInString(one[i:])
			return place{line: line, column: utf8.RuneCountInString(one[:i]) + 1}, r
		}
	}
	return place{}, 0
}
