package api

import (
	"context"
	"time"
)

// patience is the context of a stream's waits. Nearly every wait ends with an
// event, long before the patience does, so one context serves many of them. The
// zero value is ready, and holds nothing before begin or after end. It is not
// safe for concurrent use.
type patience struct {
	ctx     context.Context //nolint:containedctx // it lives from one wait to the next
	cancel  context.CancelFunc
	timer   *time.Timer
	forgets func() bool
}

// begin returns a context that ends with ctx, with stopping and after limit,
// and that is good until the next call of begin or end. All calls are given the
// same ctx and the same stopping.
func (p *patience) begin(ctx, stopping context.Context, limit time.Duration) context.Context {
	if p.timer != nil && p.timer.Reset(limit) {
		return p.ctx
	}
	// The timer has fired, or there is none.
	p.end()
	p.ctx, p.cancel = context.WithCancel(ctx)
	p.timer = time.AfterFunc(limit, p.cancel)
	p.forgets = context.AfterFunc(stopping, p.cancel)
	return p.ctx
}

// end may be called at any time, and again.
func (p *patience) end() {
	if p.timer == nil {
		return
	}
	p.timer.Stop()
	p.forgets()
	p.cancel()
	*p = patience{}
}
