package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

const (
	// finishGrace is the longest silence once the answer is whole: only a
	// usage report can still come.
	finishGrace = 5 * time.Second
	// tailLimit is how long that may take in all, whatever else comes.
	tailLimit = time.Minute
)

// Read plays the frames of a stream to the consumer.
func (c *call) Read(ctx context.Context, body *wire.WatchedReader) error {
	frames := wire.NewFrameReader(io.TeeReader(body, &c.Head))
	var whole time.Time // when the answer was
	for {
		wait, cause := c.model.endpoint.Data, wire.ErrNoData
		if c.acc.finishReason != "" {
			if whole.IsZero() {
				whole = time.Now()
				body.Idle = graceful(body.Idle)
			}
			if wait, cause = tailLimit-time.Since(whole), wire.ErrTail; wait <= 0 {
				return c.finish()
			}
		}
		frame, err := c.nextData(frames, wait, cause)
		if err != nil {
			return c.ended(ctx, err)
		}
		if string(frame.Data) == "[DONE]" {
			return c.finish()
		}
		if over, err := c.take(frame); over || err != nil {
			return err
		}
	}
}

func graceful(idle time.Duration) time.Duration {
	if idle == 0 {
		return finishGrace
	}
	return min(idle, finishGrace)
}

// nextData returns the next frame that is no keep-alive.
func (c *call) nextData(frames *wire.FrameReader, wait time.Duration, cause error) (wire.Frame, error) {
	silence := wire.NewSilence(c.Cancel)
	silence.Limit(wait, cause)
	defer silence.End()
	for {
		f, err := frames.Next()
		if err != nil {
			return wire.Frame{}, err
		}
		c.Framed = true
		if f.Data = bytes.TrimSpace(f.Data); len(f.Data) > 0 {
			return f, nil
		}
	}
}

// take yields what a frame adds to the answer. over says that the consumer
// wants no more.
func (c *call) take(f wire.Frame) (over bool, err error) {
	var ch wireChunk
	if err := json.Unmarshal(f.Data, &ch); err != nil {
		if f.Cut {
			return false, nil // the connection broke inside the frame: the next read says how
		}
		return false, c.malformed("the provider sent a frame that is not a chunk", err)
	}
	if me := c.model.failure(ch); me != nil {
		return false, me
	}
	chunks := c.acc.add(ch)
	switch err := c.acc.problem(); {
	case errors.Is(err, errAnswerTooLong):
		return false, &loop.ModelError{Status: c.Status, Code: "answer_too_long", Message: err.Error(), Err: err}
	case err != nil:
		return false, &loop.ModelError{Status: c.Status, Code: "too_many_calls", Message: err.Error(), Err: err}
	}
	return !c.say(chunks), nil
}

// ended judges a stream that ended without [DONE].
func (c *call) ended(ctx context.Context, err error) error {
	if c.acc.finishReason != "" {
		return c.finish()
	}
	if !c.Framed && ctx.Err() == nil {
		if body := c.Head.Foreign(); body != nil {
			return c.notStream(body)
		}
	}
	var p *wire.PanicError
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, wire.ErrLineTooLong):
		return &loop.ModelError{Status: c.Status, Code: "line_too_long", Message: err.Error(), Err: err}
	case ctx.Err() != nil, errors.As(err, &p):
		return c.model.endpoint.Failure(ctx, c.Status, err)
	}
	c.Lost = err
	return nil
}

// finish yields the chunk that makes the answer whole, unless it is none.
func (c *call) finish() error {
	left, finish, err := c.acc.finish()
	switch {
	case err != nil:
		return c.malformed(err.Error(), nil)
	case brokeOff(finish.Raw):
		word := c.model.endpoint.Redact.Clean(finish.Raw)
		return &loop.ModelError{Status: c.Status, Code: word, Message: "the provider broke its answer off (finish reason: " + word + ")", Retryable: true}
	case finish.Raw == "" && c.acc.empty():
		return &loop.ModelError{Status: c.Status, Code: "empty_answer", Message: "the provider ended its answer before it had begun", Retryable: true}
	}
	c.say(append(left, stream.Chunk{Kind: stream.KindFinish, Finish: finish}))
	return nil
}

// say yields chunks while the consumer wants them, and reports whether it
// still does.
func (c *call) say(chunks []stream.Chunk) bool {
	for _, out := range chunks {
		if !c.Yield(out, nil) {
			c.Stopped = true
			return false
		}
	}
	return true
}

func (c *call) malformed(problem string, err error) *loop.ModelError {
	return &loop.ModelError{Status: http.StatusOK, Code: "malformed_stream", Message: problem, Retryable: true, Err: c.model.endpoint.Redact.Cause(err)}
}
