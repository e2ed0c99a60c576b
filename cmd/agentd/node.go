package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/seed-2ca4966b/agentd/api"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/model/observed"
	"github.com/seed-2ca4966b/agentd/loop/tool/builtin"
	"github.com/seed-2ca4966b/agentd/loop/worker"
	"github.com/seed-2ca4966b/agentd/store"
)

const (
	// A process that is suspended, or cut off, must not keep others waiting.
	idleInTransaction = 2 * time.Second
	lockTimeout       = 5 * time.Second
	statementTimeout  = 30 * time.Second
	// acquireLimit is how long a request waits for a connection of the pool.
	acquireLimit = 5 * time.Second

	// defaultConns is the size of the pool unless the URL has pool_max_conns.
	// A run holds none while a model streams.
	defaultConns = 16

	// maxHeartbeat is how long a pause may take to reach a worker, however long
	// the lease is.
	maxHeartbeat = time.Second

	// stepLimit is how long each step of the exit may take, brokenLimit how
	// long if the database is gone and nothing can be saved.
	stepLimit   = 10 * time.Second
	brokenLimit = time.Second
)

// extraTools are the agent's beside the builtin ones: tests, which run this
// binary as agentd, need tools whose effects they can count.
var extraTools []loop.Tool

// extraHooks stand behind those of flags and config file, and are there for the
// same reason.
var extraHooks hooks.Hooks

// extraObservers stand behind those of the config file, for the same.
var extraObservers []stream.Registration

// node is one process of agentd.
type node struct {
	database string
	// direct is the way to the same database past a pooler, "" for none.
	direct   string
	listener net.Listener
	key      string // of the API, "" for none
	api      bool
	worker   bool
	models   modelFlags
	gates    gates
	metrics  *metrics
	// scrapes is where /metrics is served; nil is beside the API.
	scrapes net.Listener
	plugins pluginRunFlags
	// reloads asks for the hooks to be loaded again; nil never does.
	reloads <-chan struct{}
	// policies are as in [loop.Commands].
	policies map[string]event.Policy
	// limit puts limits on the agent.
	limit func(*loop.Agent)
	// grace is how long runs may finish their step when the process has to end.
	grace time.Duration
	// lease is that of the worker, 0 for its default.
	lease time.Duration
	// window is how long deltas wait for company, 0 for the store's default.
	window time.Duration
	// log gets what the person who started it should read, parts what the
	// parts have to say.
	log, parts *slog.Logger
	// broken is closed if the database is gone for good; nil never is.
	broken <-chan struct{}
	// serving is called once everything runs.
	serving func()
}

