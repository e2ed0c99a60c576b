package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// ErrNotStarted is what [Serve] returns in a process that agentd has not started.
var ErrNotStarted = errors.New("this program is a plugin: put it into agentd's plugin directory, and agentd starts it")

const (
	// drainTime is how long a plugin that is told to end by a signal waits for what is
	// under way.
	drainTime = 5 * time.Second
	// lingerTime is how long what is behind Serve may take in a process that its host
	// has left.
	lingerTime = 5 * time.Second
	// settleTime is how long answers may then take to get out.
	settleTime = 200 * time.Millisecond
	// hostPing is how often the host may ask whether the connection is alive.
	hostPing = 5 * time.Second
)

// Serve is a plugin. It returns when the host has ended it: by SIGTERM, after calls
// that were under way, or by closing its connection; nil then. It also returns when
// the host is gone, and a process that then does not end is ended. What is wrong with
// the config is an error before anything is said to the host.
//
// What the process prints, on standard output too, goes to the host's log, with what
// was printed before Serve. os.Stdout and os.Stderr are set until Configure is called: a
// goroutine that was started before Serve leaves them alone until then. Serve is called
// once in a process, which must not use its standard input.
func Serve(c Config) error {
	s, err := newService(c)
	if err != nil {
		return fmt.Errorf("plugin %s: %w", c.ID, err)
	}
	if os.Getenv(wire.CookieKey) != wire.CookieValue {
		return ErrNotStarted
	}
	defer s.close()
	// Who prints when the host is gone gets an error, and is not ended in the middle of
	// its end. Nobody reads the channel, here or behind Serve.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	stdout, stderr := os.Stdout, os.Stderr
	s.greeted = func() { os.Stdout, os.Stderr = stdout, stderr }
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var (
		conns  = newConns(time.Now())
		served = &plugged{service: s}
		joined sync.WaitGroup
	)
	started := make(chan *grpc.Server, 1)
	joined.Go(func() {
		select {
		case server := <-started:
			live(ctx, s, server, conns)
		case <-ctx.Done():
		}
	})
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: wire.ProtocolVersion, MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue,
		},
		Plugins: goplugin.PluginSet{wire.PluginName: served},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			server := newServer(conns, opts...)
			started <- server
			return server
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr, JSONFormat: true}),
	})
	cancel()
	joined.Wait()
	if !served.registered {
		return fmt.Errorf("plugin %s: it could not listen", c.ID)
	}
	return nil
}

func newServer(conns *conns, opts ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(
		opts, grpc.StatsHandler(conns), grpc.MaxRecvMsgSize(wire.MaxRequest), grpc.MaxSendMsgSize(wire.MaxReply),
		grpc.StaticStreamWindowSize(wire.StreamWindow), grpc.StaticConnWindowSize(wire.ConnWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: hostPing, PermitWithoutStream: true}),
	)...)
}

// live calls Ready, and ends the server when the process is told to end or is left.
func live(ctx context.Context, s *service, server *grpc.Server, conns *conns) {
	var ready sync.WaitGroup
	defer ready.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.config.Ready != nil {
		ready.Go(func() {
			select {
			case <-s.known:
				s.ready(ctx)
			case <-ctx.Done():
			}
		})
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	defer signal.Stop(told)
	select {
	case <-ctx.Done():
	case <-told:
		within, stop := context.WithTimeout(context.Background(), drainTime)
		defer stop()
		s.calls.drain(within)
		settle(server)
	case <-left(ctx, conns, os.Getppid, abandonedTime):
		time.AfterFunc(lingerTime, func() { os.Exit(1) }) //nolint:revive // nobody else is left to end it
	}
	server.Stop()
}

// settle gives answers that are on their way time to get out. It cannot wait for all
// calls to end: the host's for what the plugin prints never does.
func settle(server *grpc.Server) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.GracefulStop()
	}()
	select {
	case <-done:
	case <-time.After(settleTime):
		server.Stop()
		<-done
	}
}

// ready calls the config's Ready, whose panic is no reason to end.
func (s *service) ready(ctx context.Context) {
	s.mu.Lock()
	host := s.host
	s.mu.Unlock()
	_, err := recovered(context.WithValue(ctx, hostKey{}, host), "Ready", func(ctx context.Context) (struct{}, error) {
		s.config.Ready(ctx, host)
		return struct{}{}, nil
	}, func() {})
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "Ready:", err)
	}
}

// plugged is what go-plugin is handed.
type plugged struct {
	goplugin.NetRPCUnsupportedPlugin
	service    *service
	registered bool
}

var _ goplugin.GRPCPlugin = (*plugged)(nil)

// GRPCServer implements goplugin.GRPCPlugin.
func (p *plugged) GRPCServer(_ *goplugin.GRPCBroker, server *grpc.Server) error {
	p.service.register(server)
	p.registered = true
	return nil
}

// GRPCClient implements goplugin.GRPCPlugin. A plugin is never one.
func (p *plugged) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a plugin has no plugins")
}
