package plugins_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// keeperRole is the first argument of this test binary where it keeps a plugin.
const keeperRole = "keeper"

// inGo are the files of an example that is a program in Go.
func inGo(t *testing.T, name string) map[string]string {
	t.Helper()
	return map[string]string{name: example(t, name), pluginhost.ManifestName: filepath.Join(name, pluginhost.ManifestName)}
}

// installed has a host start an example that consists of these files, by their names in
// the bundle.
func installed(t *testing.T, files map[string]string) (*pluginhost.Plugin, *pluginhost.Caller) {
	t.Helper()
	root, err := os.MkdirTemp("", "pe-") // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	bundle := filepath.Join(root, "p", "example")
	if err := os.MkdirAll(bundle, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, from := range files {
		content, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(bundle, name), content, 0o755) //nolint:gosec // it is a program
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	service := pluginhost.NewService(pluginhost.ServiceConfig{Version: "test", Log: log})
	host, err := pluginhost.New(pluginhost.Config{
		Dir: filepath.Join(root, "r"), Keeper: []string{self, keeperRole}, Log: log, Greet: service.Greet, Gone: service.Gone,
		Limits: pluginhost.Limits{Start: time.Minute}, // machines are slow
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(context.Background()); err != nil {
			t.Error(err)
		}
		service.Stop()
	})
	if err := service.Start(host.SocketDir()); err != nil {
		t.Fatal(err)
	}
	bundles, problems := pluginhost.Discover([]string{filepath.Join(root, "p")})
	if err := host.Start(t.Context(), bundles); err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	g := host.Acquire()
	t.Cleanup(g.Release)
	return g.Plugins()[0], service.Caller(g)
}

// answer is what is left of an answer in pieces, and what stopped it.
func answer(t *testing.T, rules []stream.Registration, pieces ...string) (text string, stop *stream.Stopped) {
	t.Helper()
	set, err := stream.NewSet(rules...)
	if err != nil {
		t.Fatal(err)
	}
	a := set.Begin(stream.Call{Attempt: 1})
	defer a.End(stream.EndFinished)
	for i := range len(pieces) + 1 {
		c := stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: stream.FinishStop}}
		if i < len(pieces) {
			c = stream.Chunk{Lane: stream.LaneText, BlockID: "1", Text: pieces[i]}
		}
		out := a.Push(c)
		if out.Stop != nil {
			return text, out.Stop
		}
		for _, c := range out.Chunks {
			text += c.Text
		}
	}
	return text, nil
}

func TestRedactTakesOutAndHaltsWherePiecesAreCut(t *testing.T) {
	t.Parallel()
	p, caller := installed(t, inGo(t, "redact"))
	process, err := p.Process()
	if err != nil {
		t.Fatal(err)
	}
	const said, want = "Ticket ACME-123456, key AKIAIOSFODNN7EXAMPLE.", "Ticket [removed], key [removed]."
	for at := range said {
		if got, stop := answer(t, caller.Observers(), said[:at], said[at:]); got != want || stop != nil {
			t.Errorf("cut at %d: %q, %+v; want %q", at, got, stop, want)
		}
	}
	const canary = "It is canary-0123abcd."
	for at := range canary {
		got, stop := answer(t, caller.Observers(), canary[:at], canary[at:])
		if stop == nil || stop.Observer != "redact:canary" || stop.Policy != stream.StopFail || stop.Reason != "The answer repeats what only the system prompt says." || strings.Contains(got, "abcd") {
			t.Errorf("cut at %d: %q, %+v", at, got, stop)
		}
	}
	if err := syscall.Kill(process.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-process.Exited()
	if got, _ := answer(t, caller.Observers(), said); got != want {
		t.Errorf("without the process: %q", got)
	}
}
