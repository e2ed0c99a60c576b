package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
)

// Config is what a host needs.
type Config struct {
	// Dir is where private copies and sockets are. It is made if it is not there, and
	// has to belong to this user alone. Hosts may share it. Its path is short, since
	// those of sockets are limited, and programs can be executed in it.
	Dir string
	// Keeper is the command line of a program that calls [Keep]; an argument for people
	// who look at processes is added to it.
	Keeper []string
	// Log gets what happens to plugins and what they print.
	Log *slog.Logger

	// Greet asks a process that has just started who it is. It is called before
	// anything else, for each process once. An error, which may be shown, says that
	// the process cannot be used. Its context ends with the start limit.
	Greet func(context.Context, *Process) (*pluginv1.BootstrapResponse, error)
	// Gone is told that a greeted process is gone, nil if nobody wants to know.
	Gone func(*Process)
	// Changed is told that the status of a plugin has changed, nil if nobody wants to
	// know. It must not block.
	Changed func(*Plugin)

	// RequireLock has no plugin started without a plugins.lock beside it.
	RequireLock bool
	// LookupEnv finds the host's variables; nil is [os.LookupEnv].
	LookupEnv func(string) (string, bool)
	// Now is the time; nil is [time.Now].
	Now func() time.Time
	// Limits are limits. The zero value is [DefaultLimits].
	Limits Limits
}

// Host starts plugins and keeps them. It is safe for concurrent use.
type Host struct {
	config Config
	dir    *runDir

	loading   sync.Mutex // one load at a time
	processes atomic.Int64
	retiring  sync.WaitGroup
	// killing is closed when there is no time for more.
	killing chan struct{}

	mu      sync.Mutex
	current *Generation
	loads   int
	closed  bool
}

// ErrClosed is what a host that was closed returns.
var ErrClosed = errors.New("the plugin host is closed")

// New makes a host without plugins. It deletes what hosts have left in its directory
// that did not come to close it. [Host.Close] ends it.
func New(c Config) (*Host, error) {
	c.Limits = c.Limits.orDefault()
	if c.LookupEnv == nil {
		c.LookupEnv = os.LookupEnv
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if len(c.Keeper) == 0 || c.Log == nil || c.Greet == nil {
		return nil, errors.New("a plugin host needs a keeper, a log and somebody who greets")
	}
	dir, err := openRunDir(c.Dir, c.Limits.Kill, c.Log)
	if err != nil {
		return nil, fmt.Errorf("directory of the plugin host: %w", err)
	}
	return &Host{config: c, dir: dir, killing: make(chan struct{})}, nil
}

// SocketDir is a directory, with a short path, that only this user may enter. It is
// deleted with all that is in it when the host is closed.
func (h *Host) SocketDir() string { return h.dir.sockets }

// Start loads plugins. The generation is in force also where plugins did not start:
// they are down, and started again as often as after a death. The error tells of them.
// Only if ctx ends nothing changes.
func (h *Host) Start(ctx context.Context, bundles []Bundle) error { return h.load(ctx, bundles, false) }

// Reload loads plugins in the place of those that there are. If one of them does not
// start nothing changes, and the error says why.
func (h *Host) Reload(ctx context.Context, bundles []Bundle) error { return h.load(ctx, bundles, true) }

// Acquire returns the generation that is in force, nil if nothing was loaded. It is
// there until it is released, or for as long as the limits say.
func (h *Host) Acquire() *Generation {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil {
		h.current.refs++
	}
	return h.current
}

func (h *Host) load(ctx context.Context, bundles []Bundle, all bool) error {
	h.loading.Lock()
	defer h.loading.Unlock()
	h.mu.Lock()
	h.loads++
	number, closed := h.loads, h.closed
	h.mu.Unlock()
	if closed {
		return ErrClosed
	}
	g, err := h.generation(ctx, number, bundles)
	if err != nil && (all || ctx.Err() != nil || g == nil) {
		if g != nil {
			g.kill()
			g.end(nil)
		}
		return err
	}
	h.mu.Lock()
	old := h.current
	h.current = g
	h.mu.Unlock()
	if old != nil {
		h.retire(old)
	}
	h.config.Log.Info("plugins are loaded", "generation", number, "plugins", len(bundles))
	return err
}

// generation starts plugins, one after the other. It is nil only if there is no place
// for them.
func (h *Host) generation(ctx context.Context, number int, bundles []Bundle) (*Generation, error) {
	g := &Generation{number: number, host: h, dir: filepath.Join(h.dir.path, "g"+strconv.Itoa(number)), idle: make(chan struct{})}
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return nil, err
	}
	hard, kill := context.WithCancel(context.Background())
	soft, drain := context.WithCancel(hard)
	g.kill, g.drain = kill, drain
	var errs []error
	for i, b := range bundles {
		p := h.plugin(g, i, b)
		g.plugins = append(g.plugins, p)
		if p.launch.dir != "" {
			g.running.Go(func() { p.run(hard, soft) })
		}
		select {
		case <-p.tried:
			if p.err != nil {
				errs = append(errs, p.err)
			}
		case <-ctx.Done():
			return g, ctx.Err()
		}
	}
	return g, errors.Join(errs...)
}

