package plugins_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/plugintest"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
	"github.com/seed-2ca4966b/agentd/proctest"
)

// binaries is where the examples are once they are built.
var binaries string

var build = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "plugin-examples-")
	if err != nil {
		return err
	}
	binaries = dir
	cmd := exec.CommandContext(context.Background(), "go", "build", "-o", dir, "./policy", "./redact", "./ticket-tool")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return errors.New(string(said))
	}
	return nil
})

// TestMain is also the keeper of a plugin.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == keeperRole {
		os.Exit(pluginhost.Keep())
	}
	proctest.DieWithParent()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(binaries)
		os.Exit(code)
	}))
}

func example(t *testing.T, name string) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(binaries, name)
}

// guardsTheKey is what the policies do.
func guardsTheKey(t *testing.T, p *plugintest.Plugin, about *pluginv1.BootstrapResponse) {
	t.Helper()
	if len(about.GetSubscriptions()) != 1 || !proto.Equal(about.GetSubscriptions()[0], &pluginv1.Subscription{
		Gate: pluginv1.Gate_GATE_BEFORE_TOOL_CALL, Phase: pluginv1.Phase_PHASE_MUTATE, Tools: []string{"memory_write"},
	}) {
		t.Errorf("it is asked about %v", about.GetSubscriptions())
	}
	ask := func(arguments string) (hooks.BeforeToolCallResult, error) {
		a, err := p.Evaluate(t.Context(), wire.BeforeToolCall.Ask(hooks.BeforeToolCall{Call: hooks.ToolCall{Name: "memory_write", Arguments: arguments}}))
		if err != nil {
			return hooks.BeforeToolCallResult{}, err
		}
		return wire.BeforeToolCall.Answered(a)
	}
	if a, err := ask(`{"key":"name","content":"Ada"}`); err != nil || a.Action != hooks.ActionBlock ||
		a.Reason != (hooks.Reason{Code: "forbidden_key", Text: "Nothing may be remembered under the key name."}) {
		t.Errorf("the key name: %+v, %v", a, err)
	}
	if a, err := ask(`{"key":"town","content":"London"}`); err != nil || a.Action != hooks.ActionContinue {
		t.Errorf("another key: %+v, %v", a, err)
	}
	if a, err := ask(`{"key":`); err == nil {
		t.Errorf("no JSON: %+v", a)
	}
}

func TestPolicyBlocksACallByItsArgument(t *testing.T) {
	t.Parallel()
	p, about := plugintest.Bootstrapped(t, example(t, "policy"))
	guardsTheKey(t, p, about)
}

func TestTicketToolSaysHowFarItIsAndOpensOneTicketPerCall(t *testing.T) {
	t.Parallel()
	p, about := plugintest.Bootstrapped(t, example(t, "ticket-tool"))
	if len(about.GetTools()) != 1 || !json.Valid([]byte(about.GetTools()[0].GetSchemaJson())) || !about.GetTools()[0].GetIdempotent() {
		t.Fatalf("%v", about.GetTools())
	}
	for _, step := range []struct{ call, want string }{{"a", "Ticket 1: x"}, {"a", "Ticket 1: x"}, {"b", "Ticket 2: x"}, {"a", "Ticket 1: x"}} {
		progress, output := run(t, p, step.call)
		if output != step.want || len(progress) != 2 || progress[0] != "looking for a free number" {
			t.Errorf("%s: %q, %q", step.call, progress, output)
		}
	}
}

func run(t *testing.T, p *plugintest.Plugin, call string) (progress []string, output string) {
	t.Helper()
	stream, err := p.ExecuteTool(t.Context(), &pluginv1.ExecuteToolRequest{CallId: call, Tool: "open_ticket", ArgumentsJson: `{"title":"x"}`})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return progress, output
		}
		if err != nil {
			t.Fatal(err)
		}
		if out := m.GetOutput(); out != nil {
			output = out.GetContent()
		} else {
			progress = append(progress, m.GetProgress().GetText())
		}
	}
}

// python is one that has gRPC; it is the system's or the first on the PATH.
func python(t *testing.T) string {
	t.Helper()
	for _, path := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), path, "-c", "import grpc, google.protobuf").Run() == nil {
			if path, err := exec.LookPath(path); err == nil {
				return path
			}
		}
	}
	t.Skip("NOT TESTED: no python3 has gRPC (Debian: python3-grpcio), so examples/plugins/python is not run")
	return ""
}

func TestPolicyInPython(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("NOT TESTED: openssl is not installed, so examples/plugins/python is not run: ", err)
	}
	script, err := filepath.Abs("python/policy.py")
	if err != nil {
		t.Fatal(err)
	}
	launcher := filepath.Join(t.TempDir(), "policy")
	if err := os.WriteFile(launcher, []byte("#!/bin/sh\nexec '"+interpreter+"' '"+script+"'\n"), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	p, about := plugintest.Bootstrapped(t, launcher, "PATH="+os.Getenv("PATH"))
	guardsTheKey(t, p, about)
	if _, err := p.Drain(t.Context(), &pluginv1.DrainRequest{}); err != nil {
		t.Error(err)
	}
}

// TestPolicyInPythonIsInstalledAsItLies in its directory, with its manifest.
func TestPolicyInPythonIsInstalledAsItLies(t *testing.T) {
	t.Parallel()
	if python(t) != "/usr/bin/python3" {
		t.Skip("NOT TESTED: /usr/bin/python3 has no gRPC (Debian: python3-grpcio), so the host does not start examples/plugins/python")
	}
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("NOT TESTED: openssl is not installed, so the host does not start examples/plugins/python: ", err)
	}
	files := map[string]string{}
	entries, err := os.ReadDir("python")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		files[e.Name()] = filepath.Join("python", e.Name())
	}
	if info, err := os.Stat("python/policy.py"); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("the program may not be executed: %v, %v", info, err)
	}
	_, caller := installed(t, files)
	ask := caller.Hooks().BeforeToolCall
	for arguments, want := range map[string]hooks.Action{`{"key":"name"}`: hooks.ActionBlock, `{"key":"town"}`: hooks.ActionContinue} {
		a, err := ask(t.Context(), hooks.BeforeToolCall{Call: hooks.ToolCall{Name: "memory_write", Arguments: arguments}})
		if err != nil || a.Action != want {
			t.Errorf("%s: %+v, %v", arguments, a, err)
		}
	}
}
