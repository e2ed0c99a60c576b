package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// frame is one block of the event stream.
type frame struct {
	id      int64
	data    []byte
	comment string
	retry   string
}

type frames struct {
	t     *testing.T
	lines *bufio.Reader
}

func readFrames(t *testing.T, r io.Reader) *frames {
	t.Helper()
	return &frames{t: t, lines: bufio.NewReader(r)}
}

// next reads a frame; false at the end of the stream.
func (f *frames) next() (frame, bool) {
	f.t.Helper()
	var out frame
	for {
		line, err := f.lines.ReadString('\n')
		if err != nil {
			return frame{}, false
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "id":
			if out.id, err = strconv.ParseInt(value, 10, 64); err != nil {
				f.t.Errorf("id: %v", err)
			}
		case "data":
			out.data = []byte(value)
		case "retry":
			out.retry = value
		case "":
			if line == "" {
				return out, true
			}
			out.comment = value
		default:
			f.t.Errorf("line %q, want only id, data, retry and comments", line)
		}
	}
}

// event skips comments.
func (f *frames) event() frame {
	f.t.Helper()
	for {
		fr, ok := f.next()
		if !ok {
			f.t.Fatal("the stream ended, want an event")
		}
		if fr.id != 0 {
			return fr
		}
	}
}

// rest reads the events up to the end of the stream.
func (f *frames) rest() []frame {
	f.t.Helper()
	var out []frame
	for {
		fr, ok := f.next()
		if !ok {
			return out
		}
		if fr.id != 0 {
			out = append(out, fr)
		}
	}
}

// wantFrame compares the envelope, and the payload byte for byte.
func wantFrame(t *testing.T, got frame, want event.Event) {
	t.Helper()
	var e struct {
		Seq       int64           `json:"seq"`
		SessionID string          `json:"session_id"`
		RunID     *string         `json:"run_id"`
		Turn      *int            `json:"turn"`
		Type      event.Type      `json:"type"`
		At        time.Time       `json:"at"`
		Actor     event.Actor     `json:"actor"`
		Data      json.RawMessage `json:"data"`
	}
	d := json.NewDecoder(bytes.NewReader(got.data))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		t.Fatalf("%s: %v", got.data, err)
	}
	if got.id != want.Seq || e.Seq != want.Seq || e.SessionID != want.SessionID || e.Type != want.Type || !e.At.Equal(want.At) || e.Actor != want.Actor {
		t.Errorf("got id %d, %s, want %+v", got.id, got.data, want)
	}
	if (e.RunID != nil) != (want.RunID != "") || e.RunID != nil && *e.RunID != want.RunID ||
		(e.Turn != nil) != (want.Turn != 0) || e.Turn != nil && *e.Turn != want.Turn {
		t.Errorf("got %s, want run %q and turn %d, each left out if there is none", got.data, want.RunID, want.Turn)
	}
	if !bytes.Equal(e.Data, want.Payload) {
		t.Errorf("seq %d: payload %s, want %s", want.Seq, e.Data, want.Payload)
	}
}
