package api_test

import (
	"bytes"
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

	"github.com/google/uuid"

	"github.com/seed-2ca4966b/agentd/api"
	"github.com/seed-2ca4966b/agentd/api/apitest"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

func eventsPath(sessionID, query string) string {
	return "/v1/sessions/" + sessionID + "/events" + query
}

func lastID(n int64) http.Header { return http.Header{"Last-Event-Id": {strconv.FormatInt(n, 10)}} }

func TestSSECursors(t *testing.T) {
	t.Parallel()
	b := setup(t, withKey("k"))
	id, _ := b.finishedSession(t)
	newest := int64(len(b.events(t, id)))
	for _, c := range apitest.Cursors(newest) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := apitest.CheckCursor(t.Context(), b.client, b.url+eventsPath(id, ""), "k", newest, c); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSSEHeadersAndOpening(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	res := b.get(t, eventsPath(id, ""), nil)
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no", "Content-Encoding": "",
	} {
		if got := res.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	opening := make([]byte, len("retry: 1000\n\nid: 1\ndata: {"))
	if _, err := io.ReadFull(res.body, opening); err != nil || string(opening) != "retry: 1000\n\nid: 1\ndata: {" {
		t.Errorf("the stream begins with %q, %v", opening, err)
	}
	head, err := http.NewRequestWithContext(t.Context(), http.MethodHead, b.url+eventsPath(id, ""), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res = b.do(t, head)
	if res.status != http.StatusOK || res.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %d, %v", res.status, res.header)
	}
}

func TestSSERefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	wantJSONError(t, b.get(t, eventsPath(uuid.NewString(), ""), nil), 404, "not_found", "not_found")
	wantJSONError(t, b.get(t, eventsPath("nope", ""), nil), 404, "not_found", "not_found")
	wantJSONError(t, b.get(t, eventsPath("a%2Fb%00", ""), nil), 404, "not_found", "not_found")
	if body := wantJSONError(t, b.get(t, eventsPath(id, "?until=never"), nil), 400, "invalid_argument", "invalid_argument"); body["field"] != "until" {
		t.Errorf("field %q, want until", body["field"])
	}
	if err := b.DeleteSession(t.Context(), tenant, id, event.System("test")); err != nil {
		t.Fatal(err)
	}
	wantJSONError(t, b.get(t, eventsPath(id, ""), nil), 404, "not_found", "not_found")
}

func TestSSEReplayEqualsLiveEqualsTheLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	live := readFrames(t, b.get(t, eventsPath(id, "?until=idle&after=0"), nil).body)
	live.event()
	// The stream stands and is idle, so it ends; one that follows does not.
	follow := readFrames(t, b.get(t, eventsPath(id, ""), nil).body)
	first := follow.event()

	run := b.start(t, id, "naïve <b>&\u2028 \"quoted\"").RunID
	b.begin(t, id, run)
	b.delta(t, id, run, `{"n":9007199254740993.0,"e":1e400}`)
	b.complete(t, id, run, "done")
	want := b.events(t, id)
	got := []frame{first}
	for range want[1:] {
		got = append(got, follow.event())
	}
	replay := readFrames(t, b.get(t, eventsPath(id, "?until=idle"), nil).body).rest()
	if len(replay) != len(want) {
		t.Fatalf("replayed %d events, want %d", len(replay), len(want))
	}
	for i := range want {
		wantFrame(t, got[i], want[i])
		if !bytes.Equal(got[i].data, replay[i].data) {
			t.Errorf("live %s, replay %s, want the same bytes", got[i].data, replay[i].data)
		}
	}
}

func TestSSENewestCursorSendsOnlyWhatFollows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, _ := b.finishedSession(t)
	newest := int64(len(b.events(t, id)))
	stream := readFrames(t, b.get(t, eventsPath(id, ""), lastID(newest)).body)
	if fr, ok := stream.next(); !ok || fr.retry != "1000" {
		t.Fatalf("%v, want the opening", fr)
	}
	b.start(t, id, "more")
	if fr := stream.event(); fr.id != newest+1 {
		t.Errorf("id %d, want %d", fr.id, newest+1)
	}
}

