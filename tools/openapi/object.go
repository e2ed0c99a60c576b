package main

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// object is a JSON object that keeps its order. The zero value is empty.
type object []member

type member struct {
	name  string
	value any
}

// set adds a member behind the others.
func (o *object) set(name string, value any) { *o = append(*o, member{name, value}) }

// MarshalJSON implements [json.Marshaler].
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := encoder.Encode(m.name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := encoder.Encode(m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// parse reads a JSON object whose values stay as they are.
func parse(text []byte) (object, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	start, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	if start != json.Delim('{') {
		return nil, fmt.Errorf("begins with %v and not with an object", start)
	}
	var o object
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		o.set(name.(string), value) // the decoder takes no other names
	}
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	return o, nil
}

// extend adds members to the object at a path, which must be there. A name that
// it has already is an error: one of the two would be lost.
func (o object) extend(more object, path ...string) error {
	for i := range o {
		if o[i].name != path[0] {
			continue
		}
		inner, err := parse(o[i].value.(json.RawMessage)) // parse made o
		if err != nil {
			return fmt.Errorf("%s: %w", path[0], err)
		}
		if len(path) > 1 {
			if err := inner.extend(more, path[1:]...); err != nil {
				return fmt.Errorf("%s: %w", path[0], err)
			}
			o[i].value = inner
			return nil
		}
		inner = append(inner, more...)
		have := map[string]bool{}
		for _, m := range inner {
			if have[m.name] {
				return fmt.Errorf("%s: %q is there twice", path[0], m.name)
			}
			have[m.name] = true
		}
		o[i].value = inner
		return nil
	}
	return fmt.Errorf("%s: is missing", path[0])
}
