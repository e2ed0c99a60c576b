package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"
)

// follower reads the events of one run over SSE, from whichever process serves
// it, and comes back with its last id when it is cut off.
type follower struct {
	session string
	after   int64
	stop    context.CancelFunc
	done    chan struct{}
	// back says that it comes back as a browser does, however a stream has
	// ended, until it is told that there is nothing more.
	back bool

	mu     sync.Mutex
	url    string
	frames []sseFrame
	cuts   int
	news   chan struct{} // closed at the next frame
}

// follow follows a session behind the event with seq after, until it is idle.
func follow(t *testing.T, url, session string, after int64) *follower {
	t.Helper()
	return (&follower{session: session, after: after, url: url}).start(t)
}

// followBack is follow for a client that also comes back when a stream has ended
// in order: a process that stops ends it so.
func followBack(t *testing.T, url, session string, after int64) *follower {
	t.Helper()
	return (&follower{session: session, after: after, url: url, back: true}).start(t)
}

func (f *follower) start(t *testing.T) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f.stop, f.done, f.news = cancel, make(chan struct{}), make(chan struct{})
	go f.run(ctx)
	t.Cleanup(func() {
		cancel()
		<-f.done
	})
	return f
}

// turnTo sends the follower to another process, the next time that it is cut
// off.
func (f *follower) turnTo(url string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.url = url
}

func (f *follower) run(ctx context.Context) {
	defer close(f.done)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(10 * time.Millisecond) // a browser waits for longer
	defer tick.Stop()
	for !f.visit(ctx, client) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// visit reports whether the stream has come to its end.
func (f *follower) visit(ctx context.Context, client *http.Client) bool {
	f.mu.Lock()
	url, last := f.url, f.after
	if n := len(f.frames); n > 0 {
		last = f.frames[n-1].id
	}
	f.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/sessions/"+f.session+"/events?until=idle", http.NoBody)
	if err != nil {
		return false
	}
	req.Header.Set("Last-Event-ID", strconv.FormatInt(last, 10))
	res, err := client.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusNoContent:
		return true
	case http.StatusOK:
	default:
		return false
	}
	r := newSSEReader(res.Body)
	for {
		fr, err := r.event()
		if errors.Is(err, io.EOF) && !f.back {
			return true
		}
		f.mu.Lock()
		if err != nil {
			f.cuts++
			f.mu.Unlock()
			return false
		}
		f.frames = append(f.frames, fr)
		close(f.news)
		f.news = make(chan struct{})
		f.mu.Unlock()
	}
}

// await returns when n events have been told, or all.
func (f *follower) await(t *testing.T, n int) {
	t.Helper()
	deadline := time.After(patience)
	for {
		f.mu.Lock()
		got, news := len(f.frames), f.news
		f.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-news:
		case <-f.done:
			return
		case <-deadline:
			t.Fatalf("%d events are told, want %d", got, n)
		}
	}
}

// all returns everything that was told, once the stream has ended, and how
// often it was cut.
func (f *follower) all(t *testing.T) (facts []fact, cuts int) {
	t.Helper()
	select {
	case <-f.done:
	case <-time.After(patience):
		t.Fatal("the event stream does not end")
	}
	for _, fr := range f.frames {
		facts = append(facts, toldBySSE(t, fr))
	}
	return facts, f.cuts
}
