package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// slowBytes is what a slow client takes each slowPause.
const (
	slowBytes = 10
	slowPause = 100 * time.Millisecond
)

// slowClient reads an event stream at a hundred bytes a second.
type slowClient struct {
	conn net.Conn
	got  bytes.Buffer
}

func openSlowly(t *testing.T, s *server, session string) *slowClient {
	t.Helper()
	conn, err := net.Dial("tcp", s.address(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	// The kernel does not buffer for it.
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET /v1/sessions/%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n", session); err != nil {
		t.Fatal(err)
	}
	return &slowClient{conn: conn}
}

// read takes a little at a time until stop is closed or the server has enough.
func (c *slowClient) read(stop <-chan struct{}) {
	tick := time.NewTicker(slowPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
		if _, err := io.CopyN(&c.got, c.conn, slowBytes); err != nil {
			return
		}
	}
}

// last is the id of the last event that has come whole.
func (c *slowClient) last(t *testing.T) (id int64) {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(c.got.Bytes())), nil)
	if err != nil {
		return 0 // it has not even the head
	}
	defer res.Body.Close()
	for r := newSSEReader(res.Body); ; {
		fr, err := r.event()
		if err != nil {
			return id
		}
		if fr.id != id+1 {
			t.Fatalf("a slow client has event %d behind %d", fr.id, id)
		}
		id = fr.id
	}
}

// TestSlowClientsCostTheOthersNothing: a run writes much, most of its clients
// take next to nothing of it. The process that serves them does not remember it
// for them, everybody else has every event, and so has a slow one that comes
// back.
func TestSlowClientsCostTheOthersNothing(t *testing.T) {
	t.Parallel()
	total, slow, normal := 8<<20, 20, 4
	if fullSize() {
		total, slow, normal = 200<<20, 100, 10
	}
	db := storetest.New(t)
	writer := newStack(t, db)
	api := startServe(t, db, []string{"AGENTD_API_KEY="}, "--roles", "api")
	w := writer.open(t)
	session := w.job.SessionID
	before := peakMemory(t, api.cmd.Process.Pid)

	stop := make(chan struct{})
	var slowly sync.WaitGroup
	clients := make([]*slowClient, slow)
	for i := range clients {
		clients[i] = openSlowly(t, api, session)
		slowly.Go(func() { clients[i].read(stop) })
	}
	reader := &stack{url: api.url, client: freshClient()}
	var reading sync.WaitGroup
	var seen atomic.Int64
	for range normal {
		res, err := reader.openSSE(t.Context(), session, "?until=idle", fromStart)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", res, err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		reading.Go(func() { seen.Add(countEvents(t, res.Body, 0)) })
	}
	w.much(t, total)
	reading.Wait()
	if got, want := seen.Load(), int64(normal)*w.last; got != want {
		t.Errorf("the other clients have %d events, want %d", got, want)
	}
	if grown := peakMemory(t, api.cmd.Process.Pid) - before; before > 0 {
		t.Logf("%d bytes were written for %d slow clients; the process has grown by %d KiB", total, slow, grown>>10)
		// A batch for each client and its frames, and as much again, since the heap
		// doubles before it is collected, and grows on where that has few cores. The
		// race detector needs more, so that says nothing. To remember what was
		// written for a single client would take as much already.
		if bound := int64(slow+normal)*4*batchBytes + 64<<20; fullSize() && grown > bound {
			t.Errorf("the process has grown by %d bytes, more than %d", grown, bound)
		}
	}
	close(stop)
	slowly.Wait()
	for _, c := range clients[:3] {
		_ = c.conn.Close()
		last := c.last(t)
		res, err := reader.openSSE(t.Context(), session, "?until=idle", last)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", res, err)
		}
		if got := countEvents(t, res.Body, last); got != w.last-last {
			t.Errorf("a slow client that comes back with %d gets %d events, want %d", last, got, w.last-last)
		}
		_ = res.Body.Close()
	}
}

const (
	pieceBytes = 4 << 10
	batchBytes = 64 * pieceBytes // what a stream holds at a time
)

// much writes so many bytes, and ends the run. Attempts are discarded on the
// way, since no answer is that long.
func (w *runWriter) much(t *testing.T, total int) {
	t.Helper()
	piece := strings.Repeat("x", pieceBytes)
	attempt := 1
	for written := 0; written < total; {
		var pieces []event.Payload
		for range 32 {
			pieces = append(pieces, event.AssistantDelta{Attempt: attempt, Lane: stream.LaneText, BlockID: "0", Text: piece})
			written += pieceBytes
		}
		if written%(1<<20) == 0 {
			pieces = append(pieces, event.AssistantDiscarded{Attempt: attempt, Reason: "interrupted"})
			attempt++
			pieces = append(pieces, event.ModelRequested{Attempt: attempt, Model: "m", MessageIDs: []string{}})
		}
		w.write(t, 1, pieces...)
	}
	w.write(t, 1, event.AssistantDiscarded{Attempt: attempt, Reason: "interrupted"})
	w.write(t, 0, event.RunFailed{Reason: event.FailModel, Error: "enough"})
}

// countEvents reads to the end. Behind after, no id may be left out or come
// twice.
func countEvents(t *testing.T, body io.Reader, after int64) (n int64) {
	for r := newSSEReader(body); ; n++ {
		fr, err := r.event()
		if err != nil {
			return n
		}
		if fr.id != after+n+1 {
			t.Errorf("event %d comes behind %d", fr.id, after+n)
			return n
		}
	}
}

// peakMemory is the most that a process has had in memory, 0 where the system
// does not say.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	return 0
}
