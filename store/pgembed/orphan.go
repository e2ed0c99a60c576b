package pgembed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	fastLimit      = 5 * time.Second // for an orphan's fast shutdown
	immediateLimit = 5 * time.Second // for anybody's immediate shutdown
	pollEvery      = 10 * time.Millisecond
)

// sighting is what a pid turned out to be. parent is set for a postmaster only.
type sighting struct {
	state  processState
	parent int
}

type processState int

const (
	stateUnknown    processState = iota // could not be told: leave it to Postgres
	stateGone                           // no such process, or a zombie
	stateOther                          // alive and certainly not a postmaster of the data directory
	statePostmaster                     // a postmaster of the data directory
)

// pidFile is the part of postmaster.pid that matters here.
type pidFile struct {
	pid    int
	status string // "starting", "ready", …
}

func pidPath(dataDir string) string { return filepath.Join(dataDir, "postmaster.pid") }

// readPIDFile returns false when there is no file or it is not yet complete.
func readPIDFile(dataDir string) (pidFile, bool) {
	text, err := os.ReadFile(pidPath(dataDir))
	if err != nil {
		return pidFile{}, false
	}
	lines := strings.Split(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 0 {
		return pidFile{}, false
	}
	f := pidFile{pid: pid}
	if len(lines) > 7 {
		f.status = strings.TrimSpace(lines[7])
	}
	return f, true
}

// clearOrphan stops the postmaster that a dead owner left on the data
// directory, and removes a postmaster.pid whose number now belongs to somebody
// else, on which Postgres would refuse to start for ever. The caller holds the
// lock, so no live agentd owns the directory. previous is the postmaster that
// the last owner recorded: it is an orphan whoever its parent is now, because
// not only init adopts. A postmaster that nobody recorded is one only if init
// is its parent; otherwise it is somebody's child and is left alone.
func clearOrphan(ctx context.Context, dataDir string, previous int, logger *slog.Logger) error {
	file, ok := readPIDFile(dataDir)
	if !ok {
		return nil
	}
	seen := inspect(file.pid, dataDir)
	switch seen.state {
	case stateUnknown:
		return nil
	case stateGone, stateOther:
		return removePIDFile(dataDir)
	case statePostmaster:
	}
	if file.pid != previous && seen.parent != 1 {
		return &InUseError{DataDir: dataDir, PID: seen.parent}
	}
	logger.Info("stopping the Postgres that a killed agentd left behind", "pid", file.pid, "data_dir", dataDir)
	for _, step := range []struct {
		signal syscall.Signal
		limit  time.Duration
	}{{syscall.SIGINT, fastLimit}, {syscall.SIGQUIT, immediateLimit}, {syscall.SIGKILL, immediateLimit}} {
		if err := syscall.Kill(file.pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the orphaned Postgres with pid %d: %w", file.pid, err)
		}
		gone, err := awaitGone(ctx, file.pid, dataDir, step.limit)
		if err != nil {
			return err
		}
		if gone {
			return removePIDFile(dataDir)
		}
	}
	return fmt.Errorf("the orphaned Postgres with pid %d does not stop", file.pid)
}

// removePIDFile removes what a killed postmaster left. Postgres would do so
// itself, but not while the number is taken, be it by a zombie that nobody waits for.
func removePIDFile(dataDir string) error {
	if err := os.Remove(pidPath(dataDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a stale postmaster.pid: %w", err)
	}
	return nil
}

// awaitGone polls, because a process that is not our child sends us nothing.
func awaitGone(ctx context.Context, pid int, dataDir string, limit time.Duration) (bool, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for inspect(pid, dataDir).state == statePostmaster {
		select {
		case <-tick.C:
		case <-timer.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return true, nil
}
