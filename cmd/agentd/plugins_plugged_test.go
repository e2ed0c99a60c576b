package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// plugged is a stack in which plugins are asked, as in a process.
type plugged struct {
	*stack
	dirs    pluginDirs
	plugins *plugins
	reload  *reloader
	into    *loop.Switch
}

// newPlugged has started what install put into the directories.
func newPlugged(t *testing.T, config string, install func(pluginDirs), options ...stackOption) *plugged {
	t.Helper()
	p := &plugged{stack: newStack(t, storetest.New(t), options...), dirs: newPluginDirs(t), into: &loop.Switch{}}
	install(p.dirs)
	log := slog.New(slog.NewTextHandler(p.logged, nil))
	p.plugins = newPlugins(p.dirs.flags(), &pluginRuns{}, store.NewNotices(p.store, newProcess()), nil, log)
	t.Cleanup(func() {
		p.into.Put(loop.InForce{})
		if err := p.plugins.stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	from := hookConfig{}
	if config != "" {
		from.path = filepath.Join(configFiles(t, map[string]string{"agentd.yaml": config}), "agentd.yaml")
	}
	c, err := from.read()
	if err == nil {
		err = p.plugins.load(t.Context(), c.plugins, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.reload = &reloader{config: from, sets: p.store, process: newProcess(), into: p.into, plugins: p.plugins, log: log}
	if err := p.reload.load(t.Context(), c, store.LoadStart); err != nil {
		t.Fatal(err)
	}
	p.Engine.Switch, p.Commands.Switch = p.into, p.into
	return p
}

func (d pluginDirs) flags() pluginRunFlags {
	return pluginRunFlags{pluginFlags: pluginFlags{PluginDir: d.plugins}, PluginRunDir: d.run}
}

// only is what the process says of its only plugin.
func (p *plugged) only(t *testing.T) listedPlugin {
	t.Helper()
	r := p.plugins.report()
	if len(r.Plugins) != 1 {
		t.Fatalf("the plugins are %+v", r)
	}
	return r.Plugins[0]
}

// says has a fresh session's model answer.
func (p *plugged) says(t *testing.T) (loop.Job, loop.Run) {
	t.Helper()
	j := p.Start(t, p.Session(t), "what is it?")
	return j, p.Advance(t, j)
}

// shown is the text of a session's answers, as they were streamed.
func (p *plugged) shown(t *testing.T, id string) string {
	t.Helper()
	return textShown(t, p.replay(t, id, 0))
}

// first has a plugin's program do something before it is started.
func (d pluginDirs) first(t *testing.T, id, line string) {
	t.Helper()
	name := filepath.Join(d.plugins, id, "run.sh")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(text), "\n", "\n"+line+"\n", 1)), 0o755); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
}

// await waits until the only plugin is in a state.
func (p *plugged) await(t *testing.T, want pluginhost.State) {
	t.Helper()
	late, tick := time.After(patience), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for p.only(t).State != string(want) {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("the plugin is %+v", p.only(t))
		}
	}
}