// plugin makes the private copy of a plugin and looks whether that may be started.
func (h *Host) plugin(g *Generation, i int, b Bundle) *Plugin {
	p := &Plugin{
		bundle: b, config: &h.config, tried: make(chan struct{}), number: func() int64 { return h.processes.Add(1) },
		log: h.config.Log.With("plugin", b.ID, "version", b.Version, "generation", g.number),
	}
	dir := filepath.Join(g.dir, strconv.Itoa(i))
	if err := p.prepare(dir); err != nil {
		p.refuse(fmt.Errorf("plugin %s: %w", b.ID, err))
		return p
	}
	p.launch = launch{
		manifest: p.bundle.Manifest, dir: dir, digest: p.digest, sockets: h.dir.sockets, keeper: h.config.Keeper,
		label: h.dir.path + ":" + b.ID, lock: h.dir.keepers, env: environment(p.bundle.Env, h.config.LookupEnv),
		limits: h.config.Limits, log: p.log, now: h.config.Now,
	}
	return p
}

// prepare copies the bundle. What is checked, and later executed, is the copy.
func (p *Plugin) prepare(dir string) error {
	if p.bundle.Broken != nil {
		return p.bundle.Broken
	}
	if err := p.bundle.copyTo(dir); err != nil {
		return err
	}
	var err error
	if p.digest, err = digest(dir, func(string, os.FileInfo) error { return nil }); err != nil {
		return err
	}
	if err := p.bundle.pinned(p.digest, p.config.RequireLock); err != nil {
		return err
	}
	m, err := readManifest(filepath.Join(dir, ManifestName), filepath.Join(p.bundle.Path, ManifestName))
	switch {
	case err != nil:
		return err
	case m.ID != p.bundle.ID:
		return fmt.Errorf("its manifest says now that it is %s", m.ID)
	}
	p.bundle.Manifest = m
	p.bundle = p.bundle.Configured(p.bundle.over)
	return nil
}

// Close ends all plugins: gently, as long as nobody has them any more and ctx lasts,
// and by force when it ends. It deletes what the host has made, and may be called
// twice.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	again := h.closed
	h.closed = true
	h.mu.Unlock()
	if again {
		return nil
	}
	h.loading.Lock() // a load that is under way ends first
	defer h.loading.Unlock()
	h.mu.Lock()
	last := h.current
	h.current = nil
	h.mu.Unlock()
	if last != nil {
		h.retire(last)
	}
	stop := context.AfterFunc(ctx, func() { close(h.killing) })
	h.retiring.Wait()
	stop()
	return h.dir.close()
}
