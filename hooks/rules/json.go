package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// value is a piece of JSON whose scalars keep the bytes that they were written
// with, and whose objects keep their order. Exactly one of the fields is set.
type value struct {
	// raw is a scalar as JSON.
	raw     string
	object  *object
	array   []value
	isArray bool
}

type object struct{ members []member }

type member struct {
	name  string
	value value
}

func (o *object) index(name string) int {
	for i := range o.members {
		if o.members[i].name == name {
			return i
		}
	}
	return -1
}

func (v value) isNull() bool { return v.raw == "null" }

// text is the value as a text; ok is false if it is another scalar, an object
// or an array.
func (v value) text() (s string, ok bool) {
	if !strings.HasPrefix(v.raw, `"`) {
		return "", false
	}
	if inner := v.raw[1 : len(v.raw)-1]; strings.IndexByte(inner, '\\') < 0 {
		return inner, true
	}
	err := json.Unmarshal([]byte(v.raw), &s)
	return s, err == nil
}

func textValue(s string) value { return value{raw: quote(s)} }

// quote writes a text as JSON, without HTML escapes.
func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // texts always encode
	return strings.TrimSuffix(b.String(), "\n")
}

func (v value) write(b *strings.Builder) {
	switch {
	case v.object != nil:
		b.WriteByte('{')
		for i, m := range v.object.members {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(quote(m.name))
			b.WriteByte(':')
			m.value.write(b)
		}
		b.WriteByte('}')
	case v.isArray:
		b.WriteByte('[')
		for i, e := range v.array {
			if i > 0 {
				b.WriteByte(',')
			}
			e.write(b)
		}
		b.WriteByte(']')
	default:
		b.WriteString(v.raw)
	}
}

// String is the value as JSON.
func (v value) String() string {
	var b strings.Builder
	v.write(&b)
	return b.String()
}

var (
	errDeep    = fmt.Errorf("JSON that is nested more than %d deep", maxJSONNesting)
	errMany    = fmt.Errorf("JSON of more than %d values", maxJSONValues)
	errNotUTF8 = errors.New("JSON that is not UTF-8")
)

// decode reads one piece of JSON. A member that stands twice is an error: of
// its two values a rule would see one, and a tool maybe the other.
func decode(text string) (value, error) {
	if !utf8.ValidString(text) {
		return value{}, errNotUTF8
	}
	var raw json.RawMessage
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return value{}, fmt.Errorf("not JSON: %w", err)
	}
	s := scanner{text: text, left: maxJSONValues}
	return s.next(0)
}

// scanner takes valid JSON apart.
type scanner struct {
	text string
	at   int
	// left is how many values may follow.
	left int
}

// skip goes on to what is neither white space nor between values.
func (s *scanner) skip() byte {
	for s.at < len(s.text) && strings.IndexByte(" \t\r\n,:", s.text[s.at]) >= 0 {
		s.at++
	}
	return s.text[s.at]
}

func (s *scanner) next(depth int) (value, error) {
	if depth > maxJSONNesting {
		return value{}, errDeep
	}
	if s.left--; s.left < 0 {
		return value{}, errMany
	}
	switch s.skip() {
	case '[':
		return s.array(depth)
	case '{':
		return s.object(depth)
	case '"':
		return value{raw: s.quoted()}, nil
	}
	begin := s.at
	for s.at < len(s.text) && strings.IndexByte(" \t\r\n,:]}", s.text[s.at]) < 0 {
		s.at++
	}
	return value{raw: s.text[begin:s.at]}, nil
}

// quoted is the text that begins here, with its quotes.
func (s *scanner) quoted() string {
	begin := s.at
	for s.at++; s.text[s.at] != '"'; s.at++ {
		if s.text[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
	return s.text[begin:s.at]
}

func (s *scanner) array(depth int) (value, error) {
	v := value{isArray: true}
	for s.at++; s.skip() != ']'; {
		e, err := s.next(depth + 1)
		if err != nil {
			return value{}, err
		}
		v.array = append(v.array, e)
	}
	s.at++
	return v, nil
}

func (s *scanner) object(depth int) (value, error) {
	o := &object{}
	var seen map[string]bool
	for s.at++; s.skip() != '}'; {
		name, _ := value{raw: s.quoted()}.text()
		if seen == nil {
			seen = map[string]bool{}
		}
		if seen[name] {
			return value{}, fmt.Errorf("the member %q stands twice", yamlfile.Cut(name, yamlfile.MaxIDBytes))
		}
		seen[name] = true
		v, err := s.next(depth + 1)
		if err != nil {
			return value{}, err
		}
		o.members = append(o.members, member{name, v})
	}
	s.at++
	return value{object: o}, nil
}

// merge is target after a merge patch (RFC 7396). What the patch does not name
// keeps its bytes, but for white space between values.
func merge(target, patch value) value {
	if patch.object == nil {
		return patch
	}
	out := &object{}
	if target.object != nil {
		out.members = append(out.members, target.object.members...)
	}
	for _, m := range patch.object.members {
		i := out.index(m.name)
		switch {
		case m.value.isNull() && i >= 0:
			out.members = append(out.members[:i], out.members[i+1:]...)
		case m.value.isNull():
		case i >= 0:
			out.members[i].value = merge(out.members[i].value, m.value)
		default:
			out.members = append(out.members, member{m.name, merge(value{}, m.value)})
		}
	}
	return value{object: out}
}

// number is how JSON writes one. YAML's other ways are not taken: two readers
// would not agree on what they mean.
var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// literal is a scalar of a file as JSON, digit for digit.
func (s *source) literal(n *yaml.Node) (value, bool) {
	switch {
	case yamlfile.IsText(n):
		return textValue(n.Value), true
	case n.Tag == "!!null":
		return value{raw: "null"}, true
	case n.Tag == "!!bool":
		return value{raw: strings.ToLower(n.Value)}, true
	case number.MatchString(n.Value):
		return value{raw: n.Value}, true
	}
	s.ErrorAt(n, "%s is not a number as JSON writes it; quote it if it is a text", yamlfile.KindOf(n))
	return value{}, false
}

// plain is a node as JSON, in which texts are what they are.
func (s *source) plain(n *yaml.Node) value {
	if n.Kind == yaml.MappingNode {
		o := &object{}
		for i := 0; i < len(n.Content); i += 2 {
			o.members = append(o.members, member{n.Content[i].Value, s.plain(n.Content[i+1])})
		}
		return value{object: o}
	}
	if n.Kind == yaml.SequenceNode {
		v := value{isArray: true}
		for _, c := range n.Content {
			v.array = append(v.array, s.plain(c))
		}
		return v
	}
	v, _ := s.literal(n)
	return v
}
