package api_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/seed-2ca4966b/agentd/api"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

type watch struct {
	*connect.ServerStreamForClient[agentdv1.WatchEventsResponse]
	t *testing.T
}

func (b *bundle) watch(ctx context.Context, t *testing.T, c agentdv1connect.SessionServiceClient, req *agentdv1.WatchEventsRequest) watch {
	t.Helper()
	s, err := c.WatchEvents(ctx, connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // again, if the test did
	return watch{s, t}
}

// event skips heartbeats.
func (w watch) event() *agentdv1.Event {
	w.t.Helper()
	for w.Receive() {
		if e := w.Msg().GetEvent(); e != nil {
			return e
		}
	}
	w.t.Fatalf("the stream ended with %v, want an event", w.Err())
	return nil
}

func (w watch) leave() {
	w.t.Helper()
	if err := w.Close(); err != nil {
		w.t.Errorf("close: %v", err)
	}
}

// end skips to the end of the stream.
func (w watch) end() error {
	for w.Receive() {
		continue
	}
	return w.Err()
}

// protocols are all ways in which a client may speak.
func (b *bundle) protocols(t *testing.T) map[string]agentdv1connect.SessionServiceClient {
	t.Helper()
	h2 := h2c(t)
	client := agentdv1connect.NewSessionServiceClient
	return map[string]agentdv1connect.SessionServiceClient{
		"connect JSON": client(b.client, b.url, connect.WithProtoJSON()),
		"connect":      b.sessions,
		"connect h2c":  client(h2, b.url),
		"gRPC-Web":     client(b.client, b.url, connect.WithGRPCWeb()),
		"gRPC":         client(h2, b.url, connect.WithGRPC()),
	}
}

func TestWatchReplaysFollowsAndResumes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range b.protocols(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := b.newSession(t)
			w := b.watch(t.Context(), t, c, &agentdv1.WatchEventsRequest{SessionId: id})
			got := []*agentdv1.Event{w.event()}
			run := b.start(t, id, "hi").RunID
			got = append(got, w.event(), w.event())
			w.leave() // does not touch the run
			w = b.watch(t.Context(), t, c, &agentdv1.WatchEventsRequest{SessionId: id, After: 3, UntilIdle: true})
			got = append(got, w.event())
			b.begin(t, id, run)
			b.complete(t, id, run, "ok")
			for w.Receive() {
				got = append(got, w.Msg().GetEvent())
			}
			if w.Err() != nil {
				t.Errorf("the stream ended with %v, want a clean end", w.Err())
			}
			want := b.events(t, id)
			if len(got) != len(want) {
				t.Fatalf("%d events, want %d", len(got), len(want))
			}
			for i := range want {
				wantEvent(t, got[i], want[i])
			}
			w = b.watch(t.Context(), t, c, &agentdv1.WatchEventsRequest{SessionId: id, After: uint64(len(want)), UntilIdle: true})
			if w.Receive() || w.Err() != nil {
				t.Errorf("nothing is left: %v, %v, want a clean end", w.Msg(), w.Err())
			}
		})
	}
}

func TestWatchRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	for name, c := range b.protocols(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, tt := range []struct {
				req    *agentdv1.WatchEventsRequest
				code   connect.Code
				reason string
			}{
				{&agentdv1.WatchEventsRequest{SessionId: id, After: 2}, connect.CodeOutOfRange, "cursor_ahead"},
				{&agentdv1.WatchEventsRequest{SessionId: id, After: 1<<64 - 1}, connect.CodeOutOfRange, "cursor_ahead"},
				{&agentdv1.WatchEventsRequest{SessionId: uuid.NewString()}, connect.CodeNotFound, "not_found"},
				{&agentdv1.WatchEventsRequest{SessionId: "nope"}, connect.CodeNotFound, "not_found"},
				{&agentdv1.WatchEventsRequest{}, connect.CodeInvalidArgument, "invalid_argument"},
			} {
				wantError(t, b.watch(t.Context(), t, c, tt.req).end(), tt.code, tt.reason)
			}
		})
	}
}

func TestWatchHeartbeatsPastTheServersTimeouts(t *testing.T) {
	t.Parallel()
	b := setup(t, serverTimeouts(time.Second), heartbeat(200*time.Millisecond))
	for name, c := range b.protocols(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := b.newSession(t)
			w := b.watch(t.Context(), t, c, &agentdv1.WatchEventsRequest{SessionId: id})
			w.event()
			for range 15 { // three times the timeouts
				if !w.Receive() || w.Msg().GetEvent() != nil {
					t.Fatalf("%v, %v, want a heartbeat", w.Msg(), w.Err())
				}
			}
			b.start(t, id, "late")
			if e := w.event(); e.GetSeq() != 2 {
				t.Errorf("seq %d, want 2", e.GetSeq())
			}
		})
	}
}

func TestWatchOpensBeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.newSession(t)
	for name, c := range b.protocols(t) {
		// Without the headers this call would wait for the first heartbeat.
		w := b.watch(t.Context(), t, c, &agentdv1.WatchEventsRequest{SessionId: id, After: 1})
		if len(w.ResponseHeader()) == 0 {
			t.Errorf("%s: no headers", name)
		}
		w.leave()
	}
}

func TestWatchEndsWithItsReason(t *testing.T) {
	t.Parallel()
	t.Run("Deadline", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id := b.newSession(t)
		for name, c := range b.protocols(t) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			s, err := c.WatchEvents(ctx, connect.NewRequest(&agentdv1.WatchEventsRequest{SessionId: id}))
			if err == nil {
				err = watch{s, t}.end()
			}
			if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
				t.Errorf("%s: %v, want deadline_exceeded", name, err)
			}
			cancel()
		}
	})
	t.Run("SessionDeleted", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id := b.newSession(t)
		w := b.watch(t.Context(), t, b.sessions, &agentdv1.WatchEventsRequest{SessionId: id})
		w.event()
		if err := b.DeleteSession(t.Context(), tenant, id, event.System("test")); err != nil {
			t.Fatal(err)
		}
		wantError(t, w.end(), connect.CodeNotFound, "not_found")
	})
	t.Run("StoreFails", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id := b.newSession(t)
		run := b.start(t, id, "hi").RunID
		w := b.watch(t.Context(), t, b.sessions, &agentdv1.WatchEventsRequest{SessionId: id, UntilIdle: true})
		for range 4 {
			w.event()
		}
		b.failWith(errors.New("the database is gone"))
		b.append(t, id, run, 0, event.RunCancelRequested{})
		wantError(t, w.end(), connect.CodeInternal, "internal")
	})
	t.Run("HeadFailsUntilIdle", func(t *testing.T) {
		t.Parallel()
		b := setup(t, func(c *api.Config, _ *http.Server) { c.Feed = &oneHead{Feed: c.Feed} })
		id, _ := b.finishedSession(t)
		w := b.watch(t.Context(), t, b.sessions, &agentdv1.WatchEventsRequest{SessionId: id, UntilIdle: true})
		wantError(t, w.end(), connect.CodeInternal, "internal")
	})
	t.Run("ServerStops", func(t *testing.T) {
		t.Parallel()
		stopping, stop := context.WithCancel(t.Context())
		b := setup(t, func(c *api.Config, _ *http.Server) { c.Stopping = stopping })
		id := b.newSession(t)
		w := b.watch(t.Context(), t, b.sessions, &agentdv1.WatchEventsRequest{SessionId: id})
		w.event()
		stop()
		wantError(t, w.end(), connect.CodeUnavailable, "stopping")
	})
}

// oneHead is a feed that tells where a session stands only once.
type oneHead struct {
	api.Feed
	told atomic.Bool
}

func (f *oneHead) Head(ctx context.Context, tenantID, sessionID string) (loop.Head, error) {
	if f.told.Swap(true) {
		return loop.Head{}, errors.New("the database is gone")
	}
	return f.Feed.Head(ctx, tenantID, sessionID)
}

func TestWatchReaderThatTakesNothingIsGivenUp(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	b := setup(t, func(c *api.Config, s *http.Server) {
		c.WriteTimeout = 200 * time.Millisecond
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inner(r).ServeHTTP(w, r)
			close(ended)
		})
	})
	id := b.newSession(t)
	run := b.start(t, id, "hi").RunID
	for range 300 { // 15 MB, more than sockets buffer
		b.delta(t, id, run, strings.Repeat("x", 50<<10))
	}
	narrow := &http.Transport{DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
		return dialNarrow(network, address)
	}}
	t.Cleanup(narrow.CloseIdleConnections)
	// Compressed, it would all fit.
	c := agentdv1connect.NewSessionServiceClient(&http.Client{Transport: narrow}, b.url, connect.WithAcceptCompression("gzip", nil, nil))
	w := b.watch(t.Context(), t, c, &agentdv1.WatchEventsRequest{SessionId: id})
	waitFor(t, ended)
	if w.end() == nil {
		t.Error("a stream that was cut looks complete")
	}
}

func TestWatchBehindAMiddlewareThatCannotStreamFailsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, wrapped(func(w http.ResponseWriter) http.ResponseWriter { return opaque{w} }))
	id := b.newSession(t)
	err := b.watch(t.Context(), t, b.sessions, &agentdv1.WatchEventsRequest{SessionId: id}).end()
	d := wantError(t, err, connect.CodeInternal, "internal")
	wantLogged(t, b, d.GetErrorId(), errors.New("cannot be streamed"))
}
