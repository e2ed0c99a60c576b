package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// Process is one process of a plugin, which has said where it listens. It is safe for
// concurrent use.
type Process struct {
	manifest Manifest
	number   int64
	conn     *grpc.ClientConn
	run      *supervised
	stdio    sync.WaitGroup
}

// Manifest is that of the private copy that runs.
func (p *Process) Manifest() Manifest { return p.manifest }

// Number is another one for each process of a host.
func (p *Process) Number() int64 { return p.number }

// PID is the number that the system has given it.
func (p *Process) PID() int { return p.run.pid }

// Conn is the connection. Its messages have the limits of the protocol, not those of
// the call: what is smaller is for the caller to say.
func (p *Process) Conn() *grpc.ClientConn { return p.conn }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.run.died }

// Cause says how it ended, nil as long as it has not.
func (p *Process) Cause() error {
	select {
	case <-p.run.died:
		return p.run.cause
	default:
		return nil
	}
}

// deathTime is how long after its connection a process is known to have ended.
const deathTime = time.Second

// Failure makes of the error of a call to the process what the ledger says of it. It
// waits for a moment where the process may have died. A nil error is none.
func (p *Process) Failure(err error) *hooks.Failure {
	if err == nil {
		return nil
	}
	f := &hooks.Failure{Outcome: hooks.OutcomeError, Err: err}
	code := status.Code(err)
	if code == codes.Canceled && p.Cause() != nil {
		code = codes.Unavailable // of a process that is gone the connection is closed
	}
	switch code {
	case codes.DeadlineExceeded:
		f.Outcome, f.Code = hooks.OutcomeTimeout, CodeTimeout
	case codes.ResourceExhausted:
		f.Outcome, f.Code = hooks.OutcomeOversize, CodeOversize
	case codes.Unavailable:
		f.Outcome, f.Code = hooks.OutcomeUnavailable, CodeUnavailable
		wait := time.NewTimer(deathTime)
		defer wait.Stop()
		select {
		case <-p.run.died:
			f.Outcome, f.Code, f.Err = hooks.OutcomeCrash, CodeCrash, p.run.cause
		case <-wait.C:
		}
	default:
	}
	return f
}

// end ends the process and all that it has started, and returns when it is gone.
func (p *Process) end() {
	p.run.end()
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.stdio.Wait()
	p.run.printed.flush()
	if p.run.sockets != "" {
		_ = os.RemoveAll(p.run.sockets) // what cannot be deleted goes with the host's directory
	}
}

// launch is what it takes to start a process.
type launch struct {
	manifest Manifest
	// dir is the private copy, digest what it has to be.
	dir, digest string
	// sockets is where a directory for its socket is made.
	sockets string
	number  int64
	keeper  []string
	label   string
	lock    *os.File
	env     []string
	limits  Limits
	log     *slog.Logger
	now     func() time.Time
}

var errChanged = errors.New("its private copy has changed since it was made")

// process starts one and connects to it. Greet is called within the start limit. An
// error says what was printed, and nothing is left then.
func (l launch) process(ctx context.Context, greet func(context.Context, *Process) error) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, l.limits.Start)
	defer cancel()
	sum, err := digest(l.dir, func(string, os.FileInfo) error { return nil })
	switch {
	case err != nil:
		return nil, err
	case sum != l.digest:
		return nil, errChanged
	}
	run, err := newSupervised(l.keeper, l.label, l.lock, keepOrder{
		Path: filepath.Join(l.dir, filepath.FromSlash(l.manifest.Exec)), Args: l.manifest.Args, Dir: l.dir, Memory: l.manifest.Memory,
	}, newOutput(l.log, l.now), l.limits.Kill)
	if err != nil {
		return nil, err
	}
	p := &Process{manifest: l.manifest, number: l.number, run: run}
	address, config, err := l.handshake(ctx, run)
	if err == nil {
		err = p.connect(address, config)
	}
	if err == nil {
		err = greet(ctx, p)
	}
	if err == nil {
		return p, nil
	}
	return nil, l.failed(ctx, p, err)
}