func TestSSEUntilIdle(t *testing.T) {
	t.Parallel()
	b := setup(t, heartbeat(10*time.Millisecond))
	id := b.newSession(t)
	run := b.start(t, id, "hi").RunID
	stream := readFrames(t, b.get(t, eventsPath(id, "?until=idle"), nil).body)
	for want := int64(1); want <= 4; want++ {
		if fr := stream.event(); fr.id != want {
			t.Fatalf("id %d, want %d", fr.id, want)
		}
	}
	// Caught up, but the run is queued, then running: it stays open.
	b.begin(t, id, run)
	if fr := stream.event(); !bytes.Contains(fr.data, []byte("run.started")) {
		t.Errorf("got %s, want run.started", fr.data)
	}
	b.complete(t, id, run, "ok")
	rest := stream.rest() // ends by itself
	newest := int64(len(b.events(t, id)))
	if last := rest[len(rest)-1]; last.id != newest || !bytes.Contains(last.data, []byte("run.completed")) {
		t.Errorf("the last event is %s, want run.completed", last.data)
	}
	res := b.get(t, eventsPath(id, "?until=idle"), lastID(newest))
	if body, err := io.ReadAll(res.body); res.status != http.StatusNoContent || len(body) != 0 || err != nil {
		t.Errorf("coming back: %d %q %v, want 204", res.status, body, err)
	}
	if n := len(readFrames(t, b.get(t, eventsPath(id, "?until=idle"), lastID(newest-1)).body).rest()); n != 1 {
		t.Errorf("one event is left, got %d", n)
	}
	again := b.start(t, id, "again").RunID
	newest = int64(len(b.events(t, id)))
	// Nothing is left to send either, but a run is queued.
	stream = readFrames(t, b.get(t, eventsPath(id, "?until=idle"), lastID(newest)).body)
	for _, want := range []string{"", "ping", "ping"} {
		if fr, ok := stream.next(); !ok || fr.comment != want {
			t.Fatalf("%+v, want a stream that waits", fr)
		}
	}
	b.append(t, id, again, 0, event.RunCancelled{})
	if rest := stream.rest(); len(rest) != 1 {
		t.Errorf("%d events, want run.cancelled", len(rest))
	}
}

func TestSSEHeartbeatDoesNotMoveTheCursor(t *testing.T) {
	t.Parallel()
	b := setup(t, heartbeat(10*time.Millisecond))
	id := b.newSession(t)
	stream := readFrames(t, b.get(t, eventsPath(id, ""), nil).body)
	stream.event()
	for range 3 {
		if fr, ok := stream.next(); !ok || fr.comment != "ping" || fr.id != 0 || fr.data != nil {
			t.Fatalf("got %+v, want a comment and nothing else", fr)
		}
	}
	b.start(t, id, "hi")
	if fr := stream.event(); fr.id != 2 {
		t.Errorf("id %d, want 2", fr.id)
	}
}

func serverTimeouts(d time.Duration) option {
	return func(_ *api.Config, s *http.Server) { s.WriteTimeout, s.ReadTimeout = d, d }
}

func TestSSEOutlivesTheServersTimeouts(t *testing.T) {
	t.Parallel()
	b := setup(t, serverTimeouts(time.Second), heartbeat(200*time.Millisecond))
	for name, client := range map[string]*http.Client{"HTTP/1.1": b.client, "h2c": h2c(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := *b
			c.client = client
			id := b.newSession(t)
			stream := readFrames(t, c.get(t, eventsPath(id, ""), nil).body)
			stream.event()
			for range 15 { // three times the timeouts
				if fr, ok := stream.next(); !ok || fr.comment != "ping" {
					t.Fatalf("got %+v, want a heartbeat", fr)
				}
			}
			b.start(t, id, "late")
			if fr := stream.event(); fr.id != 2 {
				t.Errorf("id %d, want 2", fr.id)
			}
		})
	}
}

