package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// wireBytes is a field of text or bytes as protobuf has it.
func wireBytes(number protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), s)
}

func payload[T any](t *testing.T, events []event.Event, of event.Type) T {
	t.Helper()
	var p T
	for _, e := range events {
		if e.Type != of {
			continue
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Fatalf("no %s", of)
	return p
}

func TestTextInJSONIsMadeValidOnceAndSaysSo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for in, want := range map[string]string{
		`abc\ud83d`:          "abc\uFFFD",
		`\uDE00abc`:          "\uFFFDabc",
		`\ude00\ud83d`:       "\uFFFD\uFFFD",
		`\ud83d\ud83d\ude00`: "\uFFFD😀",
		`\ud83dx\u0041`:      "\uFFFDxA",
		`\ud83d\\ude00`:      "\uFFFD\\ude00",
		"x\xed\xa0\xbd\xffy": "x\uFFFDy",
		"\xff\\ud83d \xc3":   "\uFFFD\uFFFD \uFFFD",
		`a\u0000b`:           "a\uFFFDb",
	} {
		wantStored(t, b, in, want, true)
	}
	for in, want := range map[string]string{
		`\ud83d\ude00`:           "😀",
		`\\ud83d \\\\ud83d \\n`:  `\ud83d \\ud83d \n`,
		`\uFFFD is text`:         "\uFFFD is text",
		"\uFFFD 😀 \u2028 \u007f": "\uFFFD 😀 \u2028 \u007f",
	} {
		wantStored(t, b, in, want, false)
	}
}

// wantStored sends what a JSON string holds as a message.
func wantStored(t *testing.T, b *bundle, in, want string, sanitized bool) {
	t.Helper()
	id := b.newSession(t)
	res := b.post(t, startRun, `{"sessionId":"`+id+`","idempotencyKey":"k","text":"`+in+`"}`)
	if res.status != 200 {
		t.Errorf("%q: status %d", in, res.status)
		return
	}
	m := payload[event.MessageCreated](t, b.events(t, id), event.TypeMessageCreated)
	if m.Parts[0].Text != want || m.Sanitized != sanitized {
		t.Errorf("%q: stored %q, sanitized %t, want %q, %t", in, m.Parts[0].Text, m.Sanitized, want, sanitized)
	}
}

func TestAReasonInJSONIsMadeValidToo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	run := b.start(t, id, "go").RunID
	if res := b.post(t, cancelRun, fmt.Sprintf(`{"runId":%q,"reason":"enough \ud83d"}`, run)); res.status != 200 {
		t.Fatalf("status %d", res.status)
	}
	c := payload[event.RunCancelRequested](t, b.events(t, id), event.TypeRunCancelRequested)
	if c.Reason != "enough \uFFFD" || !c.Sanitized {
		t.Errorf("%+v, want it sanitized", c)
	}
}

func TestIdentifiersAreRefusedInsteadOfRepaired(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	for field, body := range map[string]string{
		"idempotency_key":       `{"sessionId":"` + id + `","text":"x","idempotencyKey":"k\ud83d"}`,
		"idempotency_key/bytes": `{"sessionId":"` + id + `","text":"x","idempotency_key":"k` + "\xff" + `"}`,
		"agent":                 `{"sessionId":"` + id + `","text":"x","agent":"\ude00"}`,
		"session_id":            `{"sessionId":"` + id + `\ude00","text":"x"}`,
	} {
		if got := wantConnectError(t, b.post(t, startRun, body), 400, "invalid_argument", "invalid_argument"); got != strings.TrimSuffix(field, "/bytes") {
			t.Errorf("field %q, want %s", got, field)
		}
	}
	const create = "/agentd.v1.SessionService/CreateSession"
	if got := wantConnectError(t, b.post(t, create, `{"externalId":"a\ud83d"}`), 400, "invalid_argument", "invalid_argument"); got != "external_id" {
		t.Errorf("field %q, want external_id", got)
	}
	if got := wantConnectError(t, b.post(t, create, `{"external\ud83d":"a"}`), 400, "invalid_argument", "unknown_field"); got != "external\uFFFD" {
		t.Errorf("field %q", got)
	}
	// A replacement character that the client sent itself is as good as any.
	if res := b.post(t, create, `{"externalId":"a\ufffd"}`); res.status != 200 {
		t.Errorf("status %d, want it taken", res.status)
	}
	if n := len(b.events(t, id)); n != 1 {
		t.Errorf("%d events, want only session.created", n)
	}
}
