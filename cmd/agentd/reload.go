package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/store"
)

// lookEvery is how often the files are read again. A change is loaded once two
// looks have found the same, since a file that is half written may be valid with
// fewer guards in it.
const lookEvery = 2 * time.Second

// hookSets stores hook sets, so that what runs and decisions name can be read,
// and who has put them in force.
type hookSets interface {
	PutHookSetLoad(ctx context.Context, load store.HookSetLoad) error
}

// reloader has the hooks of a process that are asked be those of its files. One
// goroutine uses it at a time.
type reloader struct {
	config hookConfig
	sets   hookSets
	// process is who says so when a set is stored.
	process store.Process
	into    *loop.Switch
	// plugins are asked behind the hooks of the files; nil has none.
	plugins *plugins
	log     *slog.Logger

	// last is what was loaded last, wanted what was read last and can be meant: the same,
	// unless something has kept it from being loaded.
	last, wanted *configured

	// asker asks the hooks of the set that is in force.
	asker *hooks.Asker
	// files are those that were read for what was loaded or refused last, and
	// settled the state in which they were.
	files   []configFile
	settled string
	// pending is the state that the look before this one found.
	pending string
	// unsaid is what went wrong with the loading of pending, once it was told.
	unsaid string
}

// load puts what the files came to in force. This is the one place where that
// happens: at the start, and then whenever the files are others. The set is
// stored before anybody is asked by it.
func (r *reloader) load(ctx context.Context, c *configured, why store.LoadCause) error {
	held := heldPlugins{release: func() {}}
	if r.plugins != nil {
		held = r.plugins.hold(c.plugins)
	}
	asked, observers, set, err := c.with(held)
	if err != nil {
		held.release()
		return err
	}
	before := ""
	if r.asker != nil {
		before = r.asker.HookSet
	}
	load := store.HookSetLoad{Set: set, Previous: before, Cause: why, Process: r.process}
	for _, f := range c.files {
		load.Files = append(load.Files, store.HookFile{Path: f.Name, SHA256: f.SHA256, Modified: f.Modified})
	}
	if err := r.sets.PutHookSetLoad(ctx, load); err != nil {
		held.release()
		return err
	}
	r.last, r.wanted = c, c
	r.files, r.settled, r.pending = c.files, stateOf(c.files), ""
	if r.asker == nil || before != set.Digest {
		r.asker = &hooks.Asker{HookSet: set.Digest}
	}
	// Hooks of the same digest may have another secret.
	r.into.Put(loop.InForce{Hooks: asked, Asker: r.asker, Observers: observers, Tools: held.tools, Unused: held.release})
	if r.config.path != "" || held.tools != nil {
		r.log.Info("hooks are loaded", "config", r.config.path, "cause", why, "hooks", len(asked.Set().Hooks), "observers", len(c.observed)+len(held.observers), "hook_set", set.Digest, "before", before)
	}
	for _, problem := range append(misplaced(c.observed), r.missing(c)...) {
		r.log.Warn("the config may not be meant", "problem", problem)
	}
	return nil
}

// missing tells of settings of plugins that there are not.
func (r *reloader) missing(c *configured) []string {
	if r.plugins == nil {
		return nil
	}
	return r.plugins.missing(c.plugins)
}

// look reads the files again if they are others than before, and loads them once
// they have been the same twice.
func (r *reloader) look(ctx context.Context) {
	if stateOf(readAgain(r.files)) == r.settled {
		r.pending = ""
		return
	}
	c, err := r.config.read()
	if state := stateOf(c.files); state != r.pending {
		r.pending, r.unsaid = state, ""
		return
	}
	r.take(ctx, c, err, store.LoadFile)
}

// loadNow reads the files because somebody has asked for it, and reports whether it has
// tried to load plugins, too.
func (r *reloader) loadNow(ctx context.Context) (plugins bool) {
	if r.config.path == "" {
		r.log.Info("no config file was there at the start: there is nothing to load again")
		return false
	}
	c, err := r.config.read()
	r.pending, r.unsaid = stateOf(c.files), ""
	return r.take(ctx, c, err, store.LoadSignal)
}

