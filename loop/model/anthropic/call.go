package anthropic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

// errorWait is how long the body of a refusal is waited for.
const errorWait = 10 * time.Second

// call is one model call for one consumer.
type call struct {
	model    *Model
	received func(context.Context, loop.ProviderResponse) error
	yield    func(stream.Chunk, error) bool
	cancel   context.CancelCauseFunc

	status  int
	stopped bool  // the consumer wants no more
	lost    error // what broke the connection in the middle
	answer  answer

	contentType string
	head        wire.Head
	framed      bool // a frame has come, so the answer is a stream
}

// run returns the error to yield last, nil if there is none.
func (c *call) run(ctx context.Context, req loop.ModelRequest, p loop.ProviderRequest) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.answer.names, _ = c.model.names.ToolNames(req) // Request has told the error
	caller, to := ctx, c.model.endpoint
	ctx, c.cancel = context.WithCancelCause(ctx)
	defer c.cancel(nil)
	silence := wire.NewSilence(c.cancel)
	defer silence.End()

	start := time.Now()
	silence.Limit(to.FirstByte, wire.ErrFirstByte)
	resp, err := to.Send(ctx, p)
	silence.End()
	if err != nil {
		return to.Failure(ctx, c.status, err)
	}
	defer resp.Body.Close()
	left := to.FirstByte - time.Since(start)
	c.status, c.contentType = resp.StatusCode, resp.Header.Get("Content-Type")
	if c.received != nil {
		if err := c.received(caller, to.Response(resp)); err != nil {
			return err
		}
	}
	if to.FirstByte > 0 {
		silence.Limit(max(left, time.Millisecond), wire.ErrFirstByte)
	}
	reader := &wire.WatchedReader{R: resp.Body, Silence: silence, Idle: to.Idle}
	if resp.StatusCode == http.StatusOK {
		return c.read(ctx, reader)
	}
	body := wire.NewSilence(c.cancel)
	body.Limit(errorWait, wire.ErrIdle)
	defer body.End()
	me := c.refused(resp, reader)
	if err := caller.Err(); err != nil {
		return err
	}
	return me
}

// outcome names how the call ended, for the log.
func (c *call) outcome(err error) string {
	var me *loop.ModelError
	switch {
	case c.stopped:
		return "consumer stopped"
	case errors.As(err, &me):
		return fmt.Sprintf("error %q", me.Code)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err.Error()
	case err != nil:
		return "refused by its caller"
	case c.lost != nil:
		return "connection lost"
	}
	return "ended"
}
