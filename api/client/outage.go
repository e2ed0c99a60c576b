package client

import (
	"context"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
	// callTimeout is for one attempt of a call that is made again: a server that
	// took the connection and then was stopped, or whose machine is gone, never
	// refuses it.
	callTimeout = 20 * time.Second
)

// outage is a time during which a server does not answer. Without a since it
// does. It is used by one goroutine.
type outage struct {
	*Client
	// forever is for streams without a patience.
	forever bool
	since   time.Time
	pause   time.Duration
	said    bool
}

// wait returns when it is time to try again after err, or the error that is to
// be reported: one that would come again, or the end of the client's patience.
func (o *outage) wait(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !passes(err):
		o.over()
		return clearly(err)
	case o.patience == 0 && !o.forever:
		return clearly(err)
	case o.since.IsZero():
		o.since, o.pause = time.Now(), firstPause
	case !o.forever && time.Since(o.since) >= o.patience:
		return &AwayError{URL: o.url, For: o.patience, Err: clearly(err)}
	case !o.said:
		// Not at the first failure: a server that ends a stream to stop is
		// often replaced by another one at once.
		o.said = true
		o.away()
	}
	// Clients that were cut off together must not come back together.
	timer := time.NewTimer(o.pause/2 + rand.N(o.pause/2))
	defer timer.Stop()
	o.pause = min(2*o.pause, lastPause)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// over says that the server answers.
func (o *outage) over() {
	if o.said {
		o.back()
	}
	*o = outage{Client: o.Client, forever: o.forever}
}

// procedure is a call of a generated client.
type procedure[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// call makes a call that may be repeated, until the server has answered it or
// the patience has ended.
func call[Req, Res any](ctx context.Context, c *Client, do procedure[Req, Res], request *Req) (*Res, error) {
	return persist(ctx, &outage{Client: c}, do, request)
}

// persist is call within an outage of the caller's.
func persist[Req, Res any](ctx context.Context, o *outage, do procedure[Req, Res], request *Req) (*Res, error) {
	for {
		response, err := attempt(ctx, o, do, request)
		if err == nil {
			o.over()
			return response.Msg, nil
		}
		if err := o.wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

func attempt[Req, Res any](ctx context.Context, o *outage, do procedure[Req, Res], request *Req) (*connect.Response[Res], error) {
	if o.forever || o.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	return do(ctx, connect.NewRequest(request))
}
