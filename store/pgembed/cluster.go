package pgembed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// superuser is the role that initdb makes and that the URLs name.
const superuser = "agentd"

func hasCluster(dataDir string) bool {
	_, err := os.Stat(filepath.Join(dataDir, "PG_VERSION"))
	return err == nil
}

// clusterMajor is the major version of an existing cluster, 0 if there is none.
func clusterMajor(dataDir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		entries, err := os.ReadDir(dataDir)
		if err == nil && len(entries) > 0 {
			return 0, fmt.Errorf("%s is neither empty nor a Postgres data directory: choose another data directory", dataDir)
		}
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the data directory: %w", err)
	}
	major, _, _ := strings.Cut(strings.TrimSpace(string(text)), ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0, fmt.Errorf("%s holds no version", filepath.Join(dataDir, "PG_VERSION"))
	}
	return n, nil
}

// cluster prepares a data directory for its postmaster. The caller holds the lock.
type cluster struct {
	layout    layout
	account   account
	bin       binaries
	log       *logFile
	throwaway bool
}

// prepare makes the cluster if there is none and returns the password of the
// superuser. It can be killed at any point and called again.
func (c cluster) prepare(ctx context.Context) (password string, err error) {
	c.removeUnfinished()
	password, err = readPassword(c.layout.password())
	if err != nil {
		return "", err
	}
	if hasCluster(c.layout.data) {
		if err := c.account.own(c.layout.data); err != nil {
			return "", fmt.Errorf("give the data directory to user %s: %w", c.account.name, err)
		}
		if password != "" {
			return password, nil
		}
		// Somebody removed the file, or moved the data directory alone.
		password = newPassword()
		if err := c.resetPassword(ctx, password); err != nil {
			return "", err
		}
		return password, writePassword(c.layout.password(), password)
	}
	if password == "" {
		password = newPassword()
		// Before the cluster, so that none exists whose password nobody knows.
		if err := writePassword(c.layout.password(), password); err != nil {
			return "", err
		}
	}
	return password, c.create(ctx, password)
}

// create runs initdb in a sibling directory and renames the result, so that a
// kill in the middle leaves nothing that looks like a cluster.
func (c cluster) create(ctx context.Context, password string) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(c.layout.data), c.layout.initPrefix())
	if err != nil {
		return fmt.Errorf("make the directory for initdb: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// initdb reads the password as the user that Postgres runs as, who cannot
	// read our own file.
	pwFile, data := filepath.Join(dir, "password"), filepath.Join(dir, "data")
	if err := os.WriteFile(pwFile, []byte(password+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the password for initdb: %w", err)
	}
	if err := c.account.own(dir); err != nil {
		return fmt.Errorf("give the directory for initdb to user %s: %w", c.account.name, err)
	}
	// Locale C: the same order on every machine and after every upgrade of libc.
	args := []string{
		"-D", data, "-U", superuser, "--pwfile=" + pwFile, "--auth-local=trust", "--auth-host=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-instructions",
	}
	if c.throwaway {
		args = append(args, "--no-sync")
	}
	c.log.mark()
	if err := runTool(ctx, command(c.account, c.log, syscall.SIGKILL, c.bin.initdb(), args...)); err != nil {
		return c.log.explain(fmt.Errorf("initdb: %w", err))
	}
	if err := os.Rename(data, c.layout.data); err != nil {
		return fmt.Errorf("move the new cluster into place: %w", err)
	}
	return nil
}

// removeUnfinished deletes what killed initdbs left. It may fail while one is
// still ending; a later start then succeeds, and the name is never used again.
func (c cluster) removeUnfinished() {
	parent := filepath.Dir(c.layout.data)
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), c.layout.initPrefix()) {
			_ = os.RemoveAll(filepath.Join(parent, e.Name()))
		}
	}
}

// resetPassword uses the single-user mode, which asks for no password.
func (c cluster) resetPassword(ctx context.Context, password string) error {
	cmd := command(c.account, c.log, syscall.SIGKILL, c.bin.postgres(),
		"--single", "-D", c.layout.data, "-c", "log_statement=none", "-c", "log_min_error_statement=panic", "postgres")
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("set a new password: %w", err)
	}
	defer func() { _ = r.Close() }()
	_, err = fmt.Fprintf(w, "ALTER ROLE %s PASSWORD '%s'\n", superuser, password)
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("set a new password: %w", err)
	}
	cmd.Stdin = r
	c.log.mark()
	err = runTool(ctx, cmd)
	// This mode ends with status 0 after a statement that failed.
	if err == nil && strings.Contains(c.log.tail(), "ERROR:") {
		err = errors.New("statement failed")
	}
	if err != nil {
		return c.log.explain(fmt.Errorf("set a new password: %w", err))
	}
	return nil
}

func newPassword() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// readPassword returns "" when there is no file, or an empty one.
func readPassword(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read password: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

func writePassword(path, password string) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, []byte(password+"\n"), 0o600); err != nil {
		return fmt.Errorf("write password: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write password: %w", err)
	}
	return nil
}
