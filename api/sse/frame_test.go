package sse

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

func TestEventJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC)
	full := event.Event{
		Seq: 5, SessionID: "s", RunID: "r", Turn: 1, Type: event.TypeAssistantDelta, At: at,
		Actor: event.Actor{Kind: event.ActorSystem, ID: `worker "7"`}, Payload: json.RawMessage(`{"n":9007199254740993.0,"a":1,"a":2}`),
	}
	bare := full
	bare.RunID, bare.Turn = "", 0
	bare.At = time.Date(2026, 1, 2, 5, 4, 5, 0, time.FixedZone("", 2*3600))
	for want, e := range map[string]event.Event{
		`{"seq":5,"session_id":"s","run_id":"r","turn":1,"type":"assistant.delta","at":"2026-01-02T03:04:05.123456Z",` +
			`"actor":{"kind":"system","id":"worker \"7\""},"data":{"n":9007199254740993.0,"a":1,"a":2}}`: full,
		`{"seq":5,"session_id":"s","type":"assistant.delta","at":"2026-01-02T03:04:05.000000Z",` +
			`"actor":{"kind":"system","id":"worker \"7\""},"data":{"n":9007199254740993.0,"a":1,"a":2}}`: bare,
	} {
		if got := string(AppendJSON([]byte("before "), e)); got != "before "+want {
			t.Errorf("got  %s\nwant before %s", got, want)
		}
	}
}

func TestFrameKeepsAnyPayload(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		payload, err := json.Marshal(map[string]string{rapid.String().Draw(t, "key"): rapid.String().Draw(t, "value")})
		if err != nil {
			t.Fatal(err)
		}
		// White space that somebody put between the tokens by hand.
		payload = append(payload, rapid.SampledFrom([]string{"", "\n", "\r", "\r\n", "\n\n", " \r\n\t"}).Draw(t, "space")...)
		e := event.Event{Seq: rapid.Int64Min(1).Draw(t, "seq"), SessionID: "s", Type: event.Type(rapid.String().Draw(t, "type")), Payload: payload}
		frame := string(appendFrame(nil, e))
		body, whole := strings.CutSuffix(frame, "\n\n")
		if !whole || strings.Contains(body, "\n\n") || strings.Contains(body, "\r") {
			t.Fatalf("frame %q, want one message", frame)
		}
		var data []string
		for i, line := range strings.Split(body, "\n") {
			if i == 0 {
				continue
			}
			value, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				t.Fatalf("line %q, want data", line)
			}
			data = append(data, value)
		}
		var got struct {
			Seq  int64
			Data json.RawMessage
		}
		if err := json.Unmarshal([]byte(strings.Join(data, "\n")), &got); err != nil || got.Seq != e.Seq {
			t.Fatalf("%q: %v", data, err)
		}
		if want := bytes.TrimSpace(payload); !bytes.Equal(bytes.TrimSpace(got.Data), want) {
			t.Fatalf("payload %q, want %q", got.Data, want)
		}
	})
}

func TestTextIsQuotedAsTheLibraryDoes(t *testing.T) {
	t.Parallel()
	check := func(t interface{ Errorf(string, ...any) }, s string) {
		want, _ := json.Marshal(s) // a string: it cannot fail
		if got := appendString([]byte("before "), s); string(got) != "before "+string(want) {
			t.Errorf("%q is %s, want before %s", s, got, want)
		}
	}
	for c := range 256 {
		check(t, "a"+string([]byte{byte(c)})+"b")
	}
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.String().Draw(t, "text")) })
}

func BenchmarkFrame(b *testing.B) {
	e := event.Event{
		Seq: 12345, SessionID: "0199a3b4-5c6d-7e8f-9a0b-1c2d3e4f5a6b", RunID: "0199a3b4-5c6d-7e8f-9a0b-1c2d3e4f5a6c", Turn: 1,
		Type: event.TypeAssistantDelta, At: time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC), Actor: event.System("worker"),
		Payload: json.RawMessage(`{"attempt":1,"lane":"text","block_id":"0","text":"` + strings.Repeat("word ", 10) + `"}`),
	}
	var frame []byte
	b.ReportAllocs()
	for b.Loop() {
		frame = appendFrame(frame[:0], e)
	}
}
