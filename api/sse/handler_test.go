package sse

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// connection is a response that breaks at a chosen call.
type connection struct {
	*httptest.ResponseRecorder
	breakAt string
	// when counts the calls of breakAt that still succeed.
	when int
	// deadline is the last write deadline that was set.
	deadline time.Time
	// naked counts the flushes without a deadline.
	naked int
	// writes counts.
	writes int
}

var errBroken = errors.New("broken")

func (c *connection) call(name string) error {
	if name != c.breakAt {
		return nil
	}
	if c.when > 0 {
		c.when--
		return nil
	}
	return errBroken
}

func (c *connection) Write(b []byte) (int, error) {
	c.writes++
	if err := c.call("write"); err != nil {
		return 0, err
	}
	return c.ResponseRecorder.Write(b)
}

func (c *connection) FlushError() error {
	if c.deadline.IsZero() {
		c.naked++
	}
	if err := c.call("flush"); err != nil {
		return err
	}
	c.Flush()
	return nil
}

func (c *connection) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	return c.call("write deadline")
}

// script is a stream that says these, one after another, and then is asked no
// more.
type script struct {
	t     *testing.T
	steps []step
	// closed counts.
	closed int
}

type step struct {
	events []event.Event
	err    error
}

func (s *script) Next(context.Context) ([]event.Event, error) {
	if len(s.steps) == 0 {
		s.t.Error("Next after the end or after a write that failed")
		return nil, io.EOF
	}
	next := s.steps[0]
	s.steps = s.steps[1:]
	return next.events, next.err
}

func (s *script) Close() { s.closed++ }

func serve(t *testing.T, c *connection, steps ...step) (failed error) {
	t.Helper()
	stream := &script{t: t, steps: steps}
	opened := 0
	h := &Handler{
		Open: func(context.Context, string, Query) (Stream, error) {
			opened++
			return stream, nil
		},
		Fail:         func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
		WriteTimeout: time.Minute,
		Log:          slog.New(slog.DiscardHandler),
	}
	c.ResponseRecorder = httptest.NewRecorder()
	h.ServeHTTP(c, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	if stream.closed != opened {
		t.Errorf("the stream was opened %d times and closed %d times", opened, stream.closed)
	}
	return failed
}

func one() step { return step{events: []event.Event{{Seq: 1, Payload: []byte("{}")}}} }

func TestAFailedWriteEndsTheHandler(t *testing.T) {
	t.Parallel()
	ping, end := step{}, step{err: io.EOF}
	for name, tt := range map[string]struct {
		breakAt string
		when    int
		steps   []step
	}{
		"opening":                          {"write", 0, nil},
		"opening's flush":                  {"flush", 0, nil},
		"event":                            {"write", 1, []step{one()}},
		"event's flush":                    {"flush", 1, []step{one()}},
		"second event":                     {"write", 2, []step{one(), one()}},
		"heartbeat":                        {"write", 1, []step{ping}},
		"heartbeat's flush":                {"flush", 1, []step{ping}},
		"write deadline of the opening":    {"write deadline", 1, nil},
		"write deadline after its flush":   {"write deadline", 2, nil},
		"farewell, which changes nothing":  {"write", 1, []step{{err: ErrStopping}}},
		"nothing breaks: all steps happen": {"", 0, []step{one(), ping, one(), end}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := serve(t, &connection{breakAt: tt.breakAt, when: tt.when}, tt.steps...); err != nil {
				t.Errorf("failed with %v after the status was sent", err)
			}
		})
	}
}

func TestADeadlineThatCannotBeLiftedFailsBeforeTheStatus(t *testing.T) {
	t.Parallel()
	c := &connection{breakAt: "write deadline"}
	if err := serve(t, c); !errors.Is(err, ErrNotStreamable) || !errors.Is(err, errBroken) {
		t.Errorf("%v, want ErrNotStreamable with its cause", err)
	}
	if c.Flushed || c.Body.Len() > 0 {
		t.Error("something was sent")
	}
}

func TestEveryWriteHasATimeLimitAndIdlingHasNone(t *testing.T) {
	t.Parallel()
	c := &connection{}
	if err := serve(t, c, one(), step{}, step{err: io.EOF}); err != nil {
		t.Fatal(err)
	}
	if c.naked != 0 {
		t.Errorf("%d flushes without a deadline", c.naked)
	}
	if !c.deadline.IsZero() {
		t.Errorf("deadline %v while nothing is written, want none", c.deadline)
	}
}

func TestALargeEventIsFollowedByOthers(t *testing.T) {
	t.Parallel()
	large := step{events: []event.Event{{Seq: 1, Payload: []byte(`"` + strings.Repeat("x", 2*keepBuffer) + `"`)}}}
	c := &connection{}
	if err := serve(t, c, large, one(), step{err: io.EOF}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(c.Body.String(), "id: 1\n"); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
}

func TestEventsThatComeTogetherAreSentTogether(t *testing.T) {
	t.Parallel()
	const n = 64
	for name, tt := range map[string]struct{ payload, writes int }{
		"small": {10, 1},
		"large": {fullBuffer, n},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var events []event.Event
			for i := range n {
				events = append(events, event.Event{Seq: int64(i + 1), Payload: []byte(`"` + strings.Repeat("x", tt.payload) + `"`)})
			}
			c := &connection{}
			if err := serve(t, c, step{events: events}, step{err: io.EOF}); err != nil {
				t.Fatal(err)
			}
			want := retry
			for _, e := range events {
				want += string(appendFrame(nil, e))
			}
			if got := c.Body.String(); got != want {
				t.Errorf("%d bytes that are not the %d of the events in order", len(got), len(want))
			}
			if c.writes != 1+tt.writes {
				t.Errorf("%d writes, want 1 and %d of the events", c.writes, tt.writes)
			}
		})
	}
}

func TestHeadersAloneAreSentWithinTheTimeLimit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		when int
		want error
	}{
		"limit set":     {3, nil},
		"limit not set": {1, errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &connection{ResponseRecorder: httptest.NewRecorder(), breakAt: "write deadline", when: tt.when}
			w, err := NewWriter(c, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.FlushError(); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			if c.naked != 0 || c.Flushed != (tt.want == nil) {
				t.Errorf("flushed: %t, %d times without a deadline", c.Flushed, c.naked)
			}
		})
	}
}
