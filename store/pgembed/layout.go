package pgembed

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// socketPathLimit is what macOS takes; Linux takes 107 bytes. A longer path
// fails late, inside the postmaster.
const socketPathLimit = 103

const scratchPrefix = "agentd-pg-"

// layout is where everything of one data directory lies. All paths are absolute.
type layout struct {
	data    string
	sockets string // "" until it is known to be ours
	scratch string // a temporary directory that holds all of it, or ""
}

func (l layout) lock() string     { return l.data + ".lock" }
func (l layout) log() string      { return l.data + ".log" }
func (l layout) password() string { return l.data + ".password" }
func (l layout) initPrefix() string {
	return filepath.Base(l.data) + ".init-"
}

// newLayout chooses the data directory and makes the directories above it.
func newLayout(cfg Config, acct account, logger *slog.Logger) (layout, error) {
	if cfg.DataDir == "" && cfg.Throwaway {
		return scratchLayout(acct)
	}
	data, err := chooseDataDir(cfg.DataDir, acct, logger)
	if err != nil {
		return layout{}, err
	}
	if err := mkdirOpen(filepath.Dir(data)); err != nil {
		return layout{}, fmt.Errorf("make the parent of the data directory: %w", err)
	}
	data = realPath(data)
	acct = acct.adopt(data)
	if at := acct.blockedAt(data); at != "" {
		return layout{}, fmt.Errorf("data directory %s: Postgres will run as user %s, who may not enter %s: choose another data directory or chmod a+x %s", data, acct.name, at, at)
	}
	return layout{data: data}, nil
}

func chooseDataDir(given string, acct account, logger *slog.Logger) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("current directory: %w", err)
	}
	local := filepath.Join(wd, ".agentd", "pg")
	at := acct.adopt(local).blockedAt(local)
	if at == "" {
		return local, nil
	}
	system := filepath.Join("/var/lib/agentd", shortHash(wd), "pg")
	logger.Warn("data directory is not in the current directory, because the user that Postgres runs as may not enter it",
		"data_dir", system, "user", acct.name, "blocked_at", at)
	return system, nil
}

// tempDir is the system's temporary directory, or /tmp where root's own
// TMPDIR is closed to the user that Postgres runs as.
func tempDir(acct account) string {
	dir := os.TempDir()
	if acct.blockedAt(filepath.Join(dir, "x")) != "" {
		return "/tmp"
	}
	return dir
}

// makeSockets makes the directory of the unix socket and clears it of what a
// killed server left: each start may take another port, so the names differ
// and nobody else would remove them. The caller holds the lock.
func (l layout) makeSockets(acct account) (string, error) {
	const longestName = len("/.s.PGSQL.65535")
	dir := l.data + ".sock"
	if len(dir)+longestName > socketPathLimit {
		name := scratchPrefix + shortHash(l.data+"\x00"+strconv.Itoa(acct.uid))
		dir = filepath.Join(tempDir(acct), name)
		if len(dir)+longestName > socketPathLimit {
			dir = filepath.Join("/tmp", name)
		}
	}
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = acct.own(dir)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make the socket directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("socket directory: %w", err)
	}
	// The server trusts whoever gets in here, and the name in a shared
	// temporary directory can be guessed, so somebody may have been first.
	if uid, _ := owner(info); !info.IsDir() || uid != acct.uid || info.Mode().Perm() != 0o700 {
		return "", fmt.Errorf("socket directory %s: not a directory of user %s with mode 0700: remove it", dir, acct.name)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("socket directory: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".s.PGSQL.") {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return "", fmt.Errorf("remove a stale socket: %w", err)
		}
	}
	return dir, nil
}

// discard deletes the data and all that lies beside it.
func (l layout) discard() error {
	if l.scratch != "" {
		return errors.Join(os.RemoveAll(l.sockets), os.RemoveAll(l.scratch))
	}
	var errs []error
	for _, path := range []string{l.sockets, l.data, l.password(), l.log(), l.lock()} {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

// mkdirOpen makes dir and what is missing above it, so that another user may
// pass through whatever our umask is. Existing directories stay as they are.
func mkdirOpen(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := mkdirOpen(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return os.Chmod(dir, 0o755)
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:6])
}
