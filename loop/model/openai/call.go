package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
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
	acc     accumulator

	contentType string
	head        wire.Head
	framed      bool // a frame has come, so the answer is a stream
}

// run returns the error to yield last, nil if there is none.
func (c *call) run(ctx context.Context, req loop.ModelRequest, p loop.ProviderRequest) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.acc.names, _ = c.model.names.ToolNames(req) // Request has told the error
	caller := ctx
	ctx, c.cancel = context.WithCancelCause(ctx)
	defer c.cancel(nil)
	silence := wire.NewSilence(c.cancel)
	defer silence.End()

	start := time.Now()
	silence.Limit(c.model.firstByte, wire.ErrFirstByte)
	resp, err := c.send(ctx, p)
	silence.End()
	if err != nil {
		return c.failure(ctx, err)
	}
	defer resp.Body.Close()
	left := c.model.firstByte - time.Since(start)
	c.status, c.contentType = resp.StatusCode, resp.Header.Get("Content-Type")
	if c.received != nil {
		if err := c.received(caller, c.model.providerResponse(resp)); err != nil {
			return err
		}
	}
	if c.model.firstByte > 0 {
		silence.Limit(max(left, time.Millisecond), wire.ErrFirstByte)
	}
	reader := &wire.WatchedReader{R: resp.Body, Silence: silence, Idle: c.model.idle}
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

// send sends p with nothing added but what the transport needs, which is below
// it: credentials too.
func (c *call) send(ctx context.Context, p loop.ProviderRequest) (*http.Response, error) {
	r := c.model.post(ctx, p.Body)
	r.Header.Set("User-Agent", "") // without it net/http would add one
	for _, h := range p.Headers {
		r.Header.Set(h.Name, h.Value)
	}
	return c.model.client.Do(r)
}

// providerResponse is what a caller may see of the beginning of an answer.
func (m *Model) providerResponse(resp *http.Response) loop.ProviderResponse {
	p := loop.ProviderResponse{Status: resp.StatusCode}
	for name, values := range resp.Header {
		if name != "Set-Cookie" {
			p.Headers = append(p.Headers, hooks.Header{Name: name, Value: m.redact(strings.Join(values, ", "))})
		}
	}
	slices.SortFunc(p.Headers, func(a, b hooks.Header) int { return strings.Compare(a.Name, b.Name) })
	return p
}

// failure says why nothing came: because the caller cancelled, because of
// silence, or because of the network.
func (c *call) failure(ctx context.Context, err error) error {
	m := c.model
	silent := func(code, message string, limit time.Duration) error {
		return &loop.ModelError{Status: c.status, Code: code, Message: message + limit.String(), Retryable: true, Err: context.Cause(ctx)}
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, wire.ErrFirstByte):
		return silent("first_byte_timeout", "the provider sent nothing for ", m.firstByte)
	case errors.Is(cause, wire.ErrIdle):
		return silent("idle_timeout", "the provider went silent for ", m.idle)
	case errors.Is(cause, wire.ErrNoData):
		return silent("data_timeout", "the provider sent nothing but keep-alives for ", m.data)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	err = wire.WithoutURL(err)
	var p *wire.PanicError
	if errors.As(err, &p) {
		m.log.Error("the HTTP client panicked", "panic", m.redact.Clean(p.Error()), "stack", m.redact(string(p.Stack)))
		return &loop.ModelError{Status: c.status, Code: "client_panic", Message: "the HTTP client broke off: internal error", Err: m.redact.Cause(err)}
	}
	return &loop.ModelError{
		Code: "network_error", Message: "call the provider: " + m.redact.Clean(err.Error()), Retryable: true, Err: m.redact.Cause(err),
	}
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
