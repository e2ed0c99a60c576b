package looptest

import (
	"context"
	"encoding/json"
	"iter"
	"sync"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
)

// Provider is a loop.ProviderModel without a network: it keeps what it was told
// to send and answers as Plays does. It is safe for concurrent use.
type Provider struct {
	Plays Model
	// Begins is the status and the header of an answer; nil is a 200. The body
	// of any other status is not played: it is an error.
	Begins func(loop.ModelRequest) loop.ProviderResponse
	// Writes, if set, writes requests down in the place of [Written].
	Writes func(loop.ModelRequest) (loop.ProviderRequest, error)
	// Watch, if set, is told of each thing that is done here: streamed, sent,
	// received.
	Watch func(what string, req loop.ModelRequest)

	mu   sync.Mutex
	sent []Sent
}

// Sent is a call that a Provider was told to make.
type Sent struct {
	loop.ModelRequest
	// ProviderRequest is zero if the call was made by Stream.
	loop.ProviderRequest
}

var _ loop.ProviderModel = (*Provider)(nil)

// Sent returns the calls so far.
func (p *Provider) Sent() []Sent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Sent{}, p.sent...)
}

// Written is how a Provider writes a call down: the texts of its messages.
func Written(req loop.ModelRequest) loop.ProviderRequest {
	texts := []string{}
	for _, m := range req.Messages {
		texts = append(texts, m.Text())
	}
	body, _ := json.Marshal(map[string]any{"model": req.Model, "texts": texts}) // texts always have a JSON form
	return loop.ProviderRequest{
		Headers: []hooks.Header{{Name: "Accept", Value: "text/event-stream"}, {Name: "Content-Type", Value: "application/json"}},
		Body:    string(body),
	}
}

// Request implements loop.ProviderModel.
func (p *Provider) Request(req loop.ModelRequest) (loop.ProviderRequest, error) {
	if p.Writes != nil {
		return p.Writes(req)
	}
	return Written(req), nil
}

// Stream implements loop.Model.
func (p *Provider) Stream(ctx context.Context, req loop.ModelRequest) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) {
		p.keep("streamed", Sent{ModelRequest: req})
		p.Plays(ctx, req, yield)
	}
}

// Send implements loop.ProviderModel.
func (p *Provider) Send(
	ctx context.Context, req loop.ModelRequest, written loop.ProviderRequest, received func(context.Context, loop.ProviderResponse) error,
) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) {
		p.keep("sent", Sent{req, written})
		begin := loop.ProviderResponse{Status: 200}
		if p.Begins != nil {
			begin = p.Begins(req)
		}
		if received != nil {
			if err := received(ctx, begin); err != nil {
				yield(stream.Chunk{}, err)
				return
			}
			p.tell("received", req)
		}
		if begin.Status != 200 {
			yield(stream.Chunk{}, &loop.ModelError{Status: begin.Status, Message: "the provider refused", Retryable: begin.Status >= 500})
			return
		}
		p.Plays(ctx, req, yield)
	}
}

func (p *Provider) keep(what string, s Sent) {
	p.mu.Lock()
	p.sent = append(p.sent, s)
	p.mu.Unlock()
	p.tell(what, s.ModelRequest)
}

func (p *Provider) tell(what string, req loop.ModelRequest) {
	if p.Watch != nil {
		p.Watch(what, req)
	}
}
