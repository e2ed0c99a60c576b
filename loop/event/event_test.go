package event_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

func TestNewCarriesItsScopeAndCutsTheClock(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 6, 7, 8, 9, 123456789, time.FixedZone("x", 3600))
	scope := event.Scope{SessionID: "s", RunID: "r", Turn: 2, At: at, Actor: event.System("worker:w")}
	got, err := event.New(scope, event.TurnStarted{})
	if err != nil {
		t.Fatal(err)
	}
	want := event.Event{
		SessionID: "s", Type: event.TypeTurnStarted, RunID: "r", Turn: 2,
		At: time.Date(2026, 5, 6, 6, 8, 9, 123456000, time.UTC), Actor: event.Actor{Kind: event.ActorSystem, ID: "worker:w"},
		Payload: json.RawMessage(`{}`),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
}

func TestDecodeSkipsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	got, err := event.Decode(event.Event{Type: event.TypeRunQueued, Payload: json.RawMessage(`{"ticket":3,"added_later":{"x":[1]}}`)})
	if want := (event.RunQueued{Ticket: 3}); err != nil || got != event.Payload(want) {
		t.Errorf("unknown field: %+v, %v; want %+v", got, err, want)
	}
	got, err = event.Decode(event.Event{Type: "from.the.future", Payload: json.RawMessage(`not even JSON`)})
	want := event.Unknown{Type: "from.the.future", Raw: json.RawMessage(`not even JSON`)}
	if err != nil || !reflect.DeepEqual(got, want) || got.EventType() != want.Type {
		t.Errorf("unknown type: %+v, %v; want %+v", got, err, want)
	}
}

func TestDecodeSaysWhichEventDoesNotFit(t *testing.T) {
	t.Parallel()
	_, err := event.Decode(event.Event{Type: event.TypeRunQueued, Seq: 7, Payload: json.RawMessage(`{"ticket":"three"}`)})
	if err == nil || !strings.Contains(err.Error(), "run.queued at seq 7") {
		t.Errorf("error %v; want one that names run.queued at seq 7", err)
	}
}

func TestNewRefusesWhatJSONCannotSay(t *testing.T) {
	t.Parallel()
	far := time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err := event.New(event.Scope{}, event.RunReleased{NotBefore: &far})
	if err == nil || !strings.Contains(err.Error(), "encode run.released") {
		t.Errorf("error %v; want one that names run.released", err)
	}
}

// result encodes text as a tool's output and gives the payload and what a
// reader decodes.
func result(t testing.TB, text string) (json.RawMessage, event.ToolResult) {
	t.Helper()
	e, err := event.New(event.Scope{}, event.ToolResult{CallID: "c", Content: text})
	if err != nil {
		t.Fatal(err)
	}
	p, err := event.Decode(e)
	if err != nil {
		t.Fatal(err)
	}
	return e.Payload, p.(event.ToolResult)
}

func TestNULNeverReachesStorage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in, want  string
		sanitized bool
	}{
		"plain":                        {"a", "a", false},
		"a NUL":                        {"a\x00b", "a\uFFFDb", true},
		"two NULs":                     {"\x00\x00", "\uFFFD\uFFFD", true},
		"six characters that spell it": {`a\u0000b`, `a\u0000b`, false},
		"a backslash before a NUL":     {"\\\x00", "\\\uFFFD", true},
		"two backslashes before a NUL": {"\\\\\x00", "\\\\\uFFFD", true},
		"backslash and spelling":       {`\\u0000`, `\\u0000`, false},
		"both":                         {"\\u0000\x00\\u0000", "\\u0000\uFFFD\\u0000", true},
		"at the end a backslash":       {`\`, `\`, false},
		"text that claims it is clean": {"\x00\"sanitized\":true", "\uFFFD\"sanitized\":true", true},
		"other control characters":     {"\x01\x1f\x7f\u0085", "\x01\x1f\x7f\u0085", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, got := result(t, c.in)
			if got.Content != c.want || got.Sanitized != c.sanitized {
				t.Errorf("%q became %q, sanitized %v; want %q, %v (payload %s)", c.in, got.Content, got.Sanitized, c.want, c.sanitized, raw)
			}
		})
	}
}

func TestNULInAPayloadWithoutAFlagIsMarkedToo(t *testing.T) {
	t.Parallel()
	e, err := event.New(event.Scope{}, event.ToolStarted{CallID: "a\x00b", Attempt: 1})
	if err != nil {
		t.Fatal(err)
	}
	if want := "{\"call_id\":\"a\uFFFDb\",\"attempt\":1,\"sanitized\":true}"; string(e.Payload) != want {
		t.Errorf("payload %s; want %s", e.Payload, want)
	}
}

func TestNULIsFlaggedOnce(t *testing.T) {
	t.Parallel()
	e, err := event.New(event.Scope{}, event.MessageCreated{
		MessageID: "m", Sanitized: true, Parts: []hooks.Part{{Type: hooks.PartText, Text: "\x00"}, {Type: hooks.PartText, Text: "\x00"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(e.Payload), `"sanitized":true`); n != 1 {
		t.Errorf("flagged %d times: %s", n, e.Payload)
	}
}

func TestPayloadKeepsTextReadable(t *testing.T) {
	t.Parallel()
	if raw, _ := result(t, "<b> & é 🙂"); !strings.Contains(string(raw), "<b> & é 🙂") {
		t.Errorf("payload %s; want the text unescaped", raw)
	}
}
