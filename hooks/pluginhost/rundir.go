package pluginhost

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// hostPrefix is how the directories of hosts begin.
	hostPrefix = "h"
	// maxRunDir is how long the path of the directory that they are in may be: the rest
	// of what a socket's may have is for what comes behind it.
	maxRunDir = 50
)

// runDir is what a host has on disk, in a directory that hosts share. Its locks tell
// who is there, since the kernel takes them from whoever is gone.
type runDir struct {
	path, sockets string
	// host is locked as long as the host is there, keepers as long as there is one of
	// its keepers: they have inherited it.
	host, keepers *os.File
}

// openRunDir makes the directory of a host, and deletes those of hosts that are gone.
// Their keepers are given so much time to end.
func openRunDir(base string, wait time.Duration, log *slog.Logger) (*runDir, error) {
	base, err := filepath.Abs(base)
	if err != nil {
		return nil, err
	}
	if err := short(base); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, err
	}
	if err := private(base); err != nil {
		return nil, err
	}
	// One at a time: a directory is made a moment before it is locked.
	all, err := lockFile(filepath.Join(base, "lock"), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer func() { _ = all.Close() }() // the lock goes with it
	if err := sweep(base, wait, log); err != nil {
		return nil, err
	}
	d := &runDir{}
	if d.path, err = os.MkdirTemp(base, hostPrefix); err != nil {
		return nil, err
	}
	d.sockets = filepath.Join(d.path, "s")
	err = os.Mkdir(d.sockets, 0o700)
	if err == nil {
		d.host, err = lockFile(filepath.Join(d.path, "host.lock"), unix.LOCK_EX)
	}
	if err == nil {
		d.keepers, err = lockFile(filepath.Join(d.path, "keepers.lock"), unix.LOCK_SH)
	}
	if err != nil {
		_ = d.close()
		return nil, err
	}
	return d, nil
}

// private says whether a directory is this user's alone.
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is no directory of user %d with mode 0700", dir, os.Geteuid())
	}
	return nil
}

// lockFile opens a file, which is made if need be, and locks it. The lock goes with
// the last copy of the file.
func lockFile(name string, how int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// hostPattern is how the directories of hosts are named. Whoever names a directory for
// hosts that has something else in it, such as his own, keeps that.
var hostPattern = regexp.MustCompile(`^` + hostPrefix + `[0-9]+$`)

// sweep deletes what hosts have left.
func sweep(base string, wait time.Duration, log *slog.Logger) error {
	entries, err := os.ReadDir(base)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(wait)
	for _, e := range entries {
		if !e.IsDir() || !hostPattern.MatchString(e.Name()) {
			continue
		}
		dir := filepath.Join(base, e.Name())
		if !unheld(filepath.Join(dir, "host.lock"), time.Time{}) {
			continue
		}
		if !unheld(filepath.Join(dir, "keepers.lock"), deadline) {
			log.Warn("plugins of a host that is gone have not ended", "dir", dir)
			continue
		}
		// Whoever has killed the host may have killed its keepers, too.
		killUsers(dir)
		if err := remove(dir); err != nil {
			return err
		}
	}
	return nil
}

// unheld says whether nobody has a lock, and waits for that until the deadline. One
// that is not there has nobody.
func unheld(name string, deadline time.Time) bool {
	for {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return true
		}
		if err != nil {
			return false
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		_ = f.Close()
		if err == nil || !time.Now().Before(deadline) {
			return err == nil
		}
		time.Sleep(10 * time.Millisecond) // there is no signal for it
	}
}

// close deletes the directory.
func (d *runDir) close() error {
	err := remove(d.path)
	for _, f := range []*os.File{d.host, d.keepers} {
		if f != nil {
			_ = f.Close()
		}
	}
	return err
}
