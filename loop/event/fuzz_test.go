package event_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// FuzzNew: whatever the text, the payload is storable JSON, and text that was
// fine comes back as it was.
func FuzzNew(f *testing.F) {
	f.Add("plain")
	f.Add("\\\x00")
	f.Add(`\u0000`)
	f.Fuzz(func(t *testing.T, text string) {
		raw, got := result(t, text)
		if !json.Valid(raw) || !utf8.Valid(raw) || bytes.IndexByte(raw, 0) >= 0 {
			t.Fatalf("payload %q is not storable", raw)
		}
		hasNUL := strings.Contains(text, "\x00")
		if got.Sanitized != hasNUL {
			t.Fatalf("sanitized %v for %q", got.Sanitized, text)
		}
		want := strings.ReplaceAll(text, "\x00", "\uFFFD")
		if utf8.ValidString(text) && got.Content != want {
			t.Fatalf("%q came back as %q", text, got.Content)
		}
		if strings.Contains(got.Content, "\x00") {
			t.Fatalf("a NUL got through: %q", got.Content)
		}
	})
}

// FuzzCleanWritten: an object stays an object with the same keys and values but
// for the NULs, and the wall has nothing to do the second time.
func FuzzCleanWritten(f *testing.F) {
	f.Add([]byte(`{"a":"\u0000"}`))
	f.Add([]byte(`{"a":"\\u0000","b":["\\\u0000"]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var before map[string]any
		if json.Unmarshal(raw, &before) != nil || before == nil {
			return // only what encoding/json wrote comes here
		}
		raw, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		out := event.CleanWritten(bytes.Clone(raw))
		var after map[string]any
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%s became %s: %v", raw, out, err)
		}
		if hasNUL(after) {
			t.Fatalf("%s became %s: a NUL got through", raw, out)
		}
		if !hasNUL(before) && !bytes.Equal(raw, out) {
			t.Fatalf("%s became %s without need", raw, out)
		}
		if again := event.CleanWritten(bytes.Clone(out)); !bytes.Equal(again, out) {
			t.Fatalf("%s was changed again to %s", out, again)
		}
	})
}

func hasNUL(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, "\x00")
	case []any:
		for _, e := range v {
			if hasNUL(e) {
				return true
			}
		}
	case map[string]any:
		for k, e := range v {
			if strings.Contains(k, "\x00") || hasNUL(e) {
				return true
			}
		}
	}
	return false
}

// FuzzDecode: any bytes under any type give a payload or an error, and what
// was decoded can be written and read again.
func FuzzDecode(f *testing.F) {
	for i, typ := range event.Types() {
		for _, p := range samples {
			if p.EventType() == typ {
				e, err := event.New(event.Scope{}, p)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(i, []byte(e.Payload))
			}
		}
	}
	f.Add(-1, []byte(`{}`))
	f.Fuzz(func(t *testing.T, i int, raw []byte) {
		typ := event.Type("from.the.future")
		if types := event.Types(); i >= 0 && i < len(types) {
			typ = types[i]
		}
		p, err := event.Decode(event.Event{Type: typ, Payload: raw})
		if err != nil {
			return
		}
		if p.EventType() != typ {
			t.Fatalf("%s decoded as %s", typ, p.EventType())
		}
		if _, ok := p.(event.Unknown); ok {
			return
		}
		e, err := event.New(event.Scope{}, p)
		if err != nil {
			t.Fatalf("decoded %+v and cannot encode it: %v", p, err)
		}
		q, err := event.Decode(e)
		if err != nil {
			t.Fatalf("wrote %s and cannot read it: %v", e.Payload, err)
		}
		again, err := event.New(event.Scope{}, q)
		if err != nil || !reflect.DeepEqual(again.Payload, e.Payload) {
			t.Fatalf("wrote %s, then %s, %v", e.Payload, again.Payload, err)
		}
	})
}
