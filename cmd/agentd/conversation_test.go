package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// watchable is a server whose streams are those of a test, one per call.
type watchable struct {
	agentdv1connect.UnimplementedSessionServiceHandler
	afters  chan uint64
	streams chan func(context.Context, *connect.ServerStream[agentdv1.WatchEventsResponse]) error
}

func (w *watchable) WatchEvents(ctx context.Context, r *connect.Request[agentdv1.WatchEventsRequest], s *connect.ServerStream[agentdv1.WatchEventsResponse]) error {
	w.afters <- r.Msg.GetAfter()
	return (<-w.streams)(ctx, s)
}

// newWatchable returns a conversation with a server that serves these streams.
func newWatchable(t *testing.T, streams ...func(context.Context, *connect.ServerStream[agentdv1.WatchEventsResponse]) error) (*conversation, *watchable) {
	t.Helper()
	w := &watchable{afters: make(chan uint64, 10), streams: make(chan func(context.Context, *connect.ServerStream[agentdv1.WatchEventsResponse]) error, 10)}
	for _, s := range streams {
		w.streams <- s
	}
	_, handler := agentdv1connect.NewSessionServiceHandler(w)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := clientFlags{URL: server.URL, Patience: time.Minute}.client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return &conversation{client: c, sessionID: "s"}, w
}

// sends is a stream of these events, and how it ends.
func sends(end error, events ...*agentdv1.Event) func(context.Context, *connect.ServerStream[agentdv1.WatchEventsResponse]) error {
	return func(_ context.Context, s *connect.ServerStream[agentdv1.WatchEventsResponse]) error {
		for _, e := range events {
			if err := s.Send(&agentdv1.WatchEventsResponse{Event: e}); err != nil {
				return err
			}
		}
		return end
	}
}

func delta(seq uint64, run, text string) *agentdv1.Event {
	return &agentdv1.Event{Seq: seq, RunId: run, Type: string(event.TypeAssistantDelta), DataJson: `{"lane":"` + string(stream.LaneText) + `","text":"` + text + `"}`}
}

func TestFollowShowsEachEventOnceWhateverTheStreamsDo(t *testing.T) {
	t.Parallel()
	completed := &agentdv1.Event{Seq: 9, RunId: "r", Type: string(event.TypeRunCompleted), DataJson: `{"reason":"stop"}`}
	c, w := newWatchable(t,
		sends(nil, nil, delta(5, "r", "a")), // ends as if that were all
		sends(connect.NewError(connect.CodeInternal, nil), delta(5, "r", "a"), delta(6, "other", "x"), delta(7, "r", "b")), // repeats, and breaks
		func(ctx context.Context, s *connect.ServerStream[agentdv1.WatchEventsResponse]) error { // goes silent
			if err := s.Send(&agentdv1.WatchEventsResponse{Event: delta(8, "r", "c")}); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		},
		sends(nil, &agentdv1.Event{Seq: 8, RunId: "r", Type: "of.tomorrow", DataJson: `{}`}, completed),
	)
	c.silence = 200 * time.Millisecond
	text := ""
	end, err := c.follow(t.Context(), "r", 4, func(e event.Payload) {
		if d, ok := e.(event.AssistantDelta); ok {
			text += d.Text
		}
	})
	if _, ok := end.(event.RunCompleted); !ok || err != nil || text != "abc" {
		t.Errorf("end %T, error %v, text %q", end, err, text)
	}
	close(w.afters)
	var afters []uint64
	for after := range w.afters {
		afters = append(afters, after)
	}
	if !slices.Equal(afters, []uint64{4, 5, 7, 8}) {
		t.Errorf("asked for what is after %v", afters)
	}
}

func TestFollowEndsWithWhatWouldComeAgain(t *testing.T) {
	t.Parallel()
	broken := delta(5, "r", "")
	broken.DataJson = `{`
	for name, test := range map[string]struct {
		stream func(context.Context, *connect.ServerStream[agentdv1.WatchEventsResponse]) error
		want   string
	}{
		"AnEventThatCannotBeRead": {sends(nil, broken), "decode assistant.delta"},
		"ACursorAhead":            {sends(connect.NewError(connect.CodeOutOfRange, errors.New("too far"))), "too far"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := newWatchable(t, test.stream)
			if _, err := c.follow(t.Context(), "r", 4, func(event.Payload) {}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// forgetful stores a message and dies before it has said so.
type forgetful struct {
	agentdv1connect.UnimplementedRunServiceHandler
	keys chan string
}

func (f *forgetful) StartRun(_ context.Context, r *connect.Request[agentdv1.StartRunRequest]) (*connect.Response[agentdv1.StartRunResponse], error) {
	f.keys <- r.Msg.GetIdempotencyKey()
	if len(f.keys) < 3 {
		panic(http.ErrAbortHandler)
	}
	return connect.NewResponse(&agentdv1.StartRunResponse{RunId: "r"}), nil
}

func TestAMessageKeepsItsKeyUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	f := &forgetful{keys: make(chan string, 10)}
	_, handler := agentdv1connect.NewRunServiceHandler(f)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := clientFlags{URL: server.URL, Patience: time.Minute}.client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	said := ""
	c.away, c.back = func() { said += "away " }, func() { said += "back " }
	if _, err := (&conversation{client: c}).start(t.Context(), "hi", nil); err != nil || said != "away back " {
		t.Fatalf("error %v, said %q", err, said)
	}
	first := <-f.keys
	if first == "" || first != <-f.keys || first != <-f.keys {
		t.Error("each attempt had a key of its own")
	}
}

func TestTheKeyDoesNotFollowARedirect(t *testing.T) {
	t.Parallel()
	followed := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { followed <- r.Header.Get("Authorization") }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	file := t.TempDir() + "/key"
	if err := os.WriteFile(file, []byte("sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := clientFlags{URL: server.URL, keyFlags: keyFlags{APIKeyFile: file}}.client()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.session(t.Context(), "", true); err == nil {
		t.Error("a redirect is no session")
	}
	select {
	case key := <-followed:
		t.Errorf("the other server got %q", key)
	default:
	}
}

func TestURLFileIsWholeOrNotThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := writeURLFile(dir+"/missing/pg", "postgres://x"); err == nil {
		t.Error("wrote into a directory that is not there")
	}
	if err := os.Mkdir(dir+"/pg.url", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeURLFile(dir+"/pg", "postgres://x"); err == nil {
		t.Error("replaced a directory")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestOnlyATerminalIsMuted(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = null.Close() })
	if _, err := muteEcho(null); err == nil {
		t.Error("muted /dev/null")
	}
	if asTerminal(&std{in: null, out: null}) != nil || asTerminal(&std{in: strings.NewReader("")}) != nil {
		t.Error("took something else for a terminal")
	}
	if w, h := (&terminal{out: null}).size(); w != 80 || h != 24 {
		t.Errorf("size %d×%d", w, h)
	}
}
