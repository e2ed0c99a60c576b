package event_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestAsStoredIsWhatDecodeGives fills the payload of each type with texts that
// are stored as they are and others, lists that are nil, empty or neither, and
// so on. A field of a kind that is decoded differently fails here.
func TestAsStoredIsWhatDecodeGives(t *testing.T) {
	t.Parallel()
	for _, typ := range event.Types() {
		zero, err := event.Decode(event.Event{Type: typ, Payload: []byte("{}")})
		if err != nil {
			t.Fatal(err)
		}
		asTheyAre := 0
		rapid.Check(t, func(t *rapid.T) {
			v := reflect.New(reflect.TypeOf(zero)).Elem()
			texts := []string{"", "a", "<é>\u2028", `\u0000`}
			if rapid.Bool().Draw(t, "dirty") {
				texts = append(texts, "\x00", "a\xff", "\xed\xa0\x80")
			}
			fill(t, v, texts)
			p := v.Interface().(event.Payload)
			e, err := event.New(event.Scope{SessionID: "s", At: time.Now()}, p)
			if err != nil {
				t.Fatal(err)
			}
			got, err := event.AsStored(e, p)
			want, wantErr := event.Decode(e)
			if err != nil || wantErr != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s is\n%#v, %v\nand decoded\n%#v, %v", e.Payload, got, err, want, wantErr)
			}
			if reflect.DeepEqual(p, want) {
				asTheyAre++
			}
		})
		if asTheyAre == 0 {
			t.Errorf("no %s was stored as it was", typ)
		}
	}
}

func fill(t *rapid.T, v reflect.Value, texts []string) {
	n := rapid.IntRange(0, 2).Draw(t, "n")
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		now := time.Now()
		v.Set(reflect.ValueOf([]time.Time{now, now.UTC(), now.UTC().Truncate(time.Microsecond)}[n]))
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte([]string{`{"a":1.50}`, "", `{ "a" : "\u0000" }`}[n]))
		if n == 1 {
			v.SetZero()
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), texts)
		}
	case v.Kind() == reflect.String:
		v.SetString(rapid.SampledFrom(texts).Draw(t, "text"))
	case v.CanInt():
		v.SetInt(int64(n))
	case v.Kind() == reflect.Bool:
		v.SetBool(n == 0)
	case n == 0: // nil
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), texts)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), n-1, n-1))
		for i := range v.Len() {
			fill(t, v.Index(i), texts)
		}
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		if n > 1 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(t, key, texts)
			fill(t, value, texts)
			v.SetMapIndex(key, value)
		}
	default:
		t.Fatalf("a field of type %s: say how it is filled here", v.Type())
	}
}

func BenchmarkAsStored(b *testing.B) {
	for _, p := range []event.Payload{
		event.AssistantDelta{Attempt: 1, Lane: "text", BlockID: "0", Text: "a few words more"},
		event.AssistantCompleted{MessageID: "m", Parts: []hooks.Part{{Type: hooks.PartText, Text: "hello"}}, Finish: "stop"},
	} {
		e, err := event.New(event.Scope{SessionID: "s", At: time.Now()}, p)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(string(p.EventType()), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := event.AsStored(e, p); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(string(p.EventType())+"/decoded", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := event.Decode(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
