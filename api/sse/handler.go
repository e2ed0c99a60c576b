package sse

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Errors that a [Stream] and its opening use to say how they end.
var (
	// ErrNothingLeft: until=idle was asked for, and there is nothing to send.
	ErrNothingLeft = errors.New("nothing is left to send")
	// ErrStopping: the server stops; the client should come back.
	ErrStopping = errors.New("the server is stopping: connect again")
)

// Stream is a session that is being followed. It is used by one goroutine.
type Stream interface {
	// Next waits for the events that follow the last ones. No events and no
	// error mean that a heartbeat is due. io.EOF ends a stream that has said
	// everything, [ErrStopping] one that the client should ask for again. All
	// calls are given the same ctx.
	Next(ctx context.Context) ([]event.Event, error)
	// Close lets go of what the stream holds. It is called once, after the last
	// Next.
	Close()
}

// Handler serves the event stream of the session, or run, whose id is the path
// value "id". Its fields are set before the first request; it is safe for concurrent
// use.
type Handler struct {
	// Open follows what has the id as the query asks. The error is given to Fail, but
	// [ErrNothingLeft] is answered with 204.
	Open func(ctx context.Context, id string, q Query) (Stream, error)
	// Fail answers a request that could not be streamed.
	Fail func(w http.ResponseWriter, r *http.Request, err error)
	// WriteTimeout is how long one write may take before the reader is given
	// up. It has no default: 0 gives up at once.
	WriteTimeout time.Duration
	// Log gets streams that broke on this side.
	Log *slog.Logger
}

// retry is how long an EventSource waits before it comes back.
const retry = "retry: 1000\n\n"

// ServeHTTP answers with the stream.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r)
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	// A middleware that breaks streaming is found on the first request, whether
	// or not there is something to send.
	out, err := NewWriter(w, h.WriteTimeout)
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	stream, err := h.Open(r.Context(), r.PathValue("id"), q)
	switch {
	case errors.Is(err, ErrNothingLeft):
		w.WriteHeader(http.StatusNoContent)
		return
	case err != nil:
		h.Fail(w, r, err)
		return
	}
	defer stream.Close()
	head := w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-cache, no-transform")
	head.Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	h.serve(r.Context(), out, r.PathValue("id"), stream)
}

// serve writes until the stream or the reader ends.
func (h *Handler) serve(ctx context.Context, w *Writer, id string, stream Stream) {
	if err := send(w, []byte(retry)); err != nil {
		return
	}
	for {
		events, err := stream.Next(ctx)
		switch {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return
		case errors.Is(err, ErrStopping):
			// It ends either way; a lost farewell changes nothing.
			_ = send(w, []byte(": the server is stopping\n\n"))
			return
		case errors.Is(err, loop.ErrNotFound):
			// The session was deleted. The reader comes back and gets the 404.
			return
		case err != nil:
			// The reader comes back with its cursor and gets a status if this
			// lasts.
			h.Log.WarnContext(ctx, "event stream ended", "id", id, "error", err)
			// A stream that has an end of its own must not seem to have come to it.
			panic(http.ErrAbortHandler)
		case len(events) == 0:
			err = send(w, []byte(": ping\n\n"))
		default:
			err = sendEvents(w, events)
		}
		if err != nil {
			return
		}
	}
}

// buffers are shared by all streams, so that those that wait hold none.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const (
	// fullBuffer is how much is written at once, if no event is larger.
	fullBuffer = 16 << 10
	// keepBuffer bounds what an event that is larger leaves behind.
	keepBuffer = 64 << 10
)

// sendEvents sends events, a few of them in one write.
func sendEvents(w *Writer, events []event.Event) error {
	b := buffers.Get().(*[]byte)
	frames := (*b)[:0]
	defer func() {
		if cap(frames) <= keepBuffer {
			*b = frames
			buffers.Put(b)
		}
	}()
	for i, e := range events {
		frames = appendFrame(frames, e)
		if i < len(events)-1 && len(frames) < fullBuffer {
			continue
		}
		if _, err := w.Write(frames); err != nil {
			return err
		}
		frames = frames[:0]
	}
	return w.FlushError()
}

func send(w *Writer, b []byte) error {
	if _, err := w.Write(b); err != nil {
		return err
	}
	return w.FlushError()
}