// run is the wiring. It serves until ctx ends; then what was started last is
// stopped first.
func (n node) run(ctx context.Context) (err error) {
	limits := store.RoleSettings{LockTimeout: lockTimeout, StatementTimeout: statementTimeout, IdleInTransaction: idleInTransaction}
	if err := store.ConfigureRole(ctx, withoutPoolSettings(cmp.Or(n.direct, n.database)), limits); err != nil {
		return err
	}
	line, err := reach(ctx, n.database, n.direct, n.parts)
	if err != nil {
		return err
	}
	pool := line.pool
	defer pool.Close()
	if err := store.CheckSchema(ctx, pool); err != nil {
		return err
	}
	log := store.New(pool, store.Options{
		Queue: worker.NewQueue(), Logger: n.parts, CommitWindow: n.window, Pooled: line.pooled, Direct: line.direct,
	})
	if err := log.Start(ctx); err != nil {
		return err
	}
	limit := stepLimit
	defer func() {
		ctx, cancel := stopping(ctx, limit)
		defer cancel()
		err = errors.Join(err, log.Stop(ctx))
	}()

	inForce := &loop.Switch{}
	n.gates.config.counters.use(log)
	tools, err := builtin.Tools(builtin.Surroundings{Memories: log})
	if err != nil {
		return err
	}
	tools = append(tools, extraTools...)
	runs := &pluginRuns{}
	process := newProcess()
	plugins := newPlugins(n.plugins, runs, store.NewNotices(log, process), reservedTools(tools), n.log)
	defer func() {
		ctx, cancel := stopping(ctx, limit)
		defer cancel()
		inForce.Put(loop.InForce{}) // nobody has them any more
		err = errors.Join(err, plugins.stop(ctx))
	}()
	if err := plugins.load(ctx, n.gates.first.plugins, true); err != nil {
		return err
	}
	reload := &reloader{config: n.gates.config, sets: log, process: process, into: inForce, plugins: plugins, log: n.log}
	if err := reload.load(ctx, n.gates.first, store.LoadStart); err != nil {
		return err
	}
	commands := &loop.Commands{
		Log: log, Agents: []string{demoAgent}, Tools: map[string][]loop.Tool{demoAgent: tools}, Policies: n.policies, Switch: inForce,
		NewID: newID, Now: time.Now, Logger: n.parts,
	}

	var ready atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	var draining atomic.Pointer[func() bool] // set once there is a worker
	mux.HandleFunc("GET /readyz", readiness(&ready, &draining, pool))
	if n.scrapes != nil {
		defer n.metrics.serveMetrics(n.scrapes, n.parts)()
	} else {
		mux.Handle("GET /metrics", withKey(n.key, n.metrics.handler()))
	}
	streams, closeStreams := context.WithCancel(context.WithoutCancel(ctx))
	mux.Handle(pluginsPath, withKey(n.key, pluginDoor{plugins: plugins, local: n.key == "", stopping: streams.Done()}))
	if n.api {
		mux.Handle("/", api.New(api.Config{
			Commands: commands, Reader: log, Feed: log, Pauses: log, APIKey: n.key, Stopping: streams, Log: n.parts,
		}))
	}
	server := newServer(mux, n.parts)
	served := make(chan struct{})
	var serveErr error // once served is closed
	go func() {
		defer close(served)
		serveErr = server.Serve(n.listener)
	}()
	defer func() {
		closeStreams()
		ctx, cancel := stopping(ctx, limit)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			n.log.Warn("requests are cut off", "error", err)
			_ = server.Close() // it has told the listener's error already
		}
		<-served
	}()

	if n.worker {
		demo, free, err := n.models.demo(tools, n.log, n.parts)
		if err != nil {
			return err
		}
		defer free()
		demo.Model = observed.Wrap(demo.Model, n.metrics.plugins) // before it is that of fallbacks too
		demo.Permissions = n.gates.permissions
		n.limit(&demo)
		if err := n.models.fallBack(&demo); err != nil {
			return err
		}
		engine := &loop.Engine{
			Log: log, Agents: map[string]loop.Agent{demo.Name: demo}, Switch: inForce, NewID: newID, Now: time.Now, Logger: n.parts,
		}
		runs.engine.Store(engine)
		label, _ := versionAndCommit()
		runs, err := worker.New(worker.Config{
			Pool: pool, Engine: engine, Commands: commands, Leases: store.NewLeases(log),
			NewID: newID, Logger: n.parts, Version: label, Host: hostname(), Grace: max(n.grace, time.Millisecond), // 0 would be its default
			Lease: n.lease, Heartbeat: min(n.lease/3, maxHeartbeat), Sweep: n.lease / 6, Outage: 10 * n.lease,
			PollOnly: line.pooled,
		})
		if err != nil {
			return err
		}
		if err := runs.Start(ctx); err != nil {
			return err
		}
		isDraining := runs.Draining
		draining.Store(&isDraining)
		defer func() {
			ctx, cancel := stopping(ctx, n.grace+limit)
			defer cancel()
			if err := runs.Stop(ctx); err != nil {
				n.log.Warn("runs are cut off: other workers take them up", "error", err)
			}
		}()
	}

	defer reload.start(ctx, n.reloads)()

	ready.Store(true)
	n.serving()
	select {
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), errTerminalGone) {
			n.log.Info("stopping: the terminal is gone", "grace", n.grace)
			break
		}
		n.log.Info("stopping: runs finish their step or are handed over; a second signal ends this at once", "grace", n.grace)
	case <-served:
		err = fmt.Errorf("serve: %w", serveErr)
	case <-n.broken:
		limit, n.grace = brokenLimit, 0
	}
	ready.Store(false)
	return err
}

// stopping is the context of a step of the exit: ctx has ended by then.
func stopping(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// hostname is for people who look for a worker; "" if the system does not say.
func hostname() string {
	name, _ := os.Hostname()
	return name
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }
