// Package plugintest starts plugins for tests, with go-plugin's own client, as a
// host does: mutual TLS, no input, the host's end of standard output.
package plugintest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// startTime is how long a plugin may take to start: machines are slow.
const startTime = time.Minute

// Plugin is a plugin that runs. Its calls have no limits but those of their contexts.
type Plugin struct {
	pluginv1.PluginServiceClient
	// Conn is the connection of the calls.
	Conn *grpc.ClientConn
	// PID is the process.
	PID int
	// Printed is what it has printed so far.
	Printed *Log

	exited <-chan struct{}
}

// Start starts a plugin and connects to it. It is ended when the test ends. Nothing of
// the test's environment is handed to it but what the command has.
func Start(t testing.TB, path string, env ...string) *Plugin {
	t.Helper()
	p, err := start(t, path, env)
	if err != nil {
		t.Fatalf("start %s: %v\nit printed %.2000q", path, err, p.Printed)
	}
	return p
}

// StartError starts a plugin that does not come so far, and returns why and what it
// has printed.
func StartError(t testing.TB, path string, env ...string) (string, error) {
	t.Helper()
	p, err := start(t, path, env)
	if err == nil {
		t.Fatalf("%s has started", path)
	}
	return p.Printed.String(), err
}

func start(t testing.TB, path string, env []string) (*Plugin, error) {
	t.Helper()
	p := &Plugin{Printed: &Log{}}
	sockets, err := os.MkdirTemp("", "plugintest-") // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	var process *process
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: wire.ProtocolVersion, MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue,
		},
		Plugins:          goplugin.PluginSet{wire.PluginName: connection{}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     startTime,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: sockets},
		Logger:           hclog.NewNullLogger(),
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(wire.Bounded()), grpc.MaxCallRecvMsgSize(wire.MaxReply), grpc.MaxCallSendMsgSize(wire.MaxRequest),
		)},
		Stderr: p.Printed, SyncStdout: p.Printed, SyncStderr: p.Printed,
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, dir string) (runner.Runner, error) {
			cmd := exec.Command(path) //nolint:noctx // it ends with the client
			cmd.Env = append(append(append(cmd.Env, env...), spec.Env...), goplugin.EnvUnixSocketDir+"="+dir)
			var err error
			process, err = newProcess(cmd, p.Printed)
			return process, err
		},
	})
	t.Cleanup(client.Kill)
	protocol, err := client.Client()
	if err != nil {
		client.Kill() // only then all that it has printed is there
		return p, err
	}
	conn, err := protocol.Dispense(wire.PluginName)
	if err != nil {
		return p, err
	}
	p.Conn, _ = conn.(*grpc.ClientConn)
	p.PluginServiceClient = pluginv1.NewPluginServiceClient(p.Conn)
	p.PID, p.exited = process.cmd.Process.Pid, process.exited
	return p, nil
}

// Bootstrapped starts a plugin and tells it of a host that there is not.
func Bootstrapped(t testing.TB, path string, env ...string) (*Plugin, *pluginv1.BootstrapResponse) {
	t.Helper()
	p := Start(t, path, env...)
	about, err := p.Bootstrap(t.Context(), &pluginv1.BootstrapRequest{HostVersion: "test", Name: "test", ConfigJson: "{}"})
	if err != nil {
		t.Fatal(err)
	}
	return p, about
}

// Signal sends a signal.
func (p *Plugin) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(p.PID, s); err != nil {
		t.Fatal(err)
	}
}

// AwaitExit waits until the process is gone.
func (p *Plugin) AwaitExit(t testing.TB) {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(startTime):
		t.Fatalf("the plugin is still there; it printed %.2000q", p.Printed)
	}
}

// connection hands the connection out.
type connection struct {
	goplugin.NetRPCUnsupportedPlugin
}

// GRPCServer implements goplugin.GRPCPlugin.
func (connection) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error { return nil }

// GRPCClient implements goplugin.GRPCPlugin.
func (connection) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// process runs the command in a group of its own.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr io.ReadCloser
	exited         chan struct{}
}

var _ runner.Runner = (*process)(nil)

func newProcess(cmd *exec.Cmd, rest io.Writer) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	return &process{
		cmd: cmd, stdout: io.NopCloser(wire.Handshake(stdout, rest)), stderr: stderr, exited: make(chan struct{}),
	}, nil
}

// Start implements runner.Runner.
func (p *process) Start(context.Context) error { return p.cmd.Start() }

// Diagnose implements runner.Runner.
func (p *process) Diagnose(context.Context) string { return "" }

// Stdout implements runner.Runner.
func (p *process) Stdout() io.ReadCloser { return p.stdout }

// Stderr implements runner.Runner.
func (p *process) Stderr() io.ReadCloser { return p.stderr }

// Name implements runner.Runner.
func (p *process) Name() string { return p.cmd.Path }

// ID implements runner.Runner.
func (p *process) ID() string {
	if p.cmd.Process == nil {
		return ""
	}
	return fmt.Sprint(p.cmd.Process.Pid)
}

// Wait implements runner.Runner.
func (p *process) Wait(context.Context) error {
	defer close(p.exited)
	return p.cmd.Wait()
}

// Kill implements runner.Runner.
func (p *process) Kill(context.Context) error {
	if p.cmd.Process != nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have gone
	}
	return nil
}

// PluginToHost implements runner.Runner.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin implements runner.Runner.
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// Log keeps the beginning of what is written to it, and how much it was. It is safe
// for concurrent use.
type Log struct {
	mu    sync.Mutex
	text  strings.Builder
	bytes int
}

// maxLog is how much of a log is kept, in bytes.
const maxLog = 64 << 10

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += len(b)
	l.text.Write(b[:min(len(b), maxLog-min(maxLog, l.text.Len()))])
	return len(b), nil
}

// String is the beginning.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Bytes is how much was written.
func (l *Log) Bytes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}
