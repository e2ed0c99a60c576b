package wire

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
)

// errorWait is how long the body of a refusal is waited for.
const errorWait = 10 * time.Second

// Call is one model call for one consumer: what it sends, waits for and logs is
// the same whatever the API. An adapter sets the first three fields and keeps
// the others up to date while it reads; one goroutine uses it.
type Call struct {
	Endpoint *Endpoint
	// Received is told of the response before its body is read; nil tells
	// nobody. Its error ends the call and is yielded as it is.
	Received func(context.Context, loop.ProviderResponse) error
	// Yield takes the chunks; false means that the consumer wants no more.
	Yield func(stream.Chunk, error) bool

	// Cancel ends the request with a cause; it is set before the answer is read.
	Cancel context.CancelCauseFunc
	// Status is that of the response, 0 while there is none.
	Status      int
	ContentType string
	// Stopped says that the consumer wants no more.
	Stopped bool
	// Lost is what broke the connection in the middle.
	Lost error
	// Head is how the answer begins, for one that is no stream.
	Head Head
	// Framed says that a frame has come, so the answer is a stream.
	Framed bool
}

// Answer reads what comes back, as one API has it.
type Answer interface {
	// Read reads an answer of status 200 and yields its chunks. It returns the
	// error to yield last, nil if there is none.
	Read(ctx context.Context, body *WatchedReader) error
	// Refused turns a response of another status into an error.
	Refused(resp *http.Response, body io.Reader) error
	// Usage is what the provider has said so far.
	Usage() stream.Usage
}

// Do makes the call, reads it into a, logs how it ended and yields the last
// error, with the usage that is known by then.
func (c *Call) Do(ctx context.Context, req loop.ModelRequest, p loop.ProviderRequest, a Answer) {
	start := time.Now()
	err := c.run(ctx, p, a)
	c.Endpoint.Log.LogAttrs(ctx, slog.LevelDebug, "model call ended",
		slog.String("session", req.SessionID), slog.String("run", req.RunID),
		slog.Int("turn", req.Turn), slog.Int("attempt", req.Attempt),
		slog.String("model", req.Model), slog.Int("status", c.Status),
		slog.String("outcome", c.outcome(err)), slog.Duration("took", time.Since(start)))
	if err == nil || c.Stopped {
		return
	}
	var me *loop.ModelError
	if errors.As(err, &me) {
		me.Usage = a.Usage()
	}
	c.Yield(stream.Chunk{}, err)
}

// run returns the error to yield last, nil if there is none.
func (c *Call) run(ctx context.Context, p loop.ProviderRequest, a Answer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	caller, to := ctx, c.Endpoint
	ctx, c.Cancel = context.WithCancelCause(ctx)
	defer c.Cancel(nil)
	silence := NewSilence(c.Cancel)
	defer silence.End()

	start := time.Now()
	silence.Limit(to.FirstByte, ErrFirstByte)
	resp, err := to.Send(ctx, p)
	silence.End()
	if err != nil {
		return to.Failure(ctx, c.Status, err)
	}
	defer resp.Body.Close()
	left := to.FirstByte - time.Since(start)
	c.Status, c.ContentType = resp.StatusCode, resp.Header.Get("Content-Type")
	if c.Received != nil {
		if err := c.Received(caller, to.Response(resp)); err != nil {
			return err
		}
	}
	if to.FirstByte > 0 {
		silence.Limit(max(left, time.Millisecond), ErrFirstByte)
	}
	reader := &WatchedReader{R: resp.Body, Silence: silence, Idle: to.Idle}
	if resp.StatusCode == http.StatusOK {
		return a.Read(ctx, reader)
	}
	body := NewSilence(c.Cancel)
	body.Limit(errorWait, ErrIdle)
	defer body.End()
	me := a.Refused(resp, reader)
	if err := caller.Err(); err != nil {
		return err
	}
	return me
}

// outcome names how the call ended, for the log.
func (c *Call) outcome(err error) string {
	var me *loop.ModelError
	switch {
	case c.Stopped:
		return "consumer stopped"
	case errors.As(err, &me):
		return "error" // and no word of the provider's: whoever made the call says what may be told of it
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err.Error()
	case err != nil:
		return "refused by its caller"
	case c.Lost != nil:
		return "connection lost"
	}
	return "ended"
}
