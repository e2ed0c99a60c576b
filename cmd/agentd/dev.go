package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/pgembed"
)

type devCmd struct {
	databaseFlags
	listenFlags
	modelFlags
	gateFlags `set:"denied=memory_clear"`
	pluginRunFlags
	limitFlags
	policyFlags
	metricsFlags
	logFlags
	Grace time.Duration `default:"5s" env:"AGENTD_GRACE" help:"How long runs may finish their step when the process has to end."`
}

// devDatabase is the name of the one that a private Postgres has for agentd.
const devDatabase = "agentd"

// Run serves, with a Postgres of its own unless it is given one.
func (cmd devCmd) Run(ctx context.Context, streams *std) error {
	n := node{api: true, worker: true, models: cmd.modelFlags, plugins: cmd.pluginRunFlags, policies: cmd.policies(), grace: cmd.Grace}
	var err error
	if n.gates, err = cmd.gates(); err != nil {
		return err
	}
	if n.limit, err = cmd.limits(); err != nil {
		return err
	}
	// The parts are quiet: this is read by a person who wants to chat.
	if n.parts, err = cmd.logger(streams.err, slog.LevelWarn); err != nil {
		return err
	}
	if n.log, err = cmd.logger(streams.err, slog.LevelInfo); err != nil {
		return err
	}
	if n.key, err = cmd.key(); err != nil {
		return err
	}
	if n.metrics, err = newMetrics(cmd.plugins(), n.log); err != nil {
		return err
	}
	return untilSignal(ctx, func(ctx context.Context) error {
		ctx, reloads, stop := withHangups(ctx)
		defer stop()
		n.reloads = reloads
		return endedBySignal(ctx, cmd.serve(ctx, n, streams.out))
	})
}

func (cmd devCmd) serve(ctx context.Context, n node, out io.Writer) (err error) {
	// Before the database, whose first start takes seconds: a busy port or a
	// wrong script should not take that long to be said.
	if err = n.models.check(); err != nil {
		return err
	}
	if n.listener, err = listen(ctx, cmd.Listen, n.key != ""); err != nil {
		return err
	}
	defer n.listener.Close()
	if n.scrapes, err = cmd.scrapes(ctx, n.log); err != nil {
		return err
	}
	if n.scrapes != nil {
		defer n.scrapes.Close()
	}
	n.database, n.direct = cmd.DatabaseURL, cmd.DirectDatabaseURL
	binDir := ""
	if n.database == "" {
		var postgres *pgembed.Server
		if postgres, err = pgembed.Start(ctx, pgembed.Config{Logger: n.log}); err != nil {
			return err
		}
		defer func() {
			// What it says itself is the cause of whatever else went wrong.
			if gone := postgres.Err(); gone != nil {
				err = gone
			}
			ctx, cancel := stopping(ctx, stepLimit)
			defer cancel()
			if err := postgres.Stop(ctx); err != nil {
				n.log.Warn("Postgres was stopped in a hurry, its next start takes longer", "error", err)
			}
		}()
		if n.database, err = ensureDatabase(ctx, postgres); err != nil {
			return err
		}
		if err := writeURLFile(postgres.DataDir(), n.database); err != nil {
			return err
		}
		defer func() { _ = os.Remove(urlFile(postgres.DataDir())) }() // a stale one leads to a closed port
		n.broken, binDir = postgres.Done(), postgres.BinDir()
		n.parts = slog.New(mutedOnce{n.parts.Handler(), n.broken})
	}
	if err := store.Migrate(ctx, cmp.Or(n.direct, n.database), n.parts); err != nil {
		return err
	}
	n.serving = func() {
		n.sayWhoMayCall()
		url := localURL(n.listener)
		fmt.Fprintf(out, "url: %s\ncurl: %s\npsql: %s\n", url, curlLine(url, n.key), psqlLine(n.database, binDir))
	}
	return n.runUnlessBroken(ctx)
}

// curlLine makes a session.
func curlLine(url, key string) string {
	auth := ""
	if key != "" {
		auth = " -H " + shellQuoted("Authorization: Bearer "+key)
	}
	return "curl -sS" + auth + " -H 'Content-Type: application/json' -d '{}' " + url + "/agentd.v1.SessionService/CreateSession"
}

// psqlLine opens the database, with this binary if there is no psql.
func psqlLine(database, binDir string) string {
	const psql = "psql"
	url := shellQuoted(withoutPoolSettings(database))
	if _, err := exec.LookPath(psql); err == nil {
		return psql + " " + url
	}
	if path := filepath.Join(binDir, psql); binDir != "" && executable(path) {
		return shellQuoted(path) + " " + url
	}
	self, err := os.Executable()
	if err != nil {
		self = "agentd"
	}
	return shellQuoted(self) + " psql --database-url " + url
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// shellQuoted makes s one word of a shell.
func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
