package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// head is what the answers of all gates have in common. The names of an answer
// are its JSON and the table in docs/webhooks.md.
type head struct {
	ID          string            `json:"id"`
	Action      hooks.Action      `json:"action"`
	Reason      hooks.Reason      `json:"reason,omitzero"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func (h *head) common() *head { return h }

// elementSize is what an element of a list, or a member of a map, counts of the
// reply limit, as it does in what hooks answer: so that a million empty ones are
// not free.
const elementSize = 32

// errElements: there are more elements than the limit lets be.
var errElements = errors.New("the answer has too many elements")

// decode reads an answer into v, a pointer to a struct. An answer has exactly
// the names of v's type, each once and in their own case, and values of their
// types: null is none. What is read in two ways by two readers is refused, too.
// Errors say where, and repeat nothing of the answer.
func decode(raw []byte, limit int, v any) error {
	switch {
	case !utf8.Valid(raw):
		return errors.New("the answer is not UTF-8")
	case !json.Valid(raw):
		return errors.New("the answer is not one JSON document")
	case loneSurrogate(raw):
		return errors.New("the answer has half a character in an escape")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	s := shape{tokens: d, elements: limit / elementSize}
	if err := s.check(reflect.TypeOf(v).Elem(), "the answer"); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return errors.New("the answer has a number that does not fit") // its shape is right
	}
	return nil
}

// shape compares JSON with a type, token by token.
type shape struct {
	tokens   *json.Decoder
	elements int
}

// next returns the next token of JSON that is known to be valid.
func (s *shape) next() json.Token {
	t, _ := s.tokens.Token()
	return t
}

// check reads one value, which stands at where and has to be of type t.
func (s *shape) check(t reflect.Type, where string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	ok, token := false, s.next()
	switch t.Kind() {
	case reflect.Struct:
		if token == json.Delim('{') {
			return s.object(t, where)
		}
	case reflect.Map:
		if token == json.Delim('{') {
			return s.mapping(t, where)
		}
	case reflect.Slice:
		if token == json.Delim('[') {
			return s.list(t, where)
		}
	case reflect.String:
		_, ok = token.(string)
	case reflect.Bool:
		_, ok = token.(bool)
	case reflect.Int64:
		_, ok = token.(json.Number)
	default:
		panic("webhook: no answer has a " + t.String())
	}
	if !ok {
		return fmt.Errorf("%s is not %s", where, wanted[t.Kind()])
	}
	return nil
}

var wanted = map[reflect.Kind]string{
	reflect.Struct: "an object", reflect.Map: "an object", reflect.Slice: "a list", reflect.String: "a text",
	reflect.Bool: "true or false", reflect.Int64: "a number",
}

func (s *shape) object(t reflect.Type, where string) error {
	fields, seen := members(t), map[string]bool{}
	for s.tokens.More() {
		name, _ := s.next().(string)
		field, known := fields[name]
		switch {
		case !known:
			return fmt.Errorf("%s has a key that is none at this gate", where)
		case seen[name]:
			return fmt.Errorf("%s has the key %s twice", where, name)
		}
		seen[name] = true
		if err := s.check(field, name); err != nil {
			return err
		}
	}
	s.next()
	return nil
}

func (s *shape) mapping(t reflect.Type, where string) error {
	seen := map[string]bool{}
	for s.tokens.More() {
		name, _ := s.next().(string)
		if seen[name] {
			return fmt.Errorf("%s has a key twice", where)
		}
		seen[name] = true
		if err := s.element(t.Elem(), "a value in "+where); err != nil {
			return err
		}
	}
	s.next()
	return nil
}

func (s *shape) list(t reflect.Type, where string) error {
	for s.tokens.More() {
		if err := s.element(t.Elem(), "an element of "+where); err != nil {
			return err
		}
	}
	s.next()
	return nil
}

func (s *shape) element(t reflect.Type, where string) error {
	if s.elements--; s.elements < 0 {
		return errElements
	}
	return s.check(t, where)
}

// members are the names and types of a struct's fields, also of those that it
// embeds.
func members(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && f.IsExported() {
			all[name] = f.Type
		}
	}
	return all
}

// loneSurrogate reports whether a text has an escape of half a character that
// the other half does not follow. Readers make different things of those.
func loneSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' { // only texts have any
			continue
		}
		i++
		if raw[i] != 'u' {
			continue
		}
		first := escaped(raw[i+1:])
		i += 4
		if !utf16.IsSurrogate(first) {
			continue
		}
		rest := raw[i+1:]
		if !bytes.HasPrefix(rest, []byte(`\u`)) || utf16.DecodeRune(first, escaped(rest[2:])) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

// escaped is the number that four hex digits make.
func escaped(digits []byte) rune {
	n, _ := strconv.ParseUint(string(digits[:4]), 16, 16) // they are valid
	return rune(n)
}

// encode is the form in which hooks are recorded: see hooks' ledger.
func encode(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("webhook: encode: " + err.Error()) // what it is given always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}
