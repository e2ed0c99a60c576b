package builtin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

const (
	// maxSchemaDepth is how deep the JSON of a schema may be: to read it takes a time
	// that grows with the square.
	maxSchemaDepth = 100
	// maxSchemaSteps is how many schemas one value may be compared with.
	maxSchemaSteps = 10_000
)

// shallow refuses JSON that is too deep for a schema. What else is wrong with it is for
// the next to say who reads it.
func shallow(raw json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	for depth := 0; ; {
		t, err := d.Token()
		if err != nil {
			return nil //nolint:nilerr // the next says what is wrong, or it is the end
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth > maxSchemaDepth {
			return fmt.Errorf("it is deeper than %d levels", maxSchemaDepth)
		}
	}
}

// bounded says whether the comparison of a value with the schema comes to an end, and
// soon. One that refers to itself about the same value would be followed until the
// stack has no room, which ends the process.
func bounded(s *jsonschema.Schema) error {
	// Names are as the schema was understood, not as they were written.
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	w := &schemaWalk{steps: map[string]int{}}
	if err := json.Unmarshal(text, &w.root); err != nil {
		return err
	}
	return w.all(place{"#", w.root})
}

// place is a schema as JSON, and its JSON pointer behind a "#".
type place struct {
	at     string
	schema any
}

func (p place) in(key string, schema any) place {
	return place{p.at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key), schema}
}

// The keywords of a schema that have schemas: one, a list, or an object of them. Those
// of the first kind are about the same value as the schema itself, those of the second
// about parts of it.
var (
	aboutValue = []string{"allOf", "anyOf", "oneOf", "not", "if", "then", "else"}
	aboutParts = []string{
		"prefixItems", "items", "additionalItems", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties", "contentSchema",
	}
	namedAboutValue = []string{"dependentSchemas", "dependencies"}
	namedAboutParts = []string{"properties", "patternProperties", "$defs", "definitions"}
)

// below are the schemas that stand in p under one of these keywords.
func (p place) below(keywords, named []string) (out []place) {
	s, _ := p.schema.(map[string]any)
	for _, key := range keywords {
		switch v := s[key].(type) {
		case []any:
			for i, one := range v {
				out = append(out, p.in(key, v).in(strconv.Itoa(i), one))
			}
		case map[string]any:
			out = append(out, p.in(key, v))
		}
	}
	for _, key := range named {
		members, _ := s[key].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			out = append(out, p.in(key, members).in(name, members[name]))
		}
	}
	return out
}

// schemaWalk is a look at all schemas that there are in one.
type schemaWalk struct {
	root any
	// steps are how many schemas a value is compared with that is compared with the one
	// at a place; 0 says that they are being counted.
	steps map[string]int
}

func (w *schemaWalk) all(p place) error {
	if _, err := w.count(p); err != nil {
		return err
	}
	for _, child := range append(p.below(aboutValue, namedAboutValue), p.below(aboutParts, namedAboutParts)...) {
		if err := w.all(child); err != nil {
			return err
		}
	}
	return nil
}

func (w *schemaWalk) count(p place) (int, error) {
	switch n, met := w.steps[p.at]; {
	case met && n == 0:
		return 0, fmt.Errorf("%s refers to itself about the same value", p.at)
	case met:
		return n, nil
	}
	w.steps[p.at] = 0
	next := p.below(aboutValue, namedAboutValue)
	to, err := w.refers(p)
	if err != nil {
		return 0, err
	}
	sum := 1
	for _, child := range append(next, to...) {
		n, err := w.count(child)
		if err != nil {
			return 0, err
		}
		if sum += n; sum > maxSchemaSteps {
			return 0, fmt.Errorf("at %s a value is compared more than %d times", p.at, maxSchemaSteps)
		}
	}
	w.steps[p.at] = sum
	return sum, nil
}

// refers is what a schema refers to: one place or none.
func (w *schemaWalk) refers(p place) ([]place, error) {
	s, _ := p.schema.(map[string]any)
	if _, other := s["$id"].(string); other && p.at != "#" {
		return nil, fmt.Errorf("%s has an $id: only the whole schema may", p.at)
	}
	if _, dynamic := s["$dynamicRef"].(string); dynamic {
		return nil, fmt.Errorf("%s has a $dynamicRef: it has to be a $ref", p.at)
	}
	ref, refers := s["$ref"].(string)
	if !refers {
		return nil, nil
	}
	wrong := fmt.Errorf("%s refers to %q: that has to be a place within the schema, such as #/$defs/name", p.at, ref)
	pointer, err := url.PathUnescape(strings.TrimPrefix(ref, "#"))
	if err != nil || ref == "" || ref[0] != '#' || pointer != "" && pointer[0] != '/' {
		return nil, wrong
	}
	to := place{"#", w.root}
	for _, part := range strings.Split(pointer, "/")[1:] {
		if to, err = to.member(strings.NewReplacer("~1", "/", "~0", "~").Replace(part)); err != nil {
			return nil, wrong
		}
	}
	return []place{to}, nil
}

var errNoMember = errors.New("there is no such member")

// member is one step of a JSON pointer.
func (p place) member(key string) (place, error) {
	switch v := p.schema.(type) {
	case map[string]any:
		if one, found := v[key]; found {
			return p.in(key, one), nil
		}
	case []any:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(v) {
			return p.in(strconv.Itoa(i), v[i]), nil
		}
	}
	return place{}, errNoMember
}
