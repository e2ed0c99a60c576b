package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// slowMicros is how much longer each fdatasync of the slow disk takes.
const slowMicros = 2000

// In a directory of its own, or the go command would want to compile it.
//
//go:embed shim/slowdisk.c
var slowSource []byte

// errNoSlowDisk says why there is none; the part is then left out.
var errNoSlowDisk = errors.New("left out")

// slowPostgres starts the Postgres with the slow disk, once; it returns nil
// where there can be none.
func (b *bench) slowPostgres(ctx context.Context) (*postgres, error) {
	if b.slow != nil {
		return b.slow, nil
	}
	bin, err := makeSlowBinaries(ctx, filepath.Join(b.dir, "slow-bin"), b.pg.server.BinDir(), os.Getenv("PATH"))
	if errors.Is(err, errNoSlowDisk) {
		b.note(err.Error())
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, "slow")
	if err := makeOpenDir(dir); err != nil {
		return nil, err
	}
	b.slow, err = startPostgres(ctx, dir, bin, nil)
	return b.slow, err
}

// makeSlowBinaries makes a directory with a postgres that loads the shim.
func makeSlowBinaries(ctx context.Context, dir, wrapped, path string) (string, error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("slow-disk: %w: it needs LD_PRELOAD, which is Linux's", errNoSlowDisk)
	}
	cc := ""
	for _, d := range filepath.SplitList(path) {
		if p := filepath.Join(d, "cc"); cc == "" && isExecutable(p) {
			cc = p
		}
	}
	if cc == "" {
		return "", fmt.Errorf("slow-disk: %w: it needs a C compiler called cc, and there is none on the PATH", errNoSlowDisk)
	}
	if err := makeOpenDir(dir); err != nil {
		return "", err
	}
	source, shim := filepath.Join(dir, "slowdisk.c"), filepath.Join(dir, "slowdisk.so")
	if err := os.WriteFile(source, slowSource, 0o644); err != nil {
		return "", fmt.Errorf("write the shim: %w", err)
	}
	cmd := exec.CommandContext(ctx, cc, "-shared", "-fPIC", "-O2", "-o", shim, source, "-ldl")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the shim: %w: %s", err, lastLine(out))
	}
	if err := os.Chmod(shim, 0o755); err != nil {
		return "", fmt.Errorf("shim: %w", err)
	}
	for name, env := range map[string]string{
		"postgres": fmt.Sprintf("LD_PRELOAD=%s BENCH_SLOW_FDATASYNC_US=%d ", shellQuoted(shim), slowMicros), "initdb": "",
	} {
		text := "#!/bin/sh\n" + env + "exec " + shellQuoted(filepath.Join(wrapped, name)) + ` "$@"` + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			return "", fmt.Errorf("write the wrapper of %s: %w", name, err)
		}
	}
	return dir, nil
}

// makeOpenDir makes a directory that the user whom Postgres runs as may enter,
// whatever the umask is.
func makeOpenDir(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	return nil
}

// shellQuoted makes s one word of a shell.
func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
