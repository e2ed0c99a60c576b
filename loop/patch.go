package loop

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxPatchDepth bounds how far into values [ArgumentsPatch] looks for what
// differs: what differs below is replaced as a whole.
const maxPatchDepth = 64

// ArgumentsPatch is the JSON Patch (RFC 6902) that makes arguments of others, ""
// if either is not JSON. Values are those texts, to the digit: no number is
// read. What differs in spelling alone, such as white space or the order of
// keys, is no change and the patch is []; an object in which a key stands twice
// is replaced as a whole, since readers disagree about which one counts.
func ArgumentsPatch(before, after string) string {
	if !json.Valid([]byte(before)) || !json.Valid([]byte(after)) {
		return ""
	}
	p := patch{}
	p.compare("", json.RawMessage(before), json.RawMessage(after), 0)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(p) // texts and valid JSON: it cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}

type patch []operation

type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

func (p *patch) compare(path string, a, b json.RawMessage, depth int) {
	a, b = bytes.TrimSpace(a), bytes.TrimSpace(b)
	if bytes.Equal(a, b) {
		return
	}
	if depth < maxPatchDepth && a[0] == b[0] {
		switch a[0] {
		case '{':
			if p.objects(path, a, b, depth) {
				return
			}
		case '[':
			p.arrays(path, a, b, depth)
			return
		}
	}
	*p = append(*p, operation{"replace", path, b})
}

// objects returns false if it cannot tell what the members are.
func (p *patch) objects(path string, a, b json.RawMessage, depth int) bool {
	was, ok := members(a)
	is, ok2 := members(b)
	if !ok || !ok2 {
		return false
	}
	for _, key := range slices.Sorted(maps.Keys(was)) {
		at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
		if now, kept := is[key]; kept {
			p.compare(at, was[key], now, depth+1)
		} else {
			*p = append(*p, operation{Op: "remove", Path: at})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(is)) {
		if _, had := was[key]; !had {
			at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
			*p = append(*p, operation{"add", at, is[key]})
		}
	}
	return true
}

func (p *patch) arrays(path string, a, b json.RawMessage, depth int) {
	var was, is []json.RawMessage
	_, _ = json.Unmarshal(a, &was), json.Unmarshal(b, &is) // both are valid
	for i := range min(len(was), len(is)) {
		p.compare(path+"/"+strconv.Itoa(i), was[i], is[i], depth+1)
	}
	// From the end: what is removed moves what is behind it.
	for i := len(was) - 1; i >= len(is); i-- {
		*p = append(*p, operation{Op: "remove", Path: path + "/" + strconv.Itoa(i)})
	}
	for i := len(was); i < len(is); i++ {
		*p = append(*p, operation{"add", path + "/-", is[i]})
	}
}

// members are those of an object; false if a key stands twice.
func members(object json.RawMessage) (map[string]json.RawMessage, bool) {
	dec := json.NewDecoder(bytes.NewReader(object))
	_, _ = dec.Token() // the brace; all of it is valid
	out := map[string]json.RawMessage{}
	for dec.More() {
		key, _ := dec.Token()
		var value json.RawMessage
		if name, ok := key.(string); ok && dec.Decode(&value) == nil {
			if _, twice := out[name]; twice {
				return nil, false
			}
			out[name] = value
		}
	}
	return out, true
}
