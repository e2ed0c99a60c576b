package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
)

// sseFrame is one block of an event stream. An event has an id, a heartbeat has
// only a comment.
type sseFrame struct {
	id      int64
	data    []byte
	comment string
}

// sseReader reads as a browser does: what is not followed by an empty line is
// dropped. It is used by one goroutine.
type sseReader struct{ lines *bufio.Reader }

func newSSEReader(r io.Reader) *sseReader { return &sseReader{bufio.NewReader(r)} }

// next returns io.EOF at the end, and another error if the stream was cut.
func (r *sseReader) next() (fr sseFrame, err error) {
	for {
		line, err := r.lines.ReadBytes('\n')
		if err != nil {
			return sseFrame{}, err
		}
		line = line[:len(line)-1]
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch string(name) {
		case "id":
			// Only events have ids, and those count from 1.
			if fr.id, err = strconv.ParseInt(string(value), 10, 64); err != nil || fr.id < 1 {
				return fr, fmt.Errorf("%q is no id of an event", value)
			}
		case "data":
			fr.data = value
		case "retry":
		case "":
			if len(line) == 0 {
				return fr, nil
			}
			fr.comment = string(value)
		default:
			return fr, fmt.Errorf("line %q", line)
		}
	}
}

// event skips what is no event.
func (r *sseReader) event() (sseFrame, error) {
	for {
		if fr, err := r.next(); err != nil || fr.id != 0 {
			return fr, err
		}
	}
}

const fromStart = -1

func (s *stack) eventsURL(sessionID, query string) string {
	return s.url + "/v1/sessions/" + sessionID + "/events" + query
}

// openSSE asks for the event stream, after the event with that id unless it is
// fromStart. The caller closes the body.
func (s *stack) openSSE(ctx context.Context, sessionID, query string, after int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.eventsURL(sessionID, query), http.NoBody)
	if err != nil {
		return nil, err
	}
	if after != fromStart {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(after, 10))
	}
	return s.client.Do(req)
}

// patient is a context for a stream that should end by itself, or with t.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// listen opens an event stream for the length of the test.
func (s *stack) listen(t *testing.T, sessionID, query string, after int64) *sseReader {
	t.Helper()
	res, err := s.openSSE(patient(t), sessionID, query, after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		t.Fatalf("status %d, want 200", res.StatusCode)
	}
	return newSSEReader(res.Body)
}

// facts reads the next n events, or with n < 0 all up to the end.
func (r *sseReader) facts(t *testing.T, n int) []fact {
	t.Helper()
	var out []fact
	for len(out) != n {
		fr, err := r.event()
		if errors.Is(err, io.EOF) && n < 0 {
			break
		}
		if err != nil {
			t.Fatalf("after %d events: %v", len(out), err)
		}
		out = append(out, toldBySSE(t, fr))
	}
	return out
}

const toTheEnd = -1

// replay is what the event stream of an idle session says to its end.
func (s *stack) replay(t *testing.T, sessionID string, after int64) []fact {
	t.Helper()
	return s.listen(t, sessionID, "?until=idle", after).facts(t, toTheEnd)
}

// watch follows a session over Connect until it is idle.
func (s *stack) watch(t *testing.T, sessionID string, after int64) *connect.ServerStreamForClient[agentdv1.WatchEventsResponse] {
	t.Helper()
	w, err := s.sessions.WatchEvents(patient(t), connect.NewRequest(&agentdv1.WatchEventsRequest{
		SessionId: sessionID, After: uint64(after), UntilIdle: true,
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// watched reads a Connect stream to its end.
func watched(t *testing.T, w *connect.ServerStreamForClient[agentdv1.WatchEventsResponse]) []fact {
	t.Helper()
	var out []fact
	for w.Receive() {
		if e := w.Msg().GetEvent(); e != nil {
			out = append(out, toldByConnect(e))
		}
	}
	if err := w.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// listed pages through a session's events over Connect.
func (s *stack) listed(t *testing.T, sessionID string, after int64, pageSize int32) []fact {
	t.Helper()
	var out []fact
	for {
		res, err := s.sessions.ListEvents(t.Context(), connect.NewRequest(&agentdv1.ListEventsRequest{
			SessionId: sessionID, After: uint64(after), PageSize: pageSize,
		}))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range res.Msg.GetEvents() {
			out = append(out, toldByConnect(e))
			after = int64(e.GetSeq())
		}
		if !res.Msg.GetMore() {
			return out
		}
	}
}