// take loads what was read, or tells once why it is not loaded. It loads plugins again
// if they would be started with something else, and reports that it has tried.
func (r *reloader) take(ctx context.Context, c *configured, err error, why store.LoadCause) (plugins bool) {
	if err != nil {
		r.files, r.settled, r.pending = c.files, stateOf(c.files), ""
		r.refuse(err)
		return false
	}
	r.wanted = c
	if r.plugins != nil && r.plugins.started != c.plugins.started() {
		plugins = true
		if err := r.plugins.load(ctx, c.plugins, false); err != nil {
			r.files, r.settled, r.pending = c.files, stateOf(c.files), ""
			r.log.Error("plugins are not loaded with what the config says of them now, and it is not in force: those before are still asked", "config", r.config.path, "error", err)
			return plugins
		}
	}
	// It is tried again at the next look: nothing is settled.
	if err := r.load(ctx, c, why); err != nil && ctx.Err() == nil && r.unsaid != err.Error() {
		r.unsaid = err.Error()
		r.log.Error("hooks are not loaded yet: those before are still asked", "config", r.config.path, "error", err)
	}
	return plugins
}

// loadPlugins looks for plugins again, and has what comes up be asked, as the config
// says that was read last. An error says that those before still are.
func (r *reloader) loadPlugins(ctx context.Context) error {
	if err := r.plugins.load(ctx, r.wanted.plugins, false); err != nil {
		r.log.Error("plugins are not loaded: those before are still asked", "error", err)
		return err
	}
	return r.join(ctx, r.wanted)
}

// rejoin has the plugins be asked that are in force now, unless they are asked the same
// as before.
func (r *reloader) rejoin(ctx context.Context) {
	c := r.last
	if r.plugins.started == r.wanted.plugins.started() {
		c = r.wanted // they were loaded for it
	}
	held := r.plugins.hold(c.plugins)
	_, _, set, err := c.with(held)
	held.release()
	if err != nil || set.Digest != r.asker.HookSet {
		_ = r.join(ctx, c) // it has told
	}
}

// join has the plugins be asked that are in force now.
func (r *reloader) join(ctx context.Context, c *configured) error {
	err := r.load(ctx, c, store.LoadPlugin)
	if err != nil && ctx.Err() == nil {
		r.log.Error("hooks of plugins are not loaded yet: those before are still asked", "error", err)
		r.plugins.told(nil) // it is tried again
	}
	return err
}

// refuse tells what is wrong, a line per place.
func (r *reloader) refuse(err error) {
	var wrong *yamlfile.Errors
	if errors.As(err, &wrong) {
		for _, one := range wrong.List {
			r.log.Error("the config is wrong", "problem", one.Error())
		}
		if wrong.More > 0 {
			r.log.Error("the config is wrong in more places", "more", wrong.More)
		}
	}
	r.log.Error("hooks are not loaded: those before are still asked", "config", r.config.path, "hook_set", r.asker.HookSet)
}

// stateOf tells two states of files apart.
func stateOf(files []configFile) string {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "%q %s %q\n", f.Name, f.SHA256, f.problem)
	}
	return b.String()
}

// readAgain is how files are now.
func readAgain(files []configFile) []configFile {
	now := make([]configFile, 0, len(files))
	for _, f := range files {
		f, _, _ := readConfigFile(f.Name) // why it cannot be read is in f
		now = append(now, f)
	}
	return now
}

// watch looks at the files until ctx ends, and loads them at once when it is asked
// to.
func (r *reloader) watch(ctx context.Context, reloads <-chan struct{}) {
	var looks <-chan time.Time
	if r.config.path != "" {
		every := time.NewTicker(lookEvery)
		defer every.Stop()
		looks = every.C
	}
	var (
		asks    <-chan chan error
		changes <-chan struct{}
	)
	if r.plugins != nil {
		asks, changes = r.plugins.reloads, r.plugins.changed
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-looks:
			r.look(ctx)
		case <-reloads:
			if loaded := r.loadNow(ctx); r.plugins != nil && !loaded {
				_ = r.loadPlugins(ctx) // it has told
			}
		case done := <-asks:
			done <- r.loadPlugins(ctx)
		case <-changes:
			r.rejoin(ctx)
		}
	}
}

// start watches in the background; stop waits until nothing is loaded any more.
func (r *reloader) start(ctx context.Context, reloads <-chan struct{}) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.watch(ctx, reloads)
	}()
	return func() {
		cancel()
		<-done
	}
}