// h2c returns a client of cleartext HTTP/2.
func h2c(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// opaque is what a careless middleware wraps around a response.
type opaque struct{ w http.ResponseWriter }

func (o opaque) Header() http.Header         { return o.w.Header() }
func (o opaque) Write(b []byte) (int, error) { return o.w.Write(b) }
func (o opaque) WriteHeader(status int)      { o.w.WriteHeader(status) }

// flushOnly can flush and has no deadlines.
type flushOnly struct{ opaque }

func (f flushOnly) Flush() {}

// polite is what a careful middleware wraps around a response.
type polite struct{ opaque }

func (p polite) Unwrap() http.ResponseWriter { return p.w }

func wrapped(wrap func(http.ResponseWriter) http.ResponseWriter) option {
	return func(_ *api.Config, s *http.Server) {
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner(r).ServeHTTP(wrap(w), r) })
	}
}

func TestSSEBehindAMiddlewareThatCannotStreamFailsAtOnce(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(http.ResponseWriter) http.ResponseWriter{
		"no Flush":     func(w http.ResponseWriter) http.ResponseWriter { return opaque{w} },
		"no deadlines": func(w http.ResponseWriter) http.ResponseWriter { return flushOnly{opaque{w}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, wrapped(wrap))
			id := b.newSession(t)
			body := wantJSONError(t, b.get(t, eventsPath(id, ""), nil), 500, "internal", "internal")
			if log := b.logged.String(); !strings.Contains(log, "cannot be streamed") || !strings.Contains(log, body["error_id"]) {
				t.Errorf("the log says %s", log)
			}
		})
	}
}

func TestSSEBehindAMiddlewareThatUnwraps(t *testing.T) {
	t.Parallel()
	b := setup(t, wrapped(func(w http.ResponseWriter) http.ResponseWriter { return polite{opaque{w}} }))
	id := b.newSession(t)
	stream := readFrames(t, b.get(t, eventsPath(id, ""), nil).body)
	stream.event()
	b.start(t, id, "hi")
	if fr := stream.event(); fr.id != 2 {
		t.Errorf("id %d, want 2", fr.id)
	}
}

func TestSSEEndsWhenTheSessionIsDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	stream := readFrames(t, b.get(t, eventsPath(id, ""), nil).body)
	stream.event()
	if err := b.DeleteSession(t.Context(), tenant, id, event.System("test")); err != nil {
		t.Fatal(err)
	}
	stream.rest()
	wantJSONError(t, b.get(t, eventsPath(id, ""), lastID(1)), 404, "not_found", "not_found")
	if log := b.logged.String(); log != "" {
		t.Errorf("a deleted session is nothing to log: %s", log)
	}
}

func TestSSEBrokenByTheStoreEndsAndIsLogged(t *testing.T) {
	t.Parallel()
	b := setup(t, heartbeat(10*time.Millisecond))
	id := b.newSession(t)
	stream := readFrames(t, b.get(t, eventsPath(id, ""), nil).body)
	stream.event()
	b.failWith(fmt.Errorf("the database is gone"))
	stream.rest()
	if log := b.logged.String(); !strings.Contains(log, "the database is gone") || !strings.Contains(log, id) {
		t.Errorf("the log says %s", log)
	}
}

func TestSSEEndsWhenTheServerStops(t *testing.T) {
	t.Parallel()
	stopping, stop := context.WithCancel(t.Context())
	b := setup(t, func(c *api.Config, _ *http.Server) { c.Stopping = stopping })
	id := b.newSession(t)
	waiting := readFrames(t, b.get(t, eventsPath(id, ""), nil).body)
	waiting.event()
	stop()
	if fr, ok := waiting.next(); !ok || fr.comment != "the server is stopping" {
		t.Errorf("got %+v, want a farewell", fr)
	}
	if fr, ok := waiting.next(); ok {
		t.Errorf("got %+v, want the end", fr)
	}
	late := readFrames(t, b.get(t, eventsPath(id, ""), nil).body)
	late.event()
	if fr, _ := late.next(); fr.comment != "the server is stopping" {
		t.Errorf("got %+v, want a farewell", fr)
	}
}

