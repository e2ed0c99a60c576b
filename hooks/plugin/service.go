package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// service is the plugin's side of agentd.plugin.v1.
type service struct {
	pluginv1.UnimplementedPluginServiceServer
	config Config
	about  *pluginv1.BootstrapResponse
	gates  []gate
	told   map[string]listener
	calls  calls

	// greeted is called at the first Bootstrap, before Configure.
	// go-plugin sends what is printed in calls, a KiB in each, which takes several times
	// what the host's pipe does, and what is on its way is lost when the process ends:
	// so what it has put in place of both files is undone.
	greeted func()
	// known is closed once the host knows the plugin.
	known chan struct{}

	mu    sync.Mutex
	host  *Host
	tools map[string]Tool
}

var _ pluginv1.PluginServiceServer = (*service)(nil)

func newService(c Config) (*service, error) {
	about, err := c.describe()
	if err != nil {
		return nil, err
	}
	s := &service{config: c, about: about, told: c.told(), greeted: func() {}, known: make(chan struct{}), tools: map[string]Tool{}}
	for _, t := range c.Tools {
		s.tools[t.Name] = t
	}
	h := c.withEvents()
	s.gates = []gate{
		at(wire.BeforeInput, h.BeforeInput), at(wire.BeforeRunStart, h.BeforeRunStart), at(wire.TransformContext, h.TransformContext),
		at(wire.BeforeProviderHeaders, h.BeforeProviderHeaders), at(wire.BeforeProviderRequest, h.BeforeProviderRequest),
		at(wire.AfterProviderResponse, h.AfterProviderResponse), at(wire.BeforeToolCall, h.BeforeToolCall),
		at(wire.BeforeExecute, h.BeforeExecute), at(wire.AfterToolCall, h.AfterToolCall),
	}
	return s, nil
}

// gate is a gate with its hook: of a question about another gate about is false, and
// ask is nil where there is no hook.
type gate func(*pluginv1.EvaluateRequest) (ask asker, about bool)

type asker func(context.Context) (*pluginv1.EvaluateResponse, error)

func at[In hooks.Input[In, Out], Out hooks.Result](c wire.Codec[In, Out], f hooks.Func[In, Out]) gate {
	return func(q *pluginv1.EvaluateRequest) (asker, bool) {
		in, ok := c.Asked(q)
		if !ok || f == nil {
			return nil, ok
		}
		return func(ctx context.Context) (*pluginv1.EvaluateResponse, error) {
			out, err := f(ctx, in)
			if err != nil {
				return nil, err
			}
			return c.Answer(out), nil
		}, true
	}
}

// Bootstrap implements pluginv1.PluginServiceServer.
func (s *service) Bootstrap(ctx context.Context, q *pluginv1.BootstrapRequest) (*pluginv1.BootstrapResponse, error) {
	host, err := dialHost(q.GetHostAddress(), q.GetHostToken(), s)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, wire.Text(err.Error()))
	}
	s.mu.Lock()
	again := s.host != nil
	if !again {
		s.host = host
	}
	s.mu.Unlock()
	if again {
		host.close()
		return nil, status.Error(codes.FailedPrecondition, "the plugin was told already")
	}
	s.greeted()
	if s.config.Configure != nil {
		_, err := guarded(ctx, s, "Configure", func(context.Context) (struct{}, error) {
			config := q.GetConfigJson()
			if config == "" {
				config = "{}"
			}
			return struct{}{}, s.config.Configure(json.RawMessage(config))
		})
		if err != nil {
			return nil, refused(codes.InvalidArgument, err)
		}
	}
	close(s.known)
	return s.about, nil
}

