package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/pgembed"
)

const (
	templateDatabase = "bench_template"
	// The limits that `agentd serve` sets.
	idleInTransaction = 2 * time.Second
	lockTimeout       = 5 * time.Second
	statementTimeout  = 30 * time.Second
)

// postgres is a private server and a connection that looks at it from outside
// the databases that are measured. It is used by one goroutine.
type postgres struct {
	server  *pgembed.Server
	control *pgx.Conn
	major   int
	made    []string
	count   int
}

// startPostgres starts a server whose commits reach the disk. BinDir "" takes
// what is installed.
func startPostgres(ctx context.Context, dir, binDir string, settings map[string]string) (_ *postgres, err error) {
	all := map[string]string{
		"max_connections": "400",
		// A checkpoint in the middle of one measurement and not of the other
		// would be the difference between them. One goes between the rounds.
		"checkpoint_timeout": "1h",
		"max_wal_size":       "16GB",
	}
	for name, value := range settings {
		all[name] = value
	}
	p := &postgres{}
	p.server, err = pgembed.Start(ctx, pgembed.Config{DataDir: filepath.Join(dir, "pg"), BinDir: binDir, Settings: all})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	if p.control, err = pgx.Connect(ctx, p.server.URL("postgres")); err != nil {
		return nil, fmt.Errorf("connect to the private Postgres: %w", err)
	}
	if err := p.control.QueryRow(ctx, `SELECT current_setting('server_version_num')::integer / 10000`).Scan(&p.major); err != nil {
		return nil, fmt.Errorf("ask for the version of Postgres: %w", err)
	}
	if err := p.makeTemplate(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *postgres) makeTemplate(ctx context.Context) error {
	if _, err := p.control.Exec(ctx, `CREATE DATABASE `+templateDatabase+` TEMPLATE template0 ENCODING 'UTF8'`); err != nil {
		return fmt.Errorf("make the template: %w", err)
	}
	url := p.server.URL(templateDatabase)
	if err := store.Migrate(ctx, url, slog.New(slog.DiscardHandler)); err != nil {
		return fmt.Errorf("migrate the template: %w", err)
	}
	return p.idle(ctx, templateDatabase)
}

// stop ends the server, without the checkpoint that would take as long as all
// that was written: the data is deleted with the directory.
func (p *postgres) stop() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if p.control != nil {
		_ = p.control.Close(ctx)
	}
	if err := p.server.Stop(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// database makes one with agentd's schema and nothing in it.
func (p *postgres) database(ctx context.Context) (name, url string, err error) {
	p.count++
	name = fmt.Sprintf("bench_%d", p.count)
	if _, err := p.control.Exec(ctx, `CREATE DATABASE `+name+` TEMPLATE `+templateDatabase); err != nil {
		return "", "", fmt.Errorf("make a database: %w", err)
	}
	p.made = append(p.made, name)
	url = p.server.URL(name)
	limits := store.RoleSettings{LockTimeout: lockTimeout, StatementTimeout: statementTimeout, IdleInTransaction: idleInTransaction}
	if err := store.ConfigureRole(ctx, url, limits); err != nil {
		return "", "", err
	}
	return name, url, p.idle(ctx, name)
}

// keep takes a database out of what dropAll drops.
func (p *postgres) keep(name string) {
	for i, made := range p.made {
		if made == name {
			p.made = append(p.made[:i], p.made[i+1:]...)
			return
		}
	}
}

// dropAll frees the disk and writes what is dirty, between two rounds. A nil
// server has nothing.
func (p *postgres) dropAll(ctx context.Context) error {
	if p == nil {
		return nil
	}
	for _, name := range p.made {
		if _, err := p.control.Exec(ctx, `DROP DATABASE `+name+` WITH (FORCE)`); err != nil {
			return fmt.Errorf("drop a database: %w", err)
		}
	}
	p.made = nil
	if _, err := p.control.Exec(ctx, `CHECKPOINT`); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// idle returns when nobody is connected to a database: a session reports what
// it has counted when it ends.
func (p *postgres) idle(ctx context.Context, database string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var sessions int
		err := p.control.QueryRow(ctx, `
			SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type <> 'autovacuum worker'`, database).Scan(&sessions)
		if err != nil {
			return fmt.Errorf("wait for the sessions of %s to end: %w", database, err)
		}
		if sessions == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d sessions of %s do not end: %w", sessions, database, ctx.Err())
		}
	}
}

// counters are what Postgres has counted so far.
type counters struct {
	commits  float64
	syncs    float64
	walBytes float64
	cpu      time.Duration // of all its processes, 0 where nobody says
}

func (a counters) minus(b counters) counters {
	return counters{
		commits: a.commits - b.commits, syncs: a.syncs - b.syncs,
		walBytes: a.walBytes - b.walBytes, cpu: a.cpu - b.cpu,
	}
}

// counters returns what was counted for a database, and for the whole server
// where Postgres has no more than that. Nobody may be connected to it.
func (p *postgres) counters(ctx context.Context, database string) (counters, error) {
	if err := p.idle(ctx, database); err != nil {
		return counters{}, err
	}
	// What this session has counted, such as the making of databases.
	if _, err := p.control.Exec(ctx, `SELECT pg_stat_force_next_flush()`); err != nil {
		return counters{}, fmt.Errorf("read the counters of Postgres: %w", err)
	}
	syncs := `SELECT wal_sync FROM pg_stat_wal`
	if p.major >= 18 {
		syncs = `SELECT coalesce(sum(fsyncs), 0) FROM pg_stat_io WHERE object = 'wal'`
	}
	var c counters
	err := p.control.QueryRow(ctx, `
		SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = $1)::float8,
			(`+syncs+`)::float8, (SELECT wal_bytes FROM pg_stat_wal)::float8`, database).Scan(&c.commits, &c.syncs, &c.walBytes)
	if err != nil {
		return counters{}, fmt.Errorf("read the counters of Postgres: %w", err)
	}
	c.cpu = familyCPU(p.server.PID())
	return c, nil
}
