package pluginhost_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/seed-2ca4966b/agentd/hooks/plugin"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
	"github.com/seed-2ca4966b/agentd/proctest"
)

// TestMain is also a keeper, a plugin, and a host: the first argument says which.
func TestMain(m *testing.M) {
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	switch role {
	case "keeper":
		os.Exit(pluginhost.Keep())
	case "plugin":
		if err := plugin.Serve(plugin.Config{ID: os.Args[2], Version: "1", Tools: tools(), Health: health}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "foreign":
		beForeign(os.Args[2])
	case "host":
		beHost(os.Args[2], os.Args[3:])
	default:
		proctest.DieWithParent()
		goleak.VerifyTestMain(m)
	}
}

// tools are what a test can have a plugin do.
func tools() []plugin.Tool {
	var out []plugin.Tool
	for name, run := range map[string]func(text string) (string, error){
		"say": func(text string) (string, error) { return text, nil },
		"exit": func(text string) (string, error) {
			fmt.Fprintln(os.Stdout, "the last words:", text)
			os.Exit(3) //nolint:revive // that is what it is for
			return "", nil
		},
		"panic": func(string) (string, error) {
			done := make(chan struct{})
			go func() { defer close(done); panic("on purpose") }()
			<-done
			select {}
		},
		"stop": func(string) (string, error) { return "", syscall.Kill(os.Getpid(), syscall.SIGSTOP) },
		"hang": func(string) (string, error) { select {} },
		"big":  func(text string) (string, error) { n, err := strconv.Atoi(text); return strings.Repeat("x", n), err },
		"fail": func(text string) (string, error) {
			n, err := strconv.Atoi(text)
			return "", errors.Join(err, errors.New(strings.Repeat("x", n)))
		},
		"print": printMuch,
		"env":   func(string) (string, error) { return strings.Join(os.Environ(), "\n"), nil },
		"fork":  fork,
	} {
		out = append(out, plugin.Tool{
			Name: name, Schema: []byte(`{}`),
			Run: func(_ context.Context, in plugin.ToolInput, _ func(string)) (plugin.ToolOutput, error) {
				text, err := run(string(in.Arguments))
				return plugin.ToolOutput{Content: text}, err
			},
		})
	}
	// A plugin has to say the same of itself each time.
	slices.SortFunc(out, func(a, b plugin.Tool) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// health is that of a plugin of which the name tells.
func health(context.Context) error {
	if os.Args[2] == "sick" {
		return errors.New("bad \x1b[31m")
	}
	return nil
}

// printMuch prints so many bytes on each way, without an end of line.
func printMuch(text string) (string, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return "", err
	}
	flood := strings.Repeat("f", n)
	_, _ = os.Stdout.WriteString(flood)
	_, _ = os.Stderr.WriteString(flood)
	// As code in C does, which knows nothing of os.Stdout.
	for fd := 1; fd <= 2; fd++ {
		for left := flood; left != ""; {
			n, err := syscall.Write(fd, []byte(left))
			if err != nil {
				return "", err
			}
			left = left[n:]
		}
	}
	return "", nil
}

// foreign is a plugin that knows go-plugin and not our SDK.
type foreign struct {
	goplugin.NetRPCUnsupportedPlugin
	pluginv1.UnimplementedPluginServiceServer
	id string
}

func beForeign(id string) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: wire.ProtocolVersion, MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue,
		},
		Plugins:    goplugin.PluginSet{wire.PluginName: &foreign{id: id}},
		GRPCServer: goplugin.DefaultGRPCServer,
	})
}

func (f *foreign) GRPCServer(_ *goplugin.GRPCBroker, server *grpc.Server) error {
	pluginv1.RegisterPluginServiceServer(server, f)
	return nil
}

func (*foreign) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("it has no plugins")
}

func (f *foreign) Bootstrap(context.Context, *pluginv1.BootstrapRequest) (*pluginv1.BootstrapResponse, error) {
	fmt.Fprintln(os.Stdout, "out of another program")
	fmt.Fprintln(os.Stderr, "what is wrong with it")
	return &pluginv1.BootstrapResponse{Id: f.id, Version: "1"}, nil
}

// beHost starts the plugins of a directory and waits for its end.
func beHost(dir string, roots []string) {
	proctest.DieWithParent()
	h, err := pluginhost.New(pluginhost.Config{Dir: dir, Keeper: keeper, Log: slog.New(slog.DiscardHandler), Greet: greet})
	if err == nil {
		bundles, _ := pluginhost.Discover(roots)
		err = h.Start(context.Background(), bundles)
	}
	if err != nil {
		panic(err)
	}
	for _, p := range h.Acquire().Plugins() {
		fmt.Fprintln(os.Stdout, p.Status().PID)
	}
	select {}
}

// fork leaves processes behind: one in a session of its own, and one whose parent is
// gone at once.
func fork(string) (string, error) {
	return "", exec.Command("/bin/sh", "-c", "setsid sleep 1000 & sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; exit 0").Run()
}

// greet is the first call, with a host that there is not.
func greet(ctx context.Context, p *pluginhost.Process) (*pluginv1.BootstrapResponse, error) {
	answer, err := pluginv1.NewPluginServiceClient(p.Conn()).Bootstrap(ctx, &pluginv1.BootstrapRequest{
		Name: p.Manifest().ID, ConfigJson: string(p.Manifest().Config),
	})
	if err == nil && answer.GetId() != p.Manifest().ID {
		err = fmt.Errorf("it says that it is %s", answer.GetId())
	}
	return answer, err
}

