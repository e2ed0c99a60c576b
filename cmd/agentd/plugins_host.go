package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/tool/builtin"
	"github.com/seed-2ca4966b/agentd/loop/tool/plugin"
)

// pluginFlags say where plugins are.
type pluginFlags struct {
	PluginDir         string `env:"AGENTD_PLUGIN_DIR" placeholder:"DIR" help:"Look for plugins here, where there has to be a directory, then in ~/.agentd/plugins, then in ./.agentd/plugins; a later one of the same name is the one that is taken."`
	RequirePluginLock bool   `env:"AGENTD_REQUIRE_PLUGIN_LOCK" help:"Start no plugin that is not in a plugins.lock."`
}

// pluginRunFlags say how they are run.
type pluginRunFlags struct {
	pluginFlags
	PluginRunDir string `env:"AGENTD_PLUGIN_RUN_DIR" placeholder:"DIR" help:"Keep what plugins are run from here: a short path, which is made if it is not there, and where programs can be executed. Without it a directory in that for temporary files."`
}

// discover looks for plugins. A directory that somebody has named has to be there: who
// has put a policy into it counts on it.
func (f pluginFlags) discover() ([]pluginhost.Bundle, []pluginhost.Problem, error) {
	if err := f.named(); err != nil {
		return nil, nil, err
	}
	bundles, problems := pluginhost.Discover(f.dirs())
	return bundles, problems, nil
}

// named is an error if a directory of plugins was named and cannot be found. What is in
// one that can be found and not read is a plugin that does not start.
func (f pluginFlags) named() error {
	if f.PluginDir == "" {
		return nil
	}
	info, err := os.Stat(f.PluginDir)
	var why string
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "there is no such directory"
	case err != nil:
		why = errors.Unwrap(err).Error()
	case !info.IsDir():
		why = "it is no directory"
	default:
		return nil
	}
	return badFlag("AGENTD_PLUGIN_DIR="+f.PluginDir, "%s: make one, or leave the variable empty", why)
}

// dirs are those where plugins are looked for, in order.
func (f pluginFlags) dirs() []string {
	own := filepath.Join(".agentd", "plugins")
	var dirs []string
	if f.PluginDir != "" {
		dirs = append(dirs, f.PluginDir)
	}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, own))
	}
	return append(dirs, own)
}

func (f pluginRunFlags) runDir() string {
	if f.PluginRunDir != "" {
		return f.PluginRunDir
	}
	return filepath.Join(os.TempDir(), "agentd-plugins-"+strconv.Itoa(os.Getuid()))
}

// keeperCommand is the command that makes this binary the keeper of a plugin's
// process. It is none of those that people type.
const keeperCommand = "plugin-keeper"

// keeper is the command line of one: of this very binary, also if another one has
// taken its place on disk.
func keeper() ([]string, error) {
	if runtime.GOOS == "linux" {
		return []string{"/proc/self/exe", keeperCommand}, nil
	}
	self, err := os.Executable()
	return []string{self, keeperCommand}, err
}

// reservedTools are names that no plugin's tool may have.
func reservedTools(own []loop.Tool) []string {
	names := []string{"ping", "memory_*"}
	for _, t := range own {
		names = append(names, t.Spec().Name)
	}
	return names
}

// plugins are those of a process. Load and stop are for one goroutine at a time; the
// others may be called from several.
type plugins struct {
	flags pluginRunFlags
	log   *slog.Logger
	// runs answers what plugins ask about runs.
	runs pluginhost.Runs
	// notices are what they are told.
	notices pluginhost.Notices
	// reserved are names that their tools do not have.
	reserved []string
	// changed has a value if the hooks of plugins may be other ones than before.
	changed chan struct{}
	// reloads asks the goroutine that loads hooks to load the plugins again.
	reloads chan chan error
	// started is what those in force were started with: see [pluginSettings.started].
	started string

	mu      sync.Mutex
	service *pluginhost.Service
	// host is nil as long as there was no plugin.
	host     *pluginhost.Host
	notifier *pluginhost.Notifier
	problems []pluginhost.Problem
	// found are the ids of those that are on disk, settings what the config file says of
	// plugins.
	found    []string
	settings pluginSettings
	// callers are those of the generations that somebody has, by their number.
	caller     *pluginhost.Caller
	generation int
}

func newPlugins(flags pluginRunFlags, runs pluginhost.Runs, notices pluginhost.Notices, reserved []string, log *slog.Logger) *plugins {
	return &plugins{flags: flags, runs: runs, notices: notices, reserved: reserved, log: log, changed: make(chan struct{}, 1), reloads: make(chan chan error)}
}

// load looks for plugins and loads what there is, with these settings. At the start those that do not come
// up are down; later nothing changes then, and the error says why.
func (p *plugins) load(ctx context.Context, settings pluginSettings, first bool) (err error) {
	defer func() {
		if err == nil {
			p.started = settings.started()
		}
	}()
	found, problems, err := p.flags.discover()
	if err != nil {
		return err
	}
	bundles := settings.configure(found)
	for _, problem := range problems {
		p.log.Warn("something is odd about plugins", "problem", problem.Text, "plugin", problem.ID, "path", problem.Path)
	}
	p.mu.Lock()
	p.problems, p.found = problems, idsOf(found)
	host := p.host
	p.mu.Unlock()
	if host == nil {
		if len(bundles) == 0 {
			return nil
		}
		if host, err = p.start(); err != nil {
			return err
		}
	}
	defer p.look()
	if first {
		if err := host.Start(ctx, bundles); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.log.Error("plugins are down: gates are closed where they would be asked, unless the config says otherwise of them", "error", err)
		}
		return nil
	}
	return host.Reload(ctx, bundles)
}

