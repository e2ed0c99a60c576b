package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
)

// finishGrace is how long the end of a stream is waited for once the answer is
// whole: only a usage report can still come.
const finishGrace = 5 * time.Second

// call is one model call for one consumer.
type call struct {
	model *Model
	yield func(stream.Chunk, error) bool

	status  int
	stopped bool  // the consumer wants no more
	lost    error // what broke the connection in the middle
	acc     accumulator

	contentType string
	head        head
	framed      bool // a frame has come, so the answer is a stream
}

// run returns the error to yield last, nil if there is none.
func (c *call) run(ctx context.Context, req loop.ModelRequest) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	body, err := c.model.requestBody(req)
	if err != nil {
		return &loop.ModelError{Code: "invalid_request", Message: "the request cannot be written as JSON", Err: err}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := newSilence(cancel)
	defer silence.end()

	silence.limit(c.model.firstByte, errFirstByte)
	resp, err := c.send(ctx, body)
	if err != nil {
		return c.failure(ctx, err)
	}
	defer resp.Body.Close()
	c.status, c.contentType = resp.StatusCode, resp.Header.Get("Content-Type")
	reader := &watchedReader{r: resp.Body, silence: silence, idle: c.model.idle}
	if resp.StatusCode != http.StatusOK {
		return c.refused(ctx, resp, reader)
	}
	return c.read(ctx, reader)
}

func (c *call) send(ctx context.Context, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.model.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	if c.model.apiKey != "" {
		r.Header.Set("Authorization", "Bearer "+c.model.apiKey)
	}
	return c.model.client.Do(r)
}

// read plays the frames of a stream to the consumer.
func (c *call) read(ctx context.Context, body *watchedReader) error {
	frames := newFrameReader(io.TeeReader(body, &c.head))
	for {
		frame, err := frames.next()
		if err != nil {
			return c.ended(ctx, err)
		}
		c.framed = true
		data := bytes.TrimSpace(frame.data)
		if len(data) == 0 {
			continue
		}
		if string(data) == "[DONE]" {
			return c.finish()
		}
		var ch wireChunk
		if err := json.Unmarshal(data, &ch); err != nil {
			if frame.cut {
				continue // the connection broke inside the frame: the next read says how
			}
			return malformed("the provider sent a frame that is not a chunk", err)
		}
		if me := ch.failure(c.model.apiKey); me != nil {
			return me
		}
		for _, out := range c.acc.add(ch) {
			if !c.yield(out, nil) {
				c.stopped = true
				return nil
			}
		}
		if c.acc.finishReason != "" {
			body.idle = graceful(body.idle)
		}
	}
}

func graceful(idle time.Duration) time.Duration {
	if idle == 0 {
		return finishGrace
	}
	return min(idle, finishGrace)
}

// ended judges a stream that ended without [DONE].
func (c *call) ended(ctx context.Context, err error) error {
	if c.acc.finishReason != "" {
		return c.finish()
	}
	if !c.framed && ctx.Err() == nil {
		if body := c.head.foreign(); body != nil {
			return c.notStream(body)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, errLineTooLong):
		return &loop.ModelError{Code: "line_too_long", Message: err.Error(), Err: err}
	case ctx.Err() != nil:
		return c.failure(ctx, err)
	}
	c.lost = err
	return nil
}

// finish yields the chunk that makes the answer whole.
func (c *call) finish() error {
	if c.acc.unnamed() {
		return malformed("the provider asked for a tool call without naming the tool", nil)
	}
	if !c.yield(stream.Chunk{Kind: stream.KindFinish, Finish: c.acc.finish()}, nil) {
		c.stopped = true
	}
	return nil
}

// failure says why nothing came: because the caller cancelled, because of
// silence, or because of the network.
func (c *call) failure(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errFirstByte):
		return &loop.ModelError{
			Status: c.status, Code: "first_byte_timeout", Retryable: true, Err: cause,
			Message: "the provider sent nothing for " + c.model.firstByte.String(),
		}
	case errors.Is(cause, errIdle):
		return &loop.ModelError{
			Status: c.status, Code: "idle_timeout", Retryable: true, Err: cause,
			Message: "the provider went silent for " + c.model.idle.String(),
		}
	case ctx.Err() != nil:
		return ctx.Err()
	}
	// The URL in net/http's error may hold a secret in its query.
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	return &loop.ModelError{
		Code: "network_error", Retryable: true, Err: err,
		Message: "call the provider: " + clean(err.Error(), c.model.apiKey),
	}
}

func malformed(problem string, err error) *loop.ModelError {
	return &loop.ModelError{Status: http.StatusOK, Code: "malformed_stream", Message: problem, Retryable: true, Err: err}
}

// outcome names how the call ended, for the log.
func (c *call) outcome(err error) string {
	var me *loop.ModelError
	switch {
	case c.stopped:
		return "consumer stopped"
	case errors.As(err, &me):
		return fmt.Sprintf("error %q", me.Code)
	case err != nil:
		return err.Error()
	case c.lost != nil:
		return "connection lost"
	}
	return "ended"
}
