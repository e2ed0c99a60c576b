package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// fake is the plugin's side, in this process. Calls that it has no function for are
// unimplemented.
type fake struct {
	pluginv1.UnimplementedPluginServiceServer
	bootstrap func(context.Context, *pluginv1.BootstrapRequest) (*pluginv1.BootstrapResponse, error)
	evaluate  func(context.Context, *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error)
	execute   func(*pluginv1.ExecuteToolRequest, grpc.ServerStreamingServer[pluginv1.ExecuteToolResponse]) error
	notify    func(context.Context, *pluginv1.NotifyRequest) (*pluginv1.NotifyResponse, error)
	asked     atomic.Int64
}

func (f *fake) Bootstrap(ctx context.Context, q *pluginv1.BootstrapRequest) (*pluginv1.BootstrapResponse, error) {
	return f.bootstrap(ctx, q)
}

func (f *fake) Evaluate(ctx context.Context, q *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
	f.asked.Add(1)
	return f.evaluate(ctx, q)
}

func (f *fake) ExecuteTool(q *pluginv1.ExecuteToolRequest, s grpc.ServerStreamingServer[pluginv1.ExecuteToolResponse]) error {
	return f.execute(q, s)
}

func (f *fake) Notify(ctx context.Context, q *pluginv1.NotifyRequest) (*pluginv1.NotifyResponse, error) {
	return f.notify(ctx, q)
}

var processNumbers atomic.Int64

// serve serves f, as one process with that manifest.
func (f *fake) serve(t testing.TB, m Manifest, opts ...grpc.ServerOption) *Process {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer(opts...)
	pluginv1.RegisterPluginServiceServer(server, f)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // it ends with the test
	}()
	conn, err := grpc.NewClient("passthrough:plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Bounded()), grpc.MaxCallRecvMsgSize(wire.MaxReply), grpc.MaxCallSendMsgSize(wire.MaxRequest)),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-served
	})
	return &Process{manifest: m, number: processNumbers.Add(1), conn: conn, run: &supervised{died: make(chan struct{})}}
}

// up is a plugin whose process p says a of itself.
func up(p *Process, a *pluginv1.BootstrapResponse) *Plugin {
	return &Plugin{bundle: Bundle{Manifest: p.manifest}, digest: "sha256:00", answer: a, process: p}
}

// down is a plugin that was never up.
func down(id string) *Plugin {
	return &Plugin{bundle: Bundle{Manifest: Manifest{ID: id, Version: "1"}}, status: Status{State: StateDown, Reason: "it does not start"}}
}

// silent is a log that nobody reads.
var silent = slog.New(slog.DiscardHandler)

// noSchema takes JSON objects whatever the schema.
func noSchema(schema json.RawMessage) (func(json.RawMessage) error, error) {
	if !json.Valid(schema) {
		return nil, errors.New("it is no JSON")
	}
	return func(arguments json.RawMessage) error {
		if !json.Valid(arguments) {
			return errors.New("no JSON")
		}
		return nil
	}, nil
}

func newService(t testing.TB, runs Runs) *Service {
	t.Helper()
	s := NewService(ServiceConfig{Runs: runs, Version: "test", Reserved: []string{"ping", "memory_*"}, CompileSchema: noSchema, Log: silent})
	if err := s.Start(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

var (
	about = hooks.RunRef{TenantID: "t", SessionID: "s", RunID: "r", Agent: "demo"}
	call  = hooks.BeforeToolCall{RunRef: about, Turn: 1, Revision: 1, Call: hooks.ToolCall{ID: "c", Name: "memory_write", Arguments: "{}"}}
)

// subscribed is a plugin that is asked about calls of tools.
func subscribed(s ...*pluginv1.Subscription) *pluginv1.BootstrapResponse {
	return &pluginv1.BootstrapResponse{Id: "policy", Version: "1", Subscriptions: s}
}

func toolCalls(globs ...string) *pluginv1.Subscription {
	return &pluginv1.Subscription{Gate: pluginv1.Gate_GATE_BEFORE_TOOL_CALL, Tools: globs}
}

// asking asks the hooks of one plugin about a call of a tool.
func asking(t testing.TB, p *Plugin, in hooks.BeforeToolCall) (hooks.Verdict[hooks.BeforeToolCall], []hooks.Decision) {
	t.Helper()
	h := newService(t, nil).caller([]*Plugin{p}).Hooks()
	v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, h.BeforeToolCall, hooks.Position{Subject: in.Call.ID}, in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v, ds
}

func said(a hooks.BeforeToolCallResult) func(context.Context, *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
	return func(context.Context, *pluginv1.EvaluateRequest) (*pluginv1.EvaluateResponse, error) {
		return wire.BeforeToolCall.Answer(a), nil
	}
}

var policyManifest = Manifest{ID: "policy", Version: "1", Config: json.RawMessage(`{"limit":3}`)}