// inside returns the context in which functions of the plugin are called.
func (s *service) inside(ctx context.Context, deadline int64) (context.Context, context.CancelFunc, error) {
	select {
	case <-s.known:
	default:
		return nil, nil, status.Error(codes.FailedPrecondition, "the plugin does not know its host yet")
	}
	s.mu.Lock()
	host := s.host
	s.mu.Unlock()
	ctx = context.WithValue(ctx, hostKey{}, host)
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		if tokens := md.Get(wire.TokenKey); len(tokens) == 1 {
			ctx = context.WithValue(ctx, tokenKey{}, tokens[0])
		}
	}
	if deadline > 0 {
		ctx, cancel := context.WithTimeout(ctx, milliseconds(deadline))
		return ctx, cancel, nil
	}
	return ctx, func() {}, nil
}

// milliseconds is a duration that does not overflow.
func milliseconds(n int64) time.Duration {
	const most = int64(24 * time.Hour / time.Millisecond)
	return time.Duration(min(n, most)) * time.Millisecond
}

// Evaluate implements pluginv1.PluginServiceServer.
func (s *service) Evaluate(ctx context.Context, q *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
	ctx, cancel, err := s.inside(ctx, q.GetDeadlineMs())
	if err != nil {
		return nil, err
	}
	defer cancel()
	for i, g := range s.gates {
		ask, ok := g(q)
		if !ok {
			continue
		}
		name := string(wire.GateOf(pluginv1.Gate(i + 1)))
		if ask == nil {
			return nil, status.Error(codes.Unimplemented, "the plugin is not asked at "+name)
		}
		a, err := guarded(hooks.WithDecisionID(ctx, q.GetDecisionId()), s, name, ask)
		switch {
		case errors.Is(err, errDraining):
			return nil, err
		case err != nil:
			return wire.Failed(err), nil
		}
		return a, nil
	}
	return nil, status.Error(codes.Unimplemented, "the question is about a gate that this plugin does not know")
}

// Notify implements pluginv1.PluginServiceServer.
func (s *service) Notify(ctx context.Context, q *pluginv1.NotifyRequest) (*pluginv1.NotifyResponse, error) {
	ctx, cancel, err := s.inside(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer cancel()
	_, err = guarded(ctx, s, "Notify", func(ctx context.Context) (struct{}, error) {
		for _, n := range q.GetNotifications() {
			if err := s.notify(ctx, n); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		return nil, refused(codes.Internal, err)
	}
	return &pluginv1.NotifyResponse{}, nil
}

// Health implements pluginv1.PluginServiceServer.
func (s *service) Health(ctx context.Context, _ *pluginv1.HealthRequest) (*pluginv1.HealthResponse, error) {
	inFlight, draining := s.calls.state()
	out := &pluginv1.HealthResponse{Ready: true, InFlight: int32(inFlight)}
	switch {
	case draining:
		out.Ready, out.Message = false, "it is about to be ended"
	case s.config.Health != nil:
		_, err := guarded(ctx, s, "Health", func(ctx context.Context) (struct{}, error) { return struct{}{}, s.config.Health(ctx) })
		if err != nil {
			out.Ready, out.Message = false, wire.Shorten(err.Error(), maxMessage)
		}
	}
	return out, nil
}

// Drain implements pluginv1.PluginServiceServer.
func (s *service) Drain(ctx context.Context, q *pluginv1.DrainRequest) (*pluginv1.DrainResponse, error) {
	if q.GetDeadlineMs() > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, milliseconds(q.GetDeadlineMs()))
		defer cancel()
	}
	return &pluginv1.DrainResponse{Abandoned: int32(s.calls.drain(ctx))}, nil
}

// maxMessage bounds what is told of an error, in bytes.
const maxMessage = 4 << 10

// refused is an error of a function of the plugin, for the host.
func refused(code codes.Code, err error) error {
	if errors.Is(err, errDraining) {
		return err
	}
	var f *hooks.Failure
	if errors.As(err, &f) && f.Outcome == hooks.OutcomeTimeout {
		code = codes.DeadlineExceeded
	}
	return status.Error(code, wire.Shorten(err.Error(), maxMessage))
}

// close closes the connection to the host.
func (s *service) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.host.close()
}

// register adds the service to a server.
func (s *service) register(server grpc.ServiceRegistrar) {
	pluginv1.RegisterPluginServiceServer(server, s)
}