func TestSSEThatEndsWithTheServerHasWhatTheRunSaidLast(t *testing.T) {
	t.Parallel()
	for range 20 {
		stopping, stop := context.WithCancel(t.Context())
		b := setup(t, func(c *api.Config, _ *http.Server) { c.Stopping = stopping })
		id := b.newSession(t)
		run := b.start(t, id, "hi").RunID
		b.begin(t, id, run)
		stream := readFrames(t, b.get(t, eventsPath(id, ""), nil).body)
		stream.event()
		b.complete(t, id, run, "done")
		stop()
		var last frame
		for fr, ok := stream.next(); ok; fr, ok = stream.next() {
			if fr.comment == "" {
				last = fr
			}
		}
		if !strings.Contains(string(last.data), "run.completed") {
			t.Fatalf("the stream ends with %s", last.data)
		}
	}
}

func TestSSECutAtRandomAndResumedEqualsTheLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	run := b.start(t, id, "hi").RunID
	b.begin(t, id, run)
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range 2000 {
			b.delta(t, id, run, strconv.Itoa(i))
		}
		b.complete(t, id, run, "done")
	}()
	var got []frame
	cuts := 0
	for ended := false; !ended; {
		var header http.Header
		if len(got) > 0 {
			header = lastID(got[len(got)-1].id)
		}
		res := b.get(t, eventsPath(id, "?until=idle"), header)
		if res.status == http.StatusNoContent {
			break
		}
		stream := readFrames(t, res.body)
		take := -1 // to the end
		if cuts < 50 {
			take = rand.IntN(40)
		}
		for ; take != 0; take-- {
			fr, ok := stream.next()
			if !ok {
				ended = true
				break
			}
			if fr.id != 0 {
				got = append(got, fr)
			}
		}
		res.body.Close()
		cuts++
	}
	<-written
	want := b.events(t, id)
	if len(got) != len(want) {
		t.Fatalf("%d events over %d connections, want %d", len(got), cuts, len(want))
	}
	for i := range want {
		wantFrame(t, got[i], want[i])
	}
	if cuts < 50 {
		t.Errorf("%d connections, want at least 50", cuts)
	}
}

func TestSSEReaderThatTakesNothingIsGivenUpInBoundedMemory(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	b := setup(t, func(c *api.Config, s *http.Server) {
		c.WriteTimeout = 200 * time.Millisecond
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inner(r).ServeHTTP(w, r)
			if r.URL.RawQuery == "slow" {
				close(ended)
			}
		})
	})
	id := b.newSession(t)
	run := b.start(t, id, "hi").RunID
	for range 300 { // 15 MB, more than sockets buffer
		b.delta(t, id, run, strings.Repeat("x", 50<<10))
	}
	conn, err := dialNarrow("tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "GET %s?slow HTTP/1.1\r\nHost: localhost\r\n\r\n", eventsPath(id, "")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, ended)
	b.mu.Lock()
	reads := b.reads
	b.mu.Unlock()
	if total := len(b.events(t, id)); reads > total*2/3 {
		t.Errorf("%d of %d events were read for a reader that took none", reads, total)
	}
}

// dialNarrow connects with a small receive buffer, which the kernel then does
// not grow. (It would, to 32 MB.)
func dialNarrow(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return conn, conn.(*net.TCPConn).SetReadBuffer(16 << 10)
}

func waitFor(t *testing.T, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(time.Minute):
		t.Fatal("it did not happen within a minute")
	}
}

func TestSSEOutlastsADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	run := b.start(t, id, "hi").RunID
	stream := readFrames(t, b.get(t, eventsPath(id, "?until=idle"), nil).body)
	stream.event()
	b.failWith(&loop.UnavailableError{Reason: loop.ReasonUnavailable})
	for pings := 0; pings < 2; {
		fr, ok := stream.next()
		if !ok {
			t.Fatal("the stream has ended")
		}
		if fr.comment == "ping" {
			pings++
		}
	}
	b.failWith(nil)
	b.begin(t, id, run)
	stream.event()
}

func TestSSEThatBreaksDoesNotSeemToHaveSaidAll(t *testing.T) {
	t.Parallel()
	b := setup(t, heartbeat(10*time.Millisecond))
	id := b.newSession(t)
	b.start(t, id, "hi")
	body := b.get(t, eventsPath(id, "?until=idle"), nil).body
	b.failWith(fmt.Errorf("something is wrong"))
	if _, err := io.ReadAll(body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the stream ended with %v, want that it was cut", err)
	}
}
