package client_test

import (
	"context"
	"errors"
	"iter"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-2ca4966b/agentd/api/client"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/api/gen/agentd/v1/agentdv1connect"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// take reads events until there are n, and how they ended; n < 0 takes all.
func take(events iter.Seq2[*agentdv1.Event, error], n int) (seqs []uint64, err error) {
	for e, err := range events {
		if err != nil {
			return seqs, err
		}
		if seqs = append(seqs, e.GetSeq()); len(seqs) == n {
			break
		}
	}
	return seqs, nil
}

func TestWatchYieldsEachEventOnceWhateverTheStreamsDo(t *testing.T) {
	t.Parallel()
	w := newWatchable(
		sends(nil, nil, delta(5)), // ends as if that were all
		sends(connect.NewError(connect.CodeInternal, nil), delta(5), delta(6), delta(7)), // repeats, and breaks
		sends(connect.NewError(connect.CodeUnavailable, nil)),                            // is stopping
		stays(nil, delta(8)), // goes silent
		sends(nil, delta(8), delta(9), delta(10)),
	)
	c := serve(t, handlers{sessions: w}, client.WithSilence(time.Second))
	events := c.Watch(t.Context(), "s", 4)
	seqs, err := take(events, 6)
	if err != nil || !slices.Equal(seqs, []uint64{5, 6, 7, 8, 9, 10}) {
		t.Errorf("got %v, %v", seqs, err)
	}
	if after := w.afters(); !slices.Equal(after, []uint64{4, 5, 7, 7, 8}) {
		t.Errorf("asked for what is after %v", after)
	}
	if seqs, err := take(events, 2); err != nil || !slices.Equal(seqs, []uint64{8, 9}) || !slices.Equal(w.afters(), []uint64{4}) {
		t.Errorf("a second loop got %v, %v, want what the server sends behind 4", seqs, err)
	}
}

func TestWatchEndsWithWhatWouldComeAgain(t *testing.T) {
	t.Parallel()
	for reason, code := range map[string]connect.Code{
		"not_found": connect.CodeNotFound, "cursor_ahead": connect.CodeOutOfRange, "invalid_argument": connect.CodeInvalidArgument,
		"unauthenticated": connect.CodeUnauthenticated, "host_not_allowed": connect.CodePermissionDenied, "not_allowed": connect.CodeFailedPrecondition,
	} {
		w := newWatchable(sends(nil, delta(1)), sends(refusal(t, code, &agentdv1.ErrorReason{Reason: reason})))
		seqs, err := take(serve(t, handlers{sessions: w}).Watch(t.Context(), "s", 0), -1)
		var refused *client.Error
		if !errors.As(err, &refused) || refused.Reason != reason || refused.Code != code || !slices.Equal(seqs, []uint64{1}) {
			t.Errorf("%s: got %v, %v", reason, seqs, err)
		}
		if n := len(w.afters()); n != 2 {
			t.Errorf("%s: %d connections, want no third", reason, n)
		}
	}
}

// answers is a server, or what stands before it, that answers with these
// statuses and no more than that, the last one for ever.
func answers(asked *atomic.Int32, statuses ...int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		n := int(asked.Add(1))
		http.Error(w, "<html>not agentd</html>", statuses[min(n, len(statuses))-1])
	}
}

func TestWatchEndsWithARefusalOfSomethingInBetween(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 403, 404, 405, 413, 431, 301} {
		var asked atomic.Int32
		seqs, err := take(serveHTTP(t, answers(&asked, status)).Watch(t.Context(), "s", 0), -1)
		if err == nil || len(seqs) > 0 || asked.Load() != 1 || client.ReasonOf(err) != "" {
			t.Errorf("%d: got %v, %v over %d connections", status, seqs, err, asked.Load())
		}
	}
	var asked atomic.Int32
	seqs, err := take(serveHTTP(t, answers(&asked, 502, 503, 504, 404)).Watch(t.Context(), "s", 0), -1)
	if err == nil || len(seqs) > 0 || asked.Load() != 4 {
		t.Errorf("got %v, %v over %d connections, want four", seqs, err, asked.Load())
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	w := newWatchable(stays(left, nil, delta(1)))
	ctx, cancel := context.WithCancel(t.Context())
	for e, err := range serve(t, handlers{sessions: w}).Watch(ctx, "s", 0) {
		if e.GetSeq() == 1 {
			cancel() // the stream is open and silent
			continue
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, %v", e, err)
		}
	}
	<-left

	ctx, cancel = context.WithCancel(t.Context())
	t.Cleanup(cancel)
	away := func() { cancel() } // between two attempts
	c := serve(t, handlers{sessions: newWatchable(sends(connect.NewError(connect.CodeUnavailable, nil)))}, client.WithOutage(away, nil))
	if seqs, err := take(c.Watch(ctx, "s", 0), -1); !errors.Is(err, context.Canceled) || len(seqs) > 0 {
		t.Errorf("got %v, %v", seqs, err)
	}
}

func TestLeavingTheLoopLeavesTheServer(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	c := serve(t, handlers{sessions: newWatchable(stays(left, delta(1)))})
	if seqs, err := take(c.Watch(t.Context(), "s", 0), 1); err != nil || len(seqs) != 1 {
		t.Errorf("got %v, %v", seqs, err)
	}
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("the connection stays open")
	}
}

// deaf takes connections and never answers; it has signals of them.
func deaf(t *testing.T) (url string, connections <-chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted, joined := make(chan struct{}, 100), make(chan struct{})
	go func() {
		defer close(joined)
		var open []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			open = append(open, conn)
			accepted <- struct{}{}
		}
		for _, conn := range open {
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-joined
	})
	return "http://" + listener.Addr().String(), accepted
}

func TestWatchLeavesAServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	url, connections := deaf(t)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() {
		for range 3 {
			<-connections
		}
		cancel()
	}()
	if seqs, err := take(dial(t, url, client.WithSilence(20*time.Millisecond)).Watch(ctx, "s", 0), -1); !errors.Is(err, context.Canceled) || len(seqs) > 0 {
		t.Errorf("got %v, %v", seqs, err)
	}
}

func TestHandlingAnEventIsNoSilence(t *testing.T) {
	t.Parallel()
	const silence = 2 * time.Second // a busy machine is not so silent
	w := newWatchable(stays(nil, delta(1), delta(2)))
	c := serve(t, handlers{sessions: w}, client.WithSilence(silence))
	for e, err := range c.Watch(t.Context(), "s", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.GetSeq() == 2 {
			break
		}
		<-time.After(silence * 3 / 2) // somebody slow
	}
	if n := len(w.afters()); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
}

func TestAPatienceEndsAStream(t *testing.T) {
	t.Parallel()
	var said []string
	c := serve(t, handlers{sessions: newWatchable(sends(nil, delta(1)), sends(connect.NewError(connect.CodeUnavailable, errSentence)))},
		client.WithPatience(time.Second),
		client.WithOutage(func() { said = append(said, "away") }, func() { said = append(said, "back") }))
	seqs, err := take(c.Watch(t.Context(), "s", 0), -1)
	var away *client.AwayError
	if !errors.As(err, &away) || away.For != time.Second || !strings.Contains(err.Error(), "has not answered for 1s (a sentence for people)") || len(seqs) != 1 {
		t.Errorf("got %v, %v", seqs, err)
	}
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Code != connect.CodeUnavailable {
		t.Errorf("%v does not say what the last attempt ended with", err)
	}
	if !slices.Equal(said, []string{"away"}) {
		t.Errorf("said %v", said)
	}
}

// oneRun is a server with one run, in a session that has others. It is shown as
// each of runs in turn, the last one for ever, and then as err if that is set.
type oneRun struct {
	agentdv1connect.UnimplementedRunServiceHandler
	mu   sync.Mutex
	runs []*agentdv1.Run
	err  error
}

func (s *oneRun) GetRun(context.Context, *connect.Request[agentdv1.GetRunRequest]) (*connect.Response[agentdv1.GetRunResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.runs) == 0 {
		return nil, s.err
	}
	run := s.runs[0]
	if len(s.runs) > 1 || s.err != nil {
		s.runs = s.runs[1:]
	}
	return connect.NewResponse(&agentdv1.GetRunResponse{Run: run}), nil
}

func TestWatchRunEndsBehindTheRun(t *testing.T) {
	t.Parallel()
	under, over := &agentdv1.Run{Id: "r", SessionId: "s"}, &agentdv1.Run{Id: "r", SessionId: "s", EndedSeq: 8}
	for _, end := range []event.Type{event.TypeRunCompleted, event.TypeRunFailed, event.TypeRunCancelled} {
		w := newWatchable(
			sends(nil, delta(5), of("other", 6, event.TypeRunCompleted), of("r", 7, event.TypeRunSuspended)),
			stays(nil, of("r", 8, end), of("r", 9, event.TypeRunCreated)),
		)
		seqs, err := take(serve(t, handlers{sessions: w, runs: &oneRun{runs: []*agentdv1.Run{under, over}}}).WatchRun(t.Context(), "r", 4), -1)
		if err != nil || !slices.Equal(seqs, []uint64{5, 7, 8}) {
			t.Errorf("%s: got %v, %v", end, seqs, err)
		}
	}
}

func TestWatchRunGoesOnBehindAFailureThatWasNotTheEnd(t *testing.T) {
	t.Parallel()
	failed := func(seq uint64) *agentdv1.Event { return of("r", seq, event.TypeRunFailed) }
	under, over := &agentdv1.Run{Id: "r", SessionId: "s"}, &agentdv1.Run{Id: "r", SessionId: "s", EndedSeq: 9}
	for name, runs := range map[string][]*agentdv1.Run{
		"under way again": {under, under, over},
		"failed again":    {under, over},
	} {
		w := newWatchable(stays(nil, failed(5), delta(6), failed(9), delta(10)))
		seqs, err := take(serve(t, handlers{sessions: w, runs: &oneRun{runs: runs}}).WatchRun(t.Context(), "r", 4), -1)
		if err != nil || !slices.Equal(seqs, []uint64{5, 6, 9}) {
			t.Errorf("%s: got %v, %v", name, seqs, err)
		}
	}
}

func TestWatchRunTellsWhatEndsIt(t *testing.T) {
	t.Parallel()
	gone := refusal(t, connect.CodeNotFound, &agentdv1.ErrorReason{Reason: "not_found"})
	under := []*agentdv1.Run{{Id: "r", SessionId: "s"}}
	for name, h := range map[string]handlers{
		"no run":                   {runs: &oneRun{err: gone}},
		"no session":               {runs: &oneRun{runs: under}, sessions: newWatchable(sends(gone))},
		"no run behind its events": {runs: &oneRun{runs: under, err: gone}, sessions: newWatchable(stays(nil, of("r", 1, event.TypeRunFailed)))},
	} {
		if seqs, err := take(serve(t, h).WatchRun(t.Context(), "r", 0), -1); client.ReasonOf(err) != "not_found" || len(seqs) > 1 {
			t.Errorf("%s: got %v, %v", name, seqs, err)
		}
	}
}