// keeper is this program. The race detector has a program wait for a second before it
// ends, which these do not need.
var keeper = []string{"/usr/bin/env", noWait, self(), "keeper"}

const noWait = "GORACE=atexit_sleep_ms=0"

func self() string {
	name, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return name
}

// temp is a directory with a short path. When the test has ended no process may have
// to do with it.
func temp(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ph-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if pids := users(t, dir); len(pids) > 0 {
			t.Errorf("processes are left: %v", pids)
		}
		_ = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = os.Chmod(name, 0o700)
			}
			return nil
		})
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// users are the processes that have been told of dir.
func users(t testing.TB, dir string) []string {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range procs {
		stat, _ := os.ReadFile(p + "/stat")
		_, rest, _ := strings.Cut(string(stat), ") ")
		if p == "/proc/"+strconv.Itoa(os.Getpid()) || strings.HasPrefix(rest, "Z") {
			continue
		}
		environ, _ := os.ReadFile(p + "/environ")
		cmdline, _ := os.ReadFile(p + "/cmdline")
		if strings.Contains(string(environ)+string(cmdline), dir+"/") {
			out = append(out, filepath.Base(p)+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return out
}

// install writes a bundle whose program is a shell script. More are lines of the
// manifest.
func install(t testing.TB, root, id, script string, more ...string) string {
	t.Helper()
	dir := filepath.Join(root, id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "run"), "#!/bin/sh\n"+script+"\n", 0o755)
	write(t, filepath.Join(dir, pluginhost.ManifestName), fmt.Sprintf("id: %s\nversion: \"1\"\nexec: run\nprotocol: 1\n%s", id, strings.Join(more, "\n")), 0o644)
	return dir
}

func write(t testing.TB, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// serves is the script of a plugin that works.
func serves(id string) string {
	return fmt.Sprintf("export %s; exec %s plugin %s", noWait, self(), id)
}

// logged is what was logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// world is a host with a directory of plugins.
type world struct {
	*pluginhost.Host
	root, dir string
	log       *logged
	changes   chan *pluginhost.Plugin
}

// setup makes one. Nothing in it is in a hurry but what change asks for.
func setup(t testing.TB, change ...func(*pluginhost.Config)) *world {
	t.Helper()
	base := temp(t)
	w := &world{root: filepath.Join(base, "p"), dir: filepath.Join(base, "r"), log: &logged{}, changes: make(chan *pluginhost.Plugin, 1000)}
	if err := os.Mkdir(w.root, 0o755); err != nil {
		t.Fatal(err)
	}
	config := pluginhost.Config{
		Dir: w.dir, Keeper: keeper, Log: slog.New(slog.NewTextHandler(io.MultiWriter(w.log, t.Output()), nil)), Greet: greet,
		Changed: func(p *pluginhost.Plugin) { w.changes <- p },
		Limits: pluginhost.Limits{
			Start: time.Minute, HealthEvery: time.Hour, Health: time.Minute, Window: time.Hour, Backoff: time.Millisecond,
			Drain: time.Minute, Term: time.Minute, Kill: time.Minute,
		},
	}
	for _, f := range change {
		f(&config)
	}
	var err error
	if w.Host, err = pluginhost.New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel() // a test that has failed may have a generation still
		if err := w.Close(now); err != nil {
			t.Error(err)
		}
	})
	return w
}

// found are the plugins in the directory.
func (w *world) found(t testing.TB) []pluginhost.Bundle {
	t.Helper()
	bundles, problems := pluginhost.Discover([]string{w.root})
	for _, p := range problems {
		t.Log(p)
	}
	return bundles
}

// up starts what is in the directory, and returns the first.
func (w *world) up(t testing.TB) *pluginhost.Plugin {
	t.Helper()
	if err := w.Start(t.Context(), w.found(t)); err != nil {
		t.Fatal(err)
	}
	g := w.Acquire()
	g.Release()
	return g.Plugins()[0]
}

// await waits until a plugin has a status as it should be.
func (w *world) await(t testing.TB, p *pluginhost.Plugin, is func(pluginhost.Status) bool) pluginhost.Status {
	t.Helper()
	late := time.After(time.Minute)
	for {
		if s := p.Status(); is(s) {
			return s
		}
		select {
		case <-w.changes:
		case <-late:
			t.Fatalf("plugin %s is %+v", p.ID(), p.Status())
		}
	}
}

// call runs a tool of the process that is up.
func call(t testing.TB, p *pluginhost.Plugin, tool, text string) (*pluginhost.Process, string, error) {
	t.Helper()
	process, err := p.Process()
	if err != nil {
		t.Fatal(err)
	}
	stream, err := pluginv1.NewPluginServiceClient(process.Conn()).ExecuteTool(t.Context(), &pluginv1.ExecuteToolRequest{Tool: tool, ArgumentsJson: text})
	if err != nil {
		return process, "", err
	}
	m, err := stream.Recv()
	return process, m.GetOutput().GetContent(), err
}

// within waits for what no signal tells.
func within(t testing.TB, done func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatal("it has not happened")
		case <-tick.C:
		}
	}
}
