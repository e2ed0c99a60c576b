package pgembed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// scratchLayout makes the directory of a throwaway server.
func scratchLayout(acct account) (layout, error) {
	scratch, err := os.MkdirTemp(scratchDir(acct), scratchPrefix)
	if err != nil {
		return layout{}, fmt.Errorf("make a throwaway directory: %w", err)
	}
	if acct.drop {
		// Postgres must pass through; only it and root see what is inside.
		if err := os.Chmod(scratch, 0o711); err != nil {
			return layout{}, errors.Join(err, os.RemoveAll(scratch))
		}
	}
	return layout{data: filepath.Join(realPath(scratch), "pg"), scratch: scratch}, nil
}

// scratchRoom is how much memory must be free for throwaway servers to live
// there: tests start a few side by side, each with some databases and its WAL.
const scratchRoom = 4 << 30

// scratchDir is a file system in memory that has room, or else [tempDir]. A test
// makes and drops a database, and on a disk most of its time would go to that.
func scratchDir(acct account) string {
	if dir := memoryDir(scratchRoom); dir != "" && acct.blockedAt(filepath.Join(dir, "x")) == "" {
		return dir
	}
	return tempDir(acct)
}

// youngScratch is how old a lock file is before a sweep looks at it.
const youngScratch = 30 * time.Second

// sweepScratch deletes the throwaway directories of our user whose owners were
// killed: a test that times out never gets to Stop, and each one leaves 40 MB.
// A directory whose lock is held is in use, and one whose lock file is young may
// be between its making and its locking. What cannot be deleted is left for
// the next sweep, since it is in nobody's way.
func sweepScratch(ctx context.Context, acct account, logger *slog.Logger) {
	// In both places: the room in memory differs from time to time.
	locks, _ := filepath.Glob(filepath.Join(tempDir(acct), scratchPrefix+"*", "pg.lock"))
	if dir := memoryDir(0); dir != "" {
		more, _ := filepath.Glob(filepath.Join(dir, scratchPrefix+"*", "pg.lock"))
		locks = append(locks, more...)
	}
	for _, path := range locks {
		scratch := filepath.Dir(path)
		info, err := os.Lstat(scratch)
		if err != nil || !info.IsDir() {
			continue
		}
		if uid, _ := owner(info); uid != os.Geteuid() {
			continue
		}
		if made, err := os.Stat(path); err != nil || time.Since(made.ModTime()) < youngScratch {
			continue
		}
		l := layout{data: filepath.Join(realPath(scratch), "pg"), scratch: scratch}
		l.sockets = l.data + ".sock"
		lock, err := acquireLock(l)
		if err != nil {
			continue
		}
		err = clearOrphan(ctx, l.data, lock.previous, logger)
		if err == nil {
			err = l.discard()
		}
		logger.Debug("swept the directory of a killed throwaway Postgres", "dir", scratch, "err", errors.Join(err, lock.release()))
	}
}
