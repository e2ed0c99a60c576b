package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// held is a tool that answers when it is released.
func held() (tool looptest.Tool, release func()) {
	open := make(chan struct{})
	return looptest.Tool{Name: "slow", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
		select {
		case <-open:
			return loop.ToolOutput{Content: "at last"}, nil
		case <-ctx.Done():
			return loop.ToolOutput{}, ctx.Err()
		}
	}}, sync.OnceFunc(func() { close(open) })
}

// callsOnce calls the tool and then answers.
func callsOnce(tool, arguments string) looptest.Model {
	return looptest.Answers(
		looptest.Answer(looptest.ToolCall("c1", tool, arguments), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("Done."), looptest.Finish(stream.FinishStop)),
	)
}

// These stand to each other as the real ones do: the heartbeat is half of what
// proxies allow, and the silence is longer than every timer.
const (
	shortWrites    = time.Second
	shortHeartbeat = 100 * time.Millisecond
	shortIdle      = 2 * time.Second
	manyHeartbeats = 30
)

func impatient(p *stackParts) {
	p.server.WriteTimeout, p.server.ReadTimeout = shortWrites, shortWrites
	p.api.Heartbeat = shortHeartbeat
}

// awaitType reads on to the event of that type and returns its seq.
func (r *sseReader) awaitType(t *testing.T, kind event.Type) int64 {
	t.Helper()
	for {
		if f := r.facts(t, 1)[0]; f.Type == kind {
			return f.Seq
		}
	}
}

// heartbeats reads n frames, of which none may be an event.
func (r *sseReader) heartbeats(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		fr, err := r.next()
		if err != nil || fr.comment == "" || fr.id != 0 || fr.data != nil {
			t.Fatalf("frame %d of the silence is %+v, %v, want a comment and nothing else", i+1, fr, err)
		}
	}
}

func TestAStreamOutlivesASilenceThatIsLongerThanEveryTimer(t *testing.T) {
	t.Parallel()
	tool, release := held()
	s := newStack(t, storetest.New(t), impatient, playing(callsOnce("slow", "{}"), tool))
	id := s.Session(t)
	job := s.Start(t, id, "go")
	behind := *s
	behind.url = idleProxy(t, s.url, shortIdle)

	direct, proxied := s.listen(t, id, "?until=idle", fromStart), behind.listen(t, id, "?until=idle", fromStart)
	watching := s.watch(t, id, 0)
	run := s.advance(t, job)
	started := direct.awaitType(t, event.TypeToolStarted)
	proxied.awaitType(t, event.TypeToolStarted)
	for n := int64(0); n < started; {
		if !watching.Receive() {
			t.Fatalf("the watch ended: %v", watching.Err())
		}
		n = max(n, int64(watching.Msg().GetEvent().GetSeq()))
	}
	direct.heartbeats(t, manyHeartbeats)
	proxied.heartbeats(t, manyHeartbeats)
	// A browser that comes back now sends the last id that it has seen.
	back := s.listen(t, id, "?until=idle", started)
	back.facts(t, 0)
	release()
	run.wait(t)

	want := above(stored(t, s.db, id), started)
	if len(want) == 0 || want[0].Type != event.TypeToolExecuted {
		t.Fatalf("after the silence: %+v", want)
	}
	sameStory(t, "direct", direct.facts(t, toTheEnd), want)
	sameStory(t, "through a proxy", proxied.facts(t, toTheEnd), want)
	sameStory(t, "watch", watched(t, watching), want)
	sameStory(t, "back in the silence", back.facts(t, toTheEnd), want)
}

// idleProxy cuts a connection on which the server, once it has answered, says
// nothing for so long, as proxies do.
func idleProxy(t *testing.T, target string, idle time.Duration) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		listener.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(target, "http://"))
			if err != nil {
				client.Close()
				continue
			}
			stop := context.AfterFunc(ctx, func() { client.Close(); server.Close() })
			running.Go(func() { _, _ = io.Copy(server, client) })
			running.Go(func() {
				defer stop()
				defer client.Close()
				defer server.Close()
				buf := make([]byte, 32<<10)
				for {
					n, err := server.Read(buf)
					if _, writeErr := client.Write(buf[:n]); err != nil || writeErr != nil {
						return
					}
					_ = server.SetReadDeadline(time.Now().Add(idle)) // a closed one tells the next Read
				}
			})
		}
	})
	return "http://" + listener.Addr().String()
}

func TestAnIdleProxyCutsWhatIsSilent(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t), func(p *stackParts) { p.api.Heartbeat = time.Hour })
	id := s.Session(t)
	s.url = idleProxy(t, s.url, 100*time.Millisecond)
	r := s.listen(t, id, "", 1)
	if fr, err := r.event(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("%+v, %v: the proxy of these tests cuts nothing", fr, err)
	}
}

func TestStreamsTellProxiesNotToTouchThem(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	res, err := s.openSSE(t.Context(), s.Session(t), "", fromStart)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no",
		"Content-Encoding": "", "Content-Length": "",
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// hidden is what a careless middleware leaves of a response.
type hidden struct{ http.ResponseWriter }

// timed has deadlines, and still no Flush.
type timed struct{ hidden }

func (w timed) SetWriteDeadline(at time.Time) error {
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(at)
}

func TestAMiddlewareThatHidesFlushFailsLoudly(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(http.ResponseWriter) http.ResponseWriter{
		"Everything": func(w http.ResponseWriter) http.ResponseWriter { return hidden{w} },
		"OnlyFlush":  func(w http.ResponseWriter) http.ResponseWriter { return timed{hidden{w}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failsLoudly(t, wrap)
		})
	}
}

func failsLoudly(t *testing.T, wrap func(http.ResponseWriter) http.ResponseWriter) {
	t.Helper()
	s := newStack(t, storetest.New(t), func(p *stackParts) {
		p.wrap = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(wrap(w), r) })
		}
	})
	id := s.Session(t)
	s.say(t, id, "one")
	// Also when there is nothing to send.
	for _, query := range []string{"", "?until=idle", "?until=idle&after=1"} {
		res, err := s.openSSE(t.Context(), id, query, fromStart)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusInternalServerError || err != nil || bytes.Contains(body, []byte("session.created")) {
			t.Errorf("%q: %d %s %v, want 500", query, res.StatusCode, body, err)
		}
	}
	if log := s.logged.String(); !strings.Contains(log, "cannot be streamed") {
		t.Errorf("the log says %q", log)
	}
}