// start makes the host.
func (p *plugins) start() (*pluginhost.Host, error) {
	command, err := keeper()
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	label, _ := versionAndCommit()
	service := pluginhost.NewService(pluginhost.ServiceConfig{
		Runs: p.runs, Version: label, Reserved: p.reserved, CompileSchema: builtin.CompileSchema, Log: p.log,
	})
	host, err := pluginhost.New(pluginhost.Config{
		Dir: p.flags.runDir(), Keeper: command, Log: p.log, RequireLock: p.flags.RequirePluginLock,
		Greet: service.Greet, Gone: service.Gone, Changed: p.told,
	})
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	if err := service.Start(host.SocketDir()); err != nil {
		_ = host.Close(context.Background()) // it has nothing yet
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.host, p.service = host, service
	p.notifier = pluginhost.NewNotifier(pluginhost.NotifierConfig{Notices: p.notices, Acquire: host.Acquire, Log: p.log})
	return host, nil
}

// told is called when the status of a plugin changes.
func (p *plugins) told(*pluginhost.Plugin) {
	select {
	case p.changed <- struct{}{}:
	default:
	}
	p.look()
}

// look has those be told what happens that want to be.
func (p *plugins) look() {
	p.mu.Lock()
	notifier := p.notifier
	p.mu.Unlock()
	if notifier != nil {
		notifier.Look()
	}
}

// heldPlugins are the plugins of the generation that is in force, for as long as somebody
// has them.
type heldPlugins struct {
	hooks hooks.Hooks
	// observers carry out their stream rules.
	observers []stream.Registration
	tools     func() []loop.Tool
	release   func()
}

// hold returns those that are in force, asked as the settings say, which are there until
// they are released.
func (p *plugins) hold(settings pluginSettings) heldPlugins {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings = settings
	if p.host == nil {
		return heldPlugins{release: func() {}}
	}
	g := p.host.Acquire()
	if g == nil {
		return heldPlugins{release: func() {}}
	}
	// One caller per generation: it bounds the calls of its plugins.
	if p.caller == nil || p.generation != g.Number() {
		p.caller, p.generation = p.service.Caller(g), g.Number()
	}
	return heldPlugins{
		hooks: settings.hooks(p.caller, g), observers: settings.observers(p.caller), tools: plugin.Tools(p.caller, p.log), release: g.Release,
	}
}

// stop ends the plugins: gently, as long as ctx lasts.
func (p *plugins) stop(ctx context.Context) error {
	p.mu.Lock()
	host, service, notifier := p.host, p.service, p.notifier
	p.mu.Unlock()
	if host == nil {
		return nil
	}
	notifier.Stop() // it calls them
	err := host.Close(ctx)
	service.Stop()
	return err
}

// listedPlugin is a plugin for people and programs.
type listedPlugin struct {
	ID      string `json:"id"`
	Version string `json:"version"`
	Digest  string `json:"digest,omitempty"`
	Path    string `json:"path,omitempty"`
	State   string `json:"state"`
	// Since is when it came into the state.
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitempty"`
	Health string    `json:"health,omitempty"`
	PID    int       `json:"pid,omitempty"`
	Starts int       `json:"starts,omitempty"`
	Deaths int       `json:"deaths,omitempty"`
	Gates  []string  `json:"gates,omitempty"`
	Tools  []string  `json:"tools,omitempty"`
	// Rules are the observers that carry out its stream rules.
	Rules []string `json:"rules,omitempty"`
}

// pluginReport is what a process says of its plugins.
type pluginReport struct {
	Generation int            `json:"generation"`
	Plugins    []listedPlugin `json:"plugins"`
	Problems   []string       `json:"problems,omitempty"`
	// Error is why nothing was loaded.
	Error string `json:"error,omitempty"`
}

// report tells of the generation that is in force.
func (p *plugins) report() pluginReport {
	p.mu.Lock()
	host, service, out := p.host, p.service, pluginReport{Plugins: []listedPlugin{}}
	for _, problem := range p.problems {
		out.Problems = append(out.Problems, problem.String())
	}
	settings := p.settings
	out.Problems = append(out.Problems, settings.missing(p.found)...)
	p.mu.Unlock()
	if host == nil {
		return out
	}
	g := host.Acquire()
	if g == nil {
		return out
	}
	defer g.Release()
	out.Generation = g.Number()
	caller := service.Caller(g)
	tools, rules := caller.Tools(), settings.observers(caller)
	for _, one := range g.Plugins() {
		s := one.Status()
		l := listedPlugin{
			ID: one.ID(), Version: one.Version(), Digest: one.Digest(), Path: one.Bundle().Path, State: string(s.State), Since: s.Since, Reason: s.Reason,
			Health: s.Health, PID: s.PID, Starts: s.Starts, Deaths: s.Deaths,
		}
		for _, r := range caller.Only(one).Set().Hooks {
			l.Gates = append(l.Gates, string(r.Gate))
		}
		l.Gates = slices.Compact(l.Gates)
		for _, t := range tools {
			if t.Plugin() == one.ID() {
				l.Tools = append(l.Tools, t.Name)
			}
		}
		for _, r := range rules {
			if r.Plugin == one.ID() {
				l.Rules = append(l.Rules, r.ID)
			}
		}
		out.Plugins = append(out.Plugins, l)
	}
	return out
}

// missing tells of settings of plugins that are not on disk.
func (p *plugins) missing(settings pluginSettings) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return settings.missing(p.found)
}
