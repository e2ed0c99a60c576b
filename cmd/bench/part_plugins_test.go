package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// pluginBench is a bench that measures hardly anything, in a directory of its own.
func pluginBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{sizes: smokeSizes(), say: io.Discard}
	var err error
	if b.dir, err = os.MkdirTemp("", "pb-"); err != nil { // a path of a socket is short
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(b.dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestACallIsMeasuredAtEachGate(t *testing.T) {
	t.Parallel()
	b := pluginBench(t)
	if err := b.measureCalls(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.measureUnasked(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, g := range gateCases {
		if call, whole := b.last(partPlugins, string(g.gate), oneCall+" p50"), b.last(partPlugins, string(g.gate), asking+" p50"); call <= 0 || whole <= 0 {
			t.Errorf("%s: a call takes %f ms, and asking %f ms", g.gate, call, whole)
		}
	}
	for _, item := range []string{pluginsNot, pluginsElse} {
		if n := b.last(partPlugins, item, callsMade); n != 0 {
			t.Errorf("%s: %f calls", item, n)
		}
	}
}

func TestAPluginThatIsNoneSaysSo(t *testing.T) {
	t.Parallel()
	b := pluginBench(t)
	if _, err := plugIn(t.Context(), b.dir, "nonsense"); err == nil || !strings.Contains(err.Error(), `there is no plugin "nonsense"`) {
		t.Errorf("%v", err)
	}
	if _, err := plugIn(t.Context(), "/dev/null", pluginAll); err == nil || !strings.Contains(err.Error(), "install plugin all") {
		t.Errorf("%v", err)
	}
	if code, _, said := runBench(t, "plugin", pluginAll); code != 1 || !strings.Contains(said, "put it into agentd's plugin directory") {
		t.Errorf("nobody has started it: code %d, said %q", code, said)
	}
	broken := errors.New("broken")
	if _, err := mallocs(1, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	var at []string
	for _, r := range plainHooks(guardedGates, func() {}).Set().Hooks {
		at = append(at, string(r.Gate))
	}
	if got, want := strings.Join(at, ","), fmt.Sprintf("%s,%s,%s", hooks.GateBeforeRunStart, hooks.GateBeforeToolCall, hooks.GateAfterToolCall); got != want {
		t.Errorf("hooks at %s, want %s", got, want)
	}
}

func TestRunsAreMeasuredUnderPluginsAndBesideThem(t *testing.T) {
	t.Parallel()
	b := pluginBench(t)
	var err error
	if b.pg, err = startPostgres(t.Context(), b.dir, "", nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.pg.stop(); err != nil {
			t.Error(err)
		}
	})
	all := pluginRuns{item: pluginsAll, id: pluginAll, asked: true}
	if err := b.comparePlugged(t.Context(), 1, pluginRuns{item: pluginsNone}, all); err != nil {
		t.Fatal(err)
	}
	if r := b.last(partPlugins, pluginsAll+" c=1", vsNoPlugin); r <= 0 {
		t.Errorf("rate %f of that without plugins", r)
	}
	if _, err := b.playPlugged(t.Context(), 1, pluginRuns{id: pluginOthers, asked: true}); err == nil || !strings.Contains(err.Error(), "asked 0 times") {
		t.Errorf("one that should be asked and is not: %v", err)
	}
	got, err := b.playBeside(t.Context(), neighbour{pluginCrashes, true})
	if err != nil || len(got.others) < b.others || got.completed > 0 {
		t.Errorf("%+v, %v", got, err)
	}
	for b.time = time.Second; ; b.time *= 2 {
		if _, err := b.playBeside(t.Context(), neighbour{pluginHealthy, true}); err != nil {
			if !strings.Contains(err.Error(), "it is not broken") {
				t.Error(err)
			}
			break
		}
		if b.time > time.Minute {
			t.Fatal("no run has completed that a healthy plugin is asked about")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.measurePlugins(ctx); err == nil {
		t.Error("it was measured when there was no time left")
	}
}
