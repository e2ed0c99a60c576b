package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// dirPrefix begins the names of our directories, which hold a file called
// lockName that their process has locked.
const (
	dirPrefix = "agentd-bench-"
	lockName  = "lock"
)

// runCmd measures.
type runCmd struct {
	Time   time.Duration `default:"2s" env:"BENCH_TIME" help:"Length of one measurement."`
	Rounds int           `default:"5" env:"BENCH_ROUNDS" help:"How often each is made; the medians count."`
	Only   string        `env:"BENCH_ONLY" placeholder:"PART,…" help:"Measure these parts: names or regular expressions."`
	JSON   string        `default:"bench.json" env:"BENCH_JSON" placeholder:"FILE" help:"Write all figures here; empty writes none."`
	Limit  time.Duration `default:"30m" env:"BENCH_LIMIT" help:"Give up after this."`
	Agentd string        `default:"bin/agentd" placeholder:"FILE" help:"The agentd that is measured as a process."`
	Smoke  bool          `help:"Do everything once and small, to see that it works."`
}

// Run measures and prints.
func (cmd runCmd) Run(ctx context.Context, streams *std) (err error) {
	chosen, err := choose(cmd.Only)
	if err != nil {
		return err
	}
	s := smokeSizes()
	if !cmd.Smoke {
		if cmd.Time <= 0 || cmd.Rounds < 1 {
			return &usageError{fmt.Errorf("BENCH_TIME and BENCH_ROUNDS have to be positive, and are %s and %d", cmd.Time, cmd.Rounds)}
		}
		s = fullSizes(cmd.Time, cmd.Rounds)
	}
	if !isExecutable(cmd.Agentd) {
		return &usageError{fmt.Errorf("there is no agentd at %s: run `make build`, or name another one with --agentd", cmd.Agentd)}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cmd.Limit, fmt.Errorf("not done after %s: make BENCH_TIME shorter, or BENCH_LIMIT longer", cmd.Limit))
	defer cancel()
	defer func() {
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = context.Cause(ctx)
		}
	}()
	b := &bench{sizes: s, agentd: cmd.Agentd, say: streams.err}
	r := report{
		Version: version, StartedAt: time.Now(), Go: goVersion(), CPUs: runtime.NumCPU(), Load: loadAverage(), Time: s.time.String(), Rounds: s.rounds,
	}
	if r.Load > float64(r.CPUs)/2 {
		b.note(fmt.Sprintf("other programs use this machine (load %s): even the ratios say little", formatFloat(r.Load)))
	}
	err = withDir(func(dir string) (err error) {
		b.dir = dir
		sync, err := diskSync(dir)
		if err != nil {
			return err
		}
		r.FdatasyncP = millis(sync)
		fmt.Fprintln(b.say, "starting a private Postgres in", dir)
		if b.pg, err = startPostgres(ctx, dir, "", nil); err != nil {
			return err
		}
		r.Postgres = b.pg.major
		defer func() {
			if b.slow != nil {
				err = errors.Join(err, b.slow.stop())
			}
			err = errors.Join(err, b.pg.stop())
		}()
		return b.measure(ctx, chosen)
	})
	if err != nil {
		return err
	}
	r.Seconds = time.Since(r.StartedAt).Seconds()
	r.Figures, r.Aims, r.Notes = b.list, b.results(), append([]string{}, b.notes...)
	if cmd.JSON != "" {
		if err := r.write(cmd.JSON); err != nil {
			return err
		}
	}
	return r.print(streams.out)
}

// withDir calls do with a directory that Postgres can enter, and deletes it.
// What killed ones have left is deleted first.
func withDir(do func(dir string) error) (err error) {
	sweep(os.TempDir())
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	lock, err := os.Create(filepath.Join(dir, lockName))
	if err == nil {
		defer func() { _ = lock.Close() }()
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return fmt.Errorf("lock a directory: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	return do(dir)
}

// sweep deletes the directories whose process is gone. One that is a minute old
// has its lock, or never will.
func sweep(temp string) {
	dirs, _ := filepath.Glob(filepath.Join(temp, dirPrefix+"*")) // the pattern is a constant
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		lock, err := os.Open(filepath.Join(dir, lockName))
		if err != nil {
			_ = os.RemoveAll(dir)
			continue
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}
