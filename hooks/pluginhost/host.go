package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// ServiceConfig is what a service needs.
type ServiceConfig struct {
	// Runs answers what plugins ask about runs.
	Runs Runs
	// Version is agentd's, which plugins are told.
	Version string
	// Reserved are globs of names that no tool of a plugin may have, neither within the
	// plugin nor as models know it.
	Reserved []string
	// CompileSchema makes of a JSON Schema what says whether arguments fit it.
	CompileSchema func(schema json.RawMessage) (validate func(arguments json.RawMessage) error, err error)
	Log           *slog.Logger
}

// Runs are the runs that plugins are asked about. Of errors plugins are told no more
// than that one is [ErrNoSuchRun]. It is safe for concurrent use, and asks no hook: a
// plugin that is asked by what it asked for would be asked without end.
type Runs interface {
	// Tools are those of the run.
	Tools(ctx context.Context, run hooks.RunRef) (RunTools, error)
	// SystemPrompt is the run's, "" for none.
	SystemPrompt(ctx context.Context, run hooks.RunRef) (string, error)
}

// RunTools are the tools that a run may call from its next turn on, as models know them
// and in their order.
type RunTools struct {
	// Active are there now, Away are not, because what has them is down.
	Active, Away []string
	// Kept are those of both that nobody can take away.
	Kept []string
}

// ErrNoSuchRun is that there is no such run, or that it has ended.
var ErrNoSuchRun = errors.New("there is no such run")

// Service is agentd's side of what plugins and their host say to each other: it
// serves HostService for them, greets them and calls them. It is safe for concurrent
// use.
type Service struct {
	pluginv1.UnimplementedHostServiceServer
	config ServiceConfig
	tokens tokens
	tools  registry

	mu      sync.Mutex
	address string
	server  *grpc.Server
	serving sync.WaitGroup
	// keepers are those of the processes that were greeted, by the number of the process.
	keepers map[int64]int
}

var _ pluginv1.HostServiceServer = (*Service)(nil)

// NewService makes one that does not listen yet. Its Greet and Gone are for a
// [Config].
func NewService(c ServiceConfig) *Service {
	s := &Service{config: c, keepers: map[int64]int{}}
	s.tools.reserved, s.tools.compile = c.Reserved, c.CompileSchema
	return s
}

// maxStreams is how many calls a connection of a plugin may have under way at once.
const maxStreams = 64

// Start listens at a socket in dir, which only this user may enter, and serves in the
// background until Stop. It is called once, before any plugin is greeted.
func (s *Service) Start(dir string) error {
	path := filepath.Join(dir, "host.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen for plugins: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close() // it is of no use
		return fmt.Errorf("listen for plugins: %w", err)
	}
	server := grpc.NewServer(
		grpc.Creds(newPeers()), grpc.ForceServerCodecV2(wire.Bounded()), grpc.MaxRecvMsgSize(wire.MaxHostRequest), grpc.MaxSendMsgSize(wire.MaxHostReply),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeader), grpc.UnaryInterceptor(s.admit),
	)
	pluginv1.RegisterHostServiceServer(server, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.address, s.server = "unix:"+path, server
	s.serving.Go(func() {
		if err := server.Serve(l); err != nil {
			s.config.Log.Error("plugins cannot reach their host any more", "error", err)
		}
	})
	return nil
}

// Stop ends it with whatever is under way. It may be called before Start, and twice.
func (s *Service) Stop() {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	if server != nil {
		server.Stop()
	}
	s.serving.Wait()
}

// Caller returns what calls the plugins of a generation.
func (s *Service) Caller(g *Generation) *Caller { return s.caller(g.Plugins()) }

func (s *Service) caller(plugins []*Plugin) *Caller {
	c := &Caller{service: s}
	for _, p := range plugins {
		c.plugins = append(c.plugins, &called{Plugin: p, service: s, slots: newSlots(concurrency, queue, queueTime-lateTime)})
	}
	return c
}

// Greet is that of [Config]: it tells a process where its host is, and looks at what it
// says of itself.
func (s *Service) Greet(ctx context.Context, p *Process) (*pluginv1.BootstrapResponse, error) {
	s.mu.Lock()
	address := s.address
	s.keepers[p.Number()] = p.run.keeperPID()
	s.mu.Unlock()
	m := p.Manifest()
	token := s.tokens.greet(p.Number())
	s.tools.expect(p.Number(), m.ID)
	a, err := pluginv1.NewPluginServiceClient(p.Conn()).Bootstrap(ctx, &pluginv1.BootstrapRequest{
		HostAddress: address, HostToken: token, HostVersion: wire.Text(s.config.Version), Name: m.ID, ConfigJson: wire.Text(string(m.Config)),
	}, grpc.MaxCallRecvMsgSize(wire.MaxBootstrap))
	if err == nil {
		err = check(m, a)
	}
	if err == nil {
		err = s.tools.add(p.Number(), a.GetTools())
	}
	if err != nil {
		s.Gone(p)
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	return a, nil
}

// Gone is that of [Config]: it withdraws what the process was given.
func (s *Service) Gone(p *Process) {
	s.mu.Lock()
	delete(s.keepers, p.Number())
	s.mu.Unlock()
	s.tokens.gone(p.Number())
	s.tools.gone(p.Number())
}

type passKey struct{}

// admit lets calls through whose token is good, also those that are reserved.
func (s *Service) admit(ctx context.Context, q any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	shown := md.Get(wire.TokenKey)
	if len(shown) != 1 {
		return nil, status.Error(codes.Unauthenticated, "one agentd-token has to be in the metadata")
	}
	p, good, left := s.tokens.use(shown[0])
	switch {
	case !good || !s.from(ctx, p.process):
		return nil, status.Error(codes.Unauthenticated, "the token is none, or its call has ended")
	case !left:
		return nil, status.Errorf(codes.ResourceExhausted, "the host answers %d calls while it waits for one", maxCallbacks)
	}
	return handle(context.WithValue(ctx, passKey{}, p), q)
}
