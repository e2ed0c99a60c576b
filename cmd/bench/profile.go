package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/cmd/proc"
)

// profileCmd writes where the reference run spends its time.
type profileCmd struct {
	Dir     string        `default:"bin/profile" env:"PROFILE_DIR" help:"Write the profiles here."`
	Time    time.Duration `default:"5s" env:"BENCH_TIME" help:"Length of one profile."`
	Clients int           `default:"64" env:"PROFILE_CLIENTS" help:"Runs at once."`
	Streams int           `default:"256" env:"PROFILE_STREAMS" help:"Paced streams at once."`
}

// Run plays the reference run once for each kind of profile: none of them makes
// another one slower.
func (cmd profileCmd) Run(ctx context.Context, streams *std) error {
	if cmd.Time <= 0 || cmd.Clients < 1 || cmd.Streams < 1 {
		return &usageError{fmt.Errorf("BENCH_TIME, PROFILE_CLIENTS and PROFILE_STREAMS have to be positive, and are %s, %d and %d", cmd.Time, cmd.Clients, cmd.Streams)}
	}
	if err := os.MkdirAll(cmd.Dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of the profiles: %w", err)
	}
	return withDir(func(dir string) (err error) {
		pg, err := startPostgres(ctx, dir, "", map[string]string{
			"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "all", "pg_stat_statements.track_planning": "on",
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pg.stop()) }()
		p := &profiler{profileCmd: cmd, pg: pg, bench: &bench{pg: pg, sizes: fullSizes(cmd.Time, 1)}}
		for _, pass := range []struct {
			name string
			do   func(ctx context.Context) error
		}{
			{"CPU and allocations", p.cpu}, {"blocking", p.blocking}, {"statements", p.statements}, {"paced streams", p.paced}, {"observed streams", p.observed},
		} {
			fmt.Fprintln(streams.err, "profile:", pass.name)
			if err := pass.do(ctx); err != nil {
				return fmt.Errorf("%s: %w", pass.name, err)
			}
		}
		fmt.Fprintf(streams.out, "profiles of %d reference runs at once and of %d paced streams are in %s\n", cmd.Clients, cmd.Streams, cmd.Dir)
		return nil
	})
}

const selectStatements = `
	SELECT calls, total_exec_time, plans, total_plan_time, rows, wal_bytes::float8, query
	FROM pg_stat_statements WHERE dbid IN (SELECT oid FROM pg_database WHERE datname LIKE 'bench\_%')
	ORDER BY total_exec_time + total_plan_time DESC LIMIT 40`

type profiler struct {
	profileCmd
	pg    *postgres
	bench *bench
}

// play plays reference runs, and calls begin and end around the window.
func (p *profiler) play(ctx context.Context, tracer pgx.QueryTracer, begin, end func() error) (load, error) {
	_, url, err := p.pg.database(ctx)
	if err != nil {
		return load{}, err
	}
	ids, err := seedSessions(ctx, url, p.bench.sessionsFor(p.Clients))
	if err != nil {
		return load{}, err
	}
	if err := begin(); err != nil {
		return load{}, err
	}
	cfg := stackConfig{url: url, model: instantModel{}, hooks: referenceHooks(), tracer: tracer}
	done, err := playRuns(ctx, cfg, ids, p.Clients, p.bench.warm, p.bench.time)
	return done, errors.Join(err, end())
}

func (p *profiler) cpu(ctx context.Context) error {
	f, err := os.Create(filepath.Join(p.Dir, "cpu.pprof"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 0 // the sessions are no part of it
	defer func() { runtime.MemProfileRate = rate }()
	begin := func() error {
		runtime.MemProfileRate = 64 << 10
		return pprof.StartCPUProfile(f)
	}
	_, err = p.play(ctx, nil, begin, func() error {
		pprof.StopCPUProfile()
		return p.write("allocs")
	})
	return err
}

// paced profiles the process that serves the streams.
func (p *profiler) paced(ctx context.Context) error { return p.streaming(ctx, "paced") }

// observed is paced with all observers.
func (p *profiler) observed(ctx context.Context) error {
	return p.streaming(ctx, "observed", "--prose", "--observers")
}

func (p *profiler) streaming(ctx context.Context, name string, args ...string) error {
	return p.bench.paced(ctx, p.Streams, 1, func(listening context.Context, node *proc.Process, _ []*listener) error {
		if err := hold(listening, p.bench.time); err != nil {
			return err
		}
		return node.Leave()
	}, append(args, "--cpu-profile="+filepath.Join(p.Dir, name+".pprof"))...)
}

func (p *profiler) blocking(ctx context.Context) error {
	begin := func() error {
		runtime.SetBlockProfileRate(10_000) // nanoseconds
		runtime.SetMutexProfileFraction(10)
		return nil
	}
	_, err := p.play(ctx, nil, begin, func() error {
		runtime.SetBlockProfileRate(0)
		runtime.SetMutexProfileFraction(0)
		return errors.Join(p.write("block"), p.write("mutex"))
	})
	return err
}

func (p *profiler) write(name string) error {
	f, err := os.Create(filepath.Join(p.Dir, name+".pprof"))
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup(name).WriteTo(f, 0), f.Close())
}

// statements counts what is sent to Postgres, and what that costs there.
func (p *profiler) statements(ctx context.Context) error {
	nothing := func() error { return nil }
	t := &tracer{}
	reset := func() error {
		// Only the reference runs should be in it.
		for _, s := range []string{`CREATE EXTENSION IF NOT EXISTS pg_stat_statements`, `SELECT pg_stat_statements_reset()`} {
			if _, err := p.pg.control.Exec(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
	done, err := p.play(ctx, t, reset, nothing)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d reference runs, %d at once, %.0f per second; everything is per run, what a process does by itself included\n\n", done.total, p.Clients, done.rate)
	runs := float64(done.total)
	fmt.Fprintf(&b, "round trips %.2f, of them batches %.2f with %.1f statements each, of which %.2f are groups of appends\n\nSENT\n",
		float64(t.queries+t.batches)/runs, float64(t.batches)/runs, float64(t.batched)/max(float64(t.batches), 1), float64(t.groups.Load())/runs)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, name := range slices.SortedFunc(maps.Keys(t.sent), func(x, y string) int { return cmp.Compare(t.sent[y], t.sent[x]) }) {
		fmt.Fprintf(w, "%.3f\t  %s\n", float64(t.sent[name])/runs, name)
	}
	fmt.Fprintln(w, "\nIN POSTGRES\ncalls\tms\tplans\tms\trows\tWAL B\t  statement\t")
	rows, _ := p.pg.control.Query(ctx, selectStatements) //nolint:rowserrcheck // ForEachRow looks at it
	var calls, plans, n int64
	var ms, planning, wal float64
	var query string
	_, err = pgx.ForEachRow(rows, []any{&calls, &ms, &plans, &planning, &n, &wal, &query}, func() error {
		fmt.Fprintf(w, "%.3f\t%.3f\t%.3f\t%.3f\t%.1f\t%.0f\t  %s\n", float64(calls)/runs, ms/runs, float64(plans)/runs, planning/runs, float64(n)/runs, wal/runs, shortened(query))
		return nil
	})
	if err := errors.Join(err, w.Flush()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.Dir, "statements.txt"), []byte(b.String()), 0o644)
}
