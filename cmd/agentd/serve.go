package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/seed-2ca4966b/agentd/store"
)

// listenFlags say where the front doors are.
type listenFlags struct {
	Listen string `default:"127.0.0.1:8080" env:"AGENTD_LISTEN" placeholder:"ADDRESS" help:"Listen here; without an API key on a loopback address only."`
	keyFlags
}

type serveCmd struct {
	databaseFlags
	listenFlags
	modelFlags
	gateFlags `set:"denied="`
	pluginRunFlags
	limitFlags
	policyFlags
	metricsFlags
	logFlags
	Roles        []string      `default:"api,worker" env:"AGENTD_ROLES" help:"api answers requests, worker works on runs."`
	Grace        time.Duration `default:"20s" env:"AGENTD_GRACE" help:"How long runs may finish their step when the process has to end."`
	Lease        time.Duration `default:"3s" env:"AGENTD_LEASE" help:"How long after a worker's last heartbeat others may not take over its runs. Give all workers the same."`
	CommitWindow time.Duration `default:"0" env:"AGENTD_COMMIT_WINDOW" help:"How long after a commit what a model says waits for more of it; 0 is as long as pays, 5ms at most."`
}

const (
	roleAPI    = "api"
	roleWorker = "worker"
)

// minLease leaves a heartbeat, a third of it, the time to arrive.
const minLease = 300 * time.Millisecond

// Run serves until a signal comes.
func (cmd serveCmd) Run(ctx context.Context, streams *std) error {
	log, err := cmd.logger(streams.err, slog.LevelInfo)
	if err != nil {
		return err
	}
	for _, role := range cmd.Roles {
		if role != roleAPI && role != roleWorker {
			return &exitError{code: exitUsage, err: fmt.Errorf("--roles: there is no role %q: give api, worker or both", role)}
		}
	}
	if cmd.Lease < minLease {
		return &exitError{code: exitUsage, err: fmt.Errorf("--lease: %s is too short to be kept alive: give at least %s", cmd.Lease, minLease)}
	}
	if cmd.CommitWindow < 0 || cmd.CommitWindow > store.MaxCommitWindow {
		return &exitError{code: exitUsage, err: fmt.Errorf("--commit-window: %s is not between 0 and %s", cmd.CommitWindow, store.MaxCommitWindow)}
	}
	n := node{
		api: slices.Contains(cmd.Roles, roleAPI), worker: slices.Contains(cmd.Roles, roleWorker),
		models: cmd.modelFlags, plugins: cmd.pluginRunFlags, policies: cmd.policies(), grace: cmd.Grace, lease: cmd.Lease, window: cmd.CommitWindow, log: log, parts: log,
	}
	if n.gates, err = cmd.gates(); err != nil {
		return err
	}
	if n.limit, err = cmd.limits(); err != nil {
		return err
	}
	if n.database, err = cmd.required(); err != nil {
		return err
	}
	n.direct = cmd.DirectDatabaseURL
	if n.metrics, err = newMetrics(cmd.plugins(), log); err != nil {
		return err
	}
	if n.key, err = cmd.key(); err != nil {
		return err
	}
	if n.worker {
		if err = n.models.check(); err != nil {
			return err
		}
	}
	return untilSignal(ctx, func(ctx context.Context) error {
		ctx, reloads, stop := withHangups(ctx)
		defer stop()
		n.reloads = reloads
		// A worker alone serves nothing that needs a key.
		if n.listener, err = listen(ctx, cmd.Listen, n.key != "" || !n.api); err != nil {
			return err
		}
		defer n.listener.Close()
		if n.scrapes, err = cmd.scrapes(ctx, log); err != nil {
			return err
		}
		if n.scrapes != nil {
			defer n.scrapes.Close()
		}
		n.serving = func() {
			log.Info("serving", "url", localURL(n.listener), "roles", cmd.Roles)
			n.sayWhoMayCall()
		}
		return endedBySignal(ctx, n.run(ctx))
	})
}

func (n node) sayWhoMayCall() {
	if n.api && n.key == "" {
		n.log.Info("no API key is set: only programs on this machine can connect")
	}
}