// failed ends what there is of a process, and says why it is none.
func (l launch) failed(ctx context.Context, p *Process, err error) error {
	if p.run.pid != 0 && (errors.Is(err, errSilent) || status.Code(err) == codes.Unavailable) {
		wait := time.NewTimer(deathTime) // it is most likely about to end
		defer wait.Stop()
		select {
		case <-p.run.died:
		case <-ctx.Done():
		case <-wait.C:
		}
	}
	cause := p.Cause()
	p.end()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("it was not ready within %s", l.limits.Start)
	case ctx.Err() != nil:
		err = ctx.Err()
	case cause != nil:
		err = fmt.Errorf("before it was ready %w", cause)
	}
	return &StartError{Plugin: l.manifest.ID, Printed: p.run.printed.beginning(), Err: err}
}

// StartError is that a process of a plugin did not start.
type StartError struct {
	Plugin string
	// Printed is the beginning of what it has printed, on one line and with control
	// characters escaped.
	Printed string
	Err     error
}

// Error names the plugin, the cause, and what was printed.
func (e *StartError) Error() string {
	text := fmt.Sprintf("plugin %s: %s", e.Plugin, escape([]byte(e.Err.Error())))
	if e.Printed != "" {
		text += "; it has printed: " + e.Printed
	}
	return text
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// errSilent is that a process can say nothing any more.
var errSilent = errors.New("it has closed its standard output without saying where it listens")

// handshake starts the program and returns where it listens.
func (l launch) handshake(ctx context.Context, run *supervised) (net.Addr, *goplugin.ClientConfig, error) {
	config := &goplugin.ClientConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: wire.ProtocolVersion, MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue,
		},
		Plugins:          goplugin.PluginSet{wire.PluginName: nil},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     l.limits.Start,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: l.sockets},
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Off}),
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, sockets string) (runner.Runner, error) {
			run.order.Env, run.sockets = slices.Concat(l.env, spec.Env), sockets
			return run, nil
		},
	}
	defer context.AfterFunc(ctx, run.kill)()
	// The client is used for the handshake and no more: its broker would start a
	// goroutine for whatever a plugin sends it.
	address, err := goplugin.NewClient(config).Start()
	select {
	case <-run.silent:
		if err != nil && run.pid != 0 {
			err = errSilent
		}
	default:
	}
	return address, config, err
}

// connect dials the process and begins to read what it prints there.
func (p *Process) connect(address net.Addr, config *goplugin.ClientConfig) error {
	if config.TLSConfig.RootCAs == nil {
		return errors.New("its handshake has no certificate")
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, address.Network(), address.String())
	}
	conn, err := grpc.NewClient(
		"passthrough:plugin", grpc.WithContextDialer(dial), grpc.WithTransportCredentials(credentials.NewTLS(config.TLSConfig)),
		grpc.WithIdleTimeout(0), grpc.WithMaxHeaderListSize(maxHeader), grpc.WithDisableServiceConfig(),
		grpc.WithStaticStreamWindowSize(wire.StreamWindow), grpc.WithStaticConnWindowSize(wire.ConnWindow),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(wire.Bounded()), grpc.MaxCallRecvMsgSize(wire.MaxReply), grpc.MaxCallSendMsgSize(wire.MaxRequest),
		),
	)
	if err != nil {
		return err
	}
	p.conn = conn
	p.readStdio()
	return nil
}

// maxHeader bounds what a plugin may send beside messages, in bytes.
const maxHeader = 64 << 10

// client is for the calls that this package makes.
func (p *Process) client() pluginv1.PluginServiceClient {
	return pluginv1.NewPluginServiceClient(p.conn)
}

// baseVariables of the host are handed to every plugin. HOME is none of them: where
// secrets lie is for the manifest to ask for.
var baseVariables = []string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"}

// environment is what of the host's variables a plugin is handed.
func environment(names []string, lookup func(string) (string, bool)) []string {
	// A program that leaves its bytecode beside itself would change its private copy.
	env := []string{"PYTHONDONTWRITEBYTECODE=1"}
	for _, name := range slices.Concat(baseVariables, names) {
		if value, ok := lookup(name); ok && !strings.ContainsRune(value, 0) {
			env = append(env, name+"="+value)
		}
	}
	return env
}
