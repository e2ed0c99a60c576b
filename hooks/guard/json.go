package guard

import (
	"bytes"
	"encoding/json"
	"strings"
)

// rewriteJSON passes the texts in a piece of JSON through clean, the names of
// members included, and a number too, which becomes a text if it changes. The
// order, and what is not changed, stay. What is no JSON is cleaned as it is.
func rewriteJSON(text string, clean func(string) string) string {
	if !json.Valid([]byte(text)) {
		return clean(text)
	}
	w := &jsonWriter{clean: clean}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	for {
		token, err := d.Token() // it is valid: nothing fails before the end
		if err != nil {
			break
		}
		w.token(token)
	}
	if !w.changed {
		return text
	}
	return w.String()
}

// jsonWriter writes the tokens of valid JSON.
type jsonWriter struct {
	strings.Builder
	clean   func(string) string
	changed bool
	levels  []jsonLevel
}

// jsonLevel is an array or an object that is open.
type jsonLevel struct {
	object bool
	n      int // tokens so far
	names  map[string]bool
}

func (w *jsonWriter) token(token json.Token) {
	if d, ok := token.(json.Delim); ok && (d == '}' || d == ']') {
		w.levels = w.levels[:len(w.levels)-1]
		w.WriteString(d.String())
		return
	}
	name := w.separate()
	switch v := token.(type) {
	case json.Delim:
		w.WriteString(v.String())
		w.levels = append(w.levels, jsonLevel{object: v == '{', names: map[string]bool{}})
	case string:
		c := w.clean(v)
		w.changed = w.changed || c != v
		if name {
			taken := w.levels[len(w.levels)-1].names
			for c != v && taken[c] {
				c += "_" // two names have become one
			}
			taken[c] = true
		}
		w.WriteString(quoteJSON(c))
	case json.Number:
		if c := w.clean(v.String()); c != v.String() {
			w.changed = true
			w.WriteString(quoteJSON(c))
			return
		}
		w.WriteString(v.String())
	case bool:
		w.WriteString(map[bool]string{true: "true", false: "false"}[v])
	case nil:
		w.WriteString("null")
	}
}

// separate writes what stands before the next token, and says whether that is
// the name of a member.
func (w *jsonWriter) separate() (name bool) {
	if len(w.levels) == 0 {
		return false
	}
	l := &w.levels[len(w.levels)-1]
	name = l.object && l.n%2 == 0
	switch {
	case l.object && !name:
		w.WriteByte(':')
	case l.n > 0:
		w.WriteByte(',')
	}
	l.n++
	return name
}

// quoteJSON writes a text as JSON, without HTML escapes.
func quoteJSON(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // texts always encode
	return strings.TrimSuffix(b.String(), "\n")
}
