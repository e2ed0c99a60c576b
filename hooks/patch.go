package hooks

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The operations of a patch.
const (
	opAdd     = "add"
	opRemove  = "remove"
	opReplace = "replace"
)

// change is one difference between a hook's input and what it made of it. It
// knows the new value and never the old one.
type change struct {
	// field is the name that the decision lists.
	field string
	op    string
	// path is a JSON pointer into the gate's input.
	path  string
	value any
	// untold keeps the value out of the patch, and any digest of it.
	untold bool
}

func lenOf(s *string) int {
	if s == nil {
		return 0
	}
	return len(*s)
}

// setText sets *old to the text that a hook wants there, if it is another.
// Field is the way to it, which is its JSON pointer without the first slash.
func setText(changes []change, field string, old, want *string) []change {
	if want == nil {
		return changes
	}
	text := cleanText(*want)
	if text == *old {
		return changes
	}
	*old = text
	return append(changes, change{field: path.Base(field), op: opReplace, path: "/" + field, value: text})
}

// diffMessages says how to get from a to b: what both begin and end with
// stays.
func diffMessages(a, b []Message) []change {
	head := 0
	for head < len(a) && head < len(b) && reflect.DeepEqual(a[head], b[head]) {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && reflect.DeepEqual(a[len(a)-1-tail], b[len(b)-1-tail]) {
		tail++
	}
	oldEnd, newEnd := len(a)-tail, len(b)-tail
	var changes []change
	add := func(op string, i int, value any) {
		changes = append(changes, change{field: "messages", op: op, path: "/messages/" + strconv.Itoa(i), value: value})
	}
	for i := oldEnd - 1; i >= newEnd; i-- {
		add(opRemove, i, nil)
	}
	for i := head; i < newEnd; i++ {
		if i < oldEnd {
			add(opReplace, i, b[i])
		} else {
			add(opAdd, i, b[i])
		}
	}
	return changes
}

// diffObjects says which members of a JSON object differ in want. Field is
// where the object stands. Values that hold the same in other bytes differ.
func diffObjects(field, old, want string) ([]change, error) {
	b, err := members(want)
	if err != nil {
		return nil, fmt.Errorf("new %s: %w", field, err)
	}
	if old == want {
		return nil, nil
	}
	a, _ := members(old) // what it was may be anything
	var changes []change
	add := func(op, name string, value any) {
		changes = append(changes, change{field: field, op: op, path: "/" + field + "/" + escapePointer(name), value: value})
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[name]; !ok {
			add(opRemove, name, nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		switch before, ok := a[name]; {
		case !ok:
			add(opAdd, name, b[name])
		case !bytes.Equal(before, b[name]):
			add(opReplace, name, b[name])
		}
	}
	if len(changes) == 0 {
		// Only the bytes between the members differ, or their order.
		changes = append(changes, change{field: field, op: opReplace, path: "/" + field, untold: true})
	}
	return changes, nil
}

var (
	errNotText   = errors.New("not valid UTF-8")
	errNotObject = errors.New("not a JSON object")
)

// members are those of a JSON object. A name that stands twice is an error: of
// its two values one would be shown here and the other taken elsewhere.
func members(object string) (map[string]json.RawMessage, error) {
	// The patch repeats the bytes, and what is stored is text.
	if !utf8.ValidString(object) {
		return nil, errNotText
	}
	d := json.NewDecoder(strings.NewReader(object))
	if begin, _ := d.Token(); begin != json.Delim('{') || !json.Valid([]byte(object)) {
		return nil, errNotObject
	}
	all := map[string]json.RawMessage{}
	for d.More() { // it is valid: nothing fails from here on
		token, _ := d.Token()
		name, _ := token.(string)
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("the member %q stands twice", shorten(name, maxCode))
		}
		var value json.RawMessage
		_ = d.Decode(&value)
		all[name] = value
	}
	return all, nil
}

// escapePointer makes a name one step of a JSON pointer.
func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(cleanText(name))
}

// fieldsOf lists the changed fields, each once, in order.
func fieldsOf(changes []change) []string {
	var fields []string
	for _, c := range changes {
		if n := len(fields); n == 0 || fields[n-1] != c.field {
			fields = append(fields, c.field)
		}
	}
	return fields
}

// patchOf is the JSON Patch (RFC 6902) of changes, "" if there are none. A
// redacting hook's patch says where something was changed and the digest and
// the length of what stands there now.
func patchOf(changes []change, redacting bool) string {
	if len(changes) == 0 {
		return ""
	}
	type operation struct {
		Op     string `json:"op"`
		Path   string `json:"path"`
		Value  any    `json:"value,omitempty"`
		SHA256 string `json:"sha256,omitempty"`
		Bytes  *int   `json:"bytes,omitempty"`
	}
	ops := make([]operation, 0, len(changes))
	for _, c := range changes {
		o := operation{Op: c.op, Path: c.path}
		switch {
		case c.op == opRemove, c.untold:
		case redacting:
			raw := encode(c.value)
			sum, n := sha256.Sum256(raw), len(raw)
			o.SHA256, o.Bytes = hex.EncodeToString(sum[:]), &n
		default:
			o.Value = c.value
		}
		ops = append(ops, o)
	}
	return string(encode(ops))
}
