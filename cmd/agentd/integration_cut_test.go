package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// cutStream takes so many bytes of an event stream from a connection of its own
// and then drops it, wherever that is. It returns the frames that were whole,
// and whether the stream had ended before.
func (s *stack) cutStream(t *testing.T, sessionID string, after, bytes int64) (frames []sseFrame, ended bool) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /v1/sessions/%s/events?until=idle HTTP/1.1\r\nHost: localhost\r\n", sessionID)
	if after != fromStart {
		fmt.Fprintf(conn, "Last-Event-ID: %d\r\n", after)
	}
	fmt.Fprint(conn, "\r\n")
	res, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, bytes)), nil)
	if err != nil {
		return nil, false // cut in the headers
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNoContent {
		return nil, true
	}
	reader := newSSEReader(res.Body)
	for {
		fr, err := reader.next()
		switch {
		case errors.Is(err, io.EOF):
			return frames, true
		case err != nil:
			return frames, false
		case fr.id != 0:
			frames = append(frames, fr)
		}
	}
}

// chatter streams n pieces that cannot be merged into fewer events, since no
// two of a lane follow each other.
func chatter(n int) looptest.Model {
	return func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		for i := range n {
			c := looptest.Text("word " + strconv.Itoa(i) + " · ")
			if i%2 == 1 {
				c = looptest.Reasoning("thought " + strconv.Itoa(i) + "\n")
			}
			if !yield(c, nil) {
				return
			}
		}
		yield(looptest.Finish(stream.FinishStop), nil)
	}
}

func TestAStreamCutAnywhereAndResumedIsTheLog(t *testing.T) {
	t.Parallel()
	const cuts = 50
	s := newStack(t, storetest.New(t), playing(chatter(2000)))
	id := s.Session(t)
	job := s.Start(t, id, "talk")
	run := s.advance(t, job)

	var got []fact
	after := int64(fromStart)
	take := func(bytes int64) (ended bool) {
		frames, ended := s.cutStream(t, id, after, bytes)
		for _, fr := range frames {
			got = append(got, toldBySSE(t, fr))
			after = fr.id
		}
		return ended
	}
	for i := range cuts {
		// Anywhere: in the headers, before the first event, in the middle of one.
		if take(rand.Int64N(6000)) {
			t.Fatalf("the stream ended at cut %d, after %d events", i, len(got))
		}
	}
	if !take(1 << 40) {
		t.Error("the stream did not end by itself")
	}
	run.wait(t)
	sameStory(t, "stream in pieces", got, stored(t, s.db, id))
	if len(got) < 2000 {
		t.Errorf("%d events, want more than the pieces of the answer", len(got))
	}
	if _, ended := s.cutStream(t, id, after, 1<<40); !ended {
		t.Error("coming back after the end: want 204")
	}
}

// A frame that the connection broke must not count as received.
func TestSSEReaderDropsABrokenFrame(t *testing.T) {
	t.Parallel()
	r := newSSEReader(strings.NewReader("id: 1\ndata: {}\n\nid: 2\ndata: {}\n"))
	if fr, err := r.next(); err != nil || fr.id != 1 {
		t.Errorf("%+v, %v, want the first", fr, err)
	}
	if fr, err := r.next(); !errors.Is(err, io.EOF) || fr.id != 0 {
		t.Errorf("%+v, %v, want the end", fr, err)
	}
}
