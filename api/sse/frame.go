package sse

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// timeLayout always has six digits, the precision of the log.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// AppendJSON appends e as front ends see it:
//
//	{"seq":5,"session_id":"…","run_id":"…","turn":1,"type":"…",
//	 "at":"2026-01-02T03:04:05.123456Z","actor":{"kind":"…","id":"…"},"data":{…}}
//
// run_id and turn are left out where there is none. The payload is copied byte
// for byte, so live and replayed events are the same bytes.
func AppendJSON(b []byte, e event.Event) []byte {
	b = append(b, `{"seq":`...)
	b = strconv.AppendInt(b, e.Seq, 10)
	b = appendField(b, "session_id", e.SessionID)
	if e.RunID != "" {
		b = appendField(b, "run_id", e.RunID)
	}
	if e.Turn != 0 {
		b = append(b, `,"turn":`...)
		b = strconv.AppendInt(b, int64(e.Turn), 10)
	}
	b = appendField(b, "type", string(e.Type))
	b = append(b, `,"at":"`...)
	b = e.At.UTC().AppendFormat(b, timeLayout)
	b = append(b, `","actor":{"kind":`...)
	b = appendString(b, string(e.Actor.Kind))
	b = appendField(b, "id", e.Actor.ID)
	b = append(b, `},"data":`...)
	b = append(b, e.Payload...)
	return append(b, '}')
}

func appendField(b []byte, name, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return appendString(b, value)
}

// appendString appends s as [json.Marshal] writes it.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			// The encoding of a string cannot fail.
			quoted, _ := json.Marshal(s)
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// appendFrame appends e as one message of the stream.
func appendFrame(b []byte, e event.Event) []byte {
	b = append(b, "id: "...)
	b = strconv.AppendInt(b, e.Seq, 10)
	b = append(b, '\n')
	start := len(b)
	b = append(b, "data: "...)
	b = AppendJSON(b, e)
	if data := b[start:]; bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0 {
		// Only white space between JSON tokens: agentd writes none, a row that
		// was written by hand may. A bare line break would cut the message.
		b = append(b[:start], splitLines(b[start:])...)
	}
	return append(b, '\n', '\n')
}

func splitLines(data []byte) []byte {
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	return bytes.ReplaceAll(data, []byte("\n"), []byte("\ndata: "))
}
