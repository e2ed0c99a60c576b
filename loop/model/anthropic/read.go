package anthropic

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

// maxContentType is the length of a shown content type, in bytes.
const maxContentType = 100

// errNoEvent is a frame that is no event.
var errNoEvent = errors.New("the provider sent a frame that is not an event")

// Read plays the events of a stream to the consumer.
func (c *call) Read(ctx context.Context, body *wire.WatchedReader) error {
	frames := wire.NewFrameReader(io.TeeReader(body, &c.Head))
	for {
		e, err := c.nextEvent(frames)
		switch {
		case errors.Is(err, errNoEvent):
			return c.malformed(errNoEvent.Error(), err)
		case err != nil:
			return c.ended(ctx, err)
		case e.Type == eventStop:
			return c.finish()
		}
		if over, err := c.take(e); over || err != nil {
			return err
		}
	}
}

// nextEvent returns the next event that is no keep-alive.
func (c *call) nextEvent(frames *wire.FrameReader) (wireEvent, error) {
	silence := wire.NewSilence(c.Cancel)
	silence.Limit(c.model.endpoint.Data, wire.ErrNoData)
	defer silence.End()
	for {
		f, err := frames.Next()
		if err != nil {
			return wireEvent{}, err
		}
		c.Framed = true
		data := bytes.TrimSpace(f.Data)
		if len(data) == 0 || string(data) == "[DONE]" {
			continue // some gateways end every stream with that
		}
		var e wireEvent
		if err := json.Unmarshal(data, &e); err != nil {
			if f.Cut {
				continue // the connection broke inside the frame: the next read says how
			}
			return e, errors.Join(errNoEvent, err)
		}
		if e.Type != eventPing {
			return e, nil
		}
	}
}

// take yields what an event adds to the answer. over says that the consumer
// wants no more.
func (c *call) take(e wireEvent) (over bool, err error) {
	if me := c.failed(e); me != nil {
		return false, me
	}
	var chunks []stream.Chunk
	switch e.Type {
	case eventStart:
		err = c.answer.started(e.Message)
	case eventBlockStart:
		chunks, err = c.answer.begin(e.Index, e.ContentBlock)
	case eventBlockDelta:
		chunks, err = c.answer.more(e.Index, e.Delta)
	case eventBlockStop:
		chunks = c.answer.end(e.Index)
	case eventDelta:
		c.answer.stopping(e)
	}
	switch {
	case errors.Is(err, errUnnamedCall):
		return false, c.malformed(err.Error(), nil)
	case err != nil:
		return false, c.malformed(errNoEvent.Error(), err)
	}
	switch err := c.answer.problem(); {
	case errors.Is(err, errAnswerTooLong):
		return false, &loop.ModelError{Status: c.Status, Code: "answer_too_long", Message: err.Error(), Err: err}
	case err != nil:
		return false, &loop.ModelError{Status: c.Status, Code: "too_many_calls", Message: err.Error(), Err: err}
	}
	return !c.say(chunks), nil
}

// ended judges a stream that ended without message_stop.
func (c *call) ended(ctx context.Context, err error) error {
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

// notStream says what came in place of a stream: the provider's own error if it
// is one.
func (c *call) notStream(body []byte) *loop.ModelError {
	if e, ok := errorBody(body); ok {
		return c.model.modelError(e, http.StatusOK)
	}
	contentType := cmp.Or(event.Shorten(c.model.endpoint.Redact.Clean(c.ContentType), maxContentType), "none")
	return &loop.ModelError{
		Status: http.StatusOK, Code: "not_a_stream",
		Message: "the provider's answer is not an event stream (content type: " + contentType + "): check that ANTHROPIC_BASE_URL is right " +
			"(/v1/messages is appended to it), that what is there can stream, and that no proxy or login page answers in its place",
	}
}

// finish yields the chunk that makes the answer whole, unless it is none.
func (c *call) finish() error {
	if c.answer.stopReason == "" && !c.answer.said {
		return &loop.ModelError{Status: c.Status, Code: "empty_answer", Message: "the provider ended its answer before it had begun", Retryable: true}
	}
	c.say(c.answer.finish())
	return nil
}

// say yields chunks while the consumer wants them, and reports whether it still
// does.
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
