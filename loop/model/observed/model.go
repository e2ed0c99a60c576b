package observed

import (
	"context"
	"iter"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
)

// Wrap returns m with the plugins of r asked about its requests. It is m itself if
// there are no plugins, and a [loop.ProviderModel] exactly if m is one. It seals r.
//
// Of a ProviderModel Stream becomes Request and Send, which its contract says are
// the same, so that plugins are told the length of the body and the status. A
// request that cannot be written down is none, and nobody is told of it.
func Wrap(m loop.Model, r *observe.Registry) loop.Model {
	if r.Seal() == 0 || m == nil {
		return m
	}
	if p, ok := m.(loop.ProviderModel); ok {
		return &provider{inner: p, registry: r}
	}
	return &model{inner: m, registry: r}
}

// model is a model that is no more than that.
type model struct {
	inner    loop.Model
	registry *observe.Registry
}

// Stream implements [loop.Model].
func (m *model) Stream(ctx context.Context, req loop.ModelRequest) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) {
		w := watch{session: m.registry.Begin(observe.MethodNone, 0), ctx: ctx, yield: yield}
		w.over(func() iter.Seq2[stream.Chunk, error] { return m.inner.Stream(ctx, req) })
	}
}

// provider is one that speaks HTTP: a call is written, and then sent.
type provider struct {
	inner    loop.ProviderModel
	registry *observe.Registry
}

var _ loop.ProviderModel = (*provider)(nil)

// Request implements [loop.ProviderModel].
func (m *provider) Request(req loop.ModelRequest) (loop.ProviderRequest, error) {
	return m.inner.Request(req)
}

// Stream implements [loop.Model].
func (m *provider) Stream(ctx context.Context, req loop.ModelRequest) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) {
		p, err := m.inner.Request(req)
		if err != nil {
			yield(stream.Chunk{}, err)
			return
		}
		m.Send(ctx, req, p, nil)(yield)
	}
}

// Send implements [loop.ProviderModel].
func (m *provider) Send(
	ctx context.Context, req loop.ModelRequest, p loop.ProviderRequest, received func(context.Context, loop.ProviderResponse) error,
) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) {
		w := watch{session: m.registry.Begin(observe.MethodWrite, len(p.Body)), ctx: ctx, yield: yield}
		begun := func(ctx context.Context, resp loop.ProviderResponse) error {
			w.session.Status(resp.Status)
			if received == nil {
				return nil
			}
			err := received(ctx, resp)
			if err != nil {
				w.rejected.Store(true)
			}
			return err
		}
		w.over(func() iter.Seq2[stream.Chunk, error] { return m.inner.Send(ctx, req, p, begun) })
	}
}
