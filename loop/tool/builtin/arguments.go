package builtin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// arguments are what a model wrote, read once.
type arguments struct {
	// text is JSON without repeated keys: the model's own bytes, unless they
	// repeat one.
	text []byte
	// tree is the same as maps, slices, strings, booleans, nil and
	// [json.Number].
	tree any
}

// parseArguments reads JSON text; blank text is {}.
func parseArguments(raw json.RawMessage) (arguments, error) {
	text := bytes.TrimSpace(raw)
	if len(text) == 0 {
		text = []byte("{}")
	}
	// Unmarshal first: it refuses a nesting so deep that reading it token by
	// token would exhaust the stack.
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil {
		if errors.Is(json.NewDecoder(bytes.NewReader(text)).Decode(new(json.RawMessage)), io.ErrUnexpectedEOF) {
			return arguments{}, errors.New("arguments are cut off: their JSON ends in the middle")
		}
		return arguments{}, fmt.Errorf("arguments are not valid JSON: %w", err)
	}
	p := parser{dec: json.NewDecoder(bytes.NewReader(text))}
	p.dec.UseNumber()
	tree := p.value()
	if p.repeated {
		text, _ = json.Marshal(tree) // such a tree always has a JSON form
	}
	return arguments{text: text, tree: tree}, nil
}

// parser builds the tree of a text that is known to be valid, so that no
// token fails. encoding/json alone would not say that a key came twice, and
// would merge the two when it decodes into a struct.
type parser struct {
	dec      *json.Decoder
	repeated bool
}

func (p *parser) value() any {
	switch token, _ := p.dec.Token(); token {
	case json.Delim('{'):
		return p.object()
	case json.Delim('['):
		return p.array()
	default:
		return token
	}
}

func (p *parser) object() any {
	out := make(map[string]any)
	for p.dec.More() {
		token, _ := p.dec.Token()
		key, _ := token.(string)
		if _, ok := out[key]; ok {
			p.repeated = true
		}
		out[key] = p.value()
	}
	_, _ = p.dec.Token() // the closing brace
	return out
}

func (p *parser) array() any {
	out := []any{}
	for p.dec.More() {
		out = append(out, p.value())
	}
	_, _ = p.dec.Token() // the closing bracket
	return out
}

// standIn copies a tree for the schema check, which takes a [json.Number] for
// a string. A whole number of 64 bits stands for itself; any other one is
// checked by its nearest float64, which only the check sees.
func standIn(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, val := range v {
			out[key] = standIn(val)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, val := range v {
			out[i] = standIn(val)
		}
		return out
	case json.Number:
		return standInNumber(v.String())
	}
	return v
}

func standInNumber(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		return n
	}
	f, _ := strconv.ParseFloat(s, 64) // out of range is ±Inf, which the check cannot hold
	return min(max(f, -math.MaxFloat64), math.MaxFloat64)
}
