package pgembed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const oldestMajor = 15

// binaries is a directory that has both postgres and initdb of one version.
type binaries struct {
	dir   string
	major int
}

func (b binaries) postgres() string { return filepath.Join(b.dir, "postgres") }
func (b binaries) initdb() string   { return filepath.Join(b.dir, "initdb") }

// host is what Start takes from the machine; tests replace parts of it.
type host struct {
	getenv     func(string) string
	globs      []string // directories that may hold binaries
	cacheDir   string   // of fetched binaries; "" means the usual place
	repository string   // where to fetch them
	fetchLimit time.Duration
	outlive    bool // the postmaster may outlive us, as on systems without a parent-death signal
}

func thisHost() host {
	return host{
		getenv: os.Getenv,
		globs: []string{
			"/usr/lib/postgresql/*/bin",
			"/usr/pgsql-*/bin",
			"/opt/homebrew/opt/postgresql@*/bin",
			"/usr/local/opt/postgresql@*/bin",
			"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
			"/Applications/Postgres.app/Contents/Versions/*/bin",
		},
		repository: mavenCentral,
		fetchLimit: time.Minute,
	}
}

// find returns the binaries for a cluster of the given major version, 0 for a
// new one. What the user named is taken or refused; otherwise an installed
// version that fits the cluster wins over a newer one.
func (h host) find(ctx context.Context, cfg Config, acct account, l layout, want int, logger *slog.Logger) (binaries, error) {
	for _, given := range []struct{ source, dir string }{{"BinDir", cfg.BinDir}, {"AGENTD_PG_BIN", h.getenv("AGENTD_PG_BIN")}} {
		if given.dir == "" {
			continue
		}
		b, err := inspectBinaries(ctx, given.dir, acct)
		if err != nil {
			return binaries{}, fmt.Errorf("%s=%s: %w", given.source, given.dir, err)
		}
		return b, fits(b, want, l.data)
	}
	found, rejected := h.installed(ctx, acct)
	if err := ctx.Err(); err != nil {
		// Otherwise an interrupted look would read as "nothing installed".
		return binaries{}, err
	}
	for _, b := range found {
		if want == 0 || b.major == want {
			return b, nil
		}
	}
	if len(found) > 0 {
		return binaries{}, fits(found[0], want, l.data)
	}
	fetched, err := h.fetch(ctx, acct, l, want, logger)
	if err != nil {
		return binaries{}, fmt.Errorf("%w: install the Debian package postgresql or the Homebrew formula postgresql@17 (version %d or newer), or set AGENTD_PG_BIN to the directory of initdb and postgres: %w",
			ErrNoPostgres, oldestMajor, errors.Join(append(rejected, err)...))
	}
	return fetched, fits(fetched, want, l.data)
}

// installed lists what is usable, the one in PATH first, then newest first,
// and why the others are not.
func (h host) installed(ctx context.Context, acct account) (found []binaries, rejected []error) {
	seen := map[string]bool{}
	look := func(dirs []string) (usable []binaries) {
		for _, dir := range dirs {
			b, err := inspectBinaries(ctx, dir, acct)
			if err != nil {
				rejected = append(rejected, fmt.Errorf("%s: %w", dir, err))
				continue
			}
			if !seen[b.dir] {
				seen[b.dir] = true
				usable = append(usable, b)
			}
		}
		return usable
	}
	var inPath, usual []string
	for _, dir := range filepath.SplitList(h.getenv("PATH")) {
		if executable(filepath.Join(dir, "postgres")) {
			inPath = append(inPath, dir)
		}
	}
	for _, glob := range h.globs {
		matches, _ := filepath.Glob(glob) // the patterns are constants
		usual = append(usual, matches...)
	}
	found = look(inPath)
	others := look(usual)
	slices.SortStableFunc(others, func(a, b binaries) int { return b.major - a.major })
	return append(found, others...), rejected
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspectBinaries follows the links of dir/postgres, since a link in PATH says
// where the installation is: initdb looks for its files beside itself.
func inspectBinaries(ctx context.Context, dir string, acct account) (binaries, error) {
	target, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return binaries{}, errors.New("there is no postgres in it")
	}
	b := binaries{dir: filepath.Dir(target)}
	if b.dir, err = filepath.Abs(b.dir); err != nil {
		return binaries{}, err
	}
	for _, path := range []string{b.postgres(), b.initdb()} {
		if !executable(path) {
			return binaries{}, fmt.Errorf("%s is missing or not executable", path)
		}
	}
	if at := acct.blockedAt(b.postgres()); at != "" {
		return binaries{}, fmt.Errorf("user %s, whom Postgres will run as, may not enter %s", acct.name, at)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, b.postgres(), "--version").Output()
	if err != nil {
		return binaries{}, fmt.Errorf("postgres --version: %w", err)
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return binaries{}, fmt.Errorf("postgres --version says %q", strings.TrimSpace(string(out)))
	}
	b.major, _ = strconv.Atoi(string(m[1])) // digits, by the pattern
	if b.major < oldestMajor {
		return binaries{}, fmt.Errorf("version %d is older than %d", b.major, oldestMajor)
	}
	return b, nil
}

func fits(b binaries, want int, dataDir string) error {
	if want == 0 || want == b.major {
		return nil
	}
	advice := fmt.Sprintf("install Postgres %d, or set AGENTD_PG_BIN to its directory", want)
	if want < oldestMajor {
		advice = fmt.Sprintf("Postgres %d is too old for agentd, so dump it with its own pg_dump", want)
	}
	return fmt.Errorf("%w: %s was made by Postgres %d and %s has Postgres %d: %s; or move the directory away to begin with an empty database",
		ErrVersion, dataDir, want, b.dir, b.major, advice)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeType == 0 && info.Mode()&0o111 != 0
}
