package pgembed

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// InUseError says which live process owns a data directory. It unwraps to ErrInUse.
type InUseError struct {
	DataDir string
	// PID of the owner; 0 when it has not written it down yet.
	PID int
	// Agentd is false when the owner is not known to be an agentd: a postmaster
	// that runs on the directory as somebody's child.
	Agentd bool
}

func (e *InUseError) Error() string {
	who := "another agentd"
	if !e.Agentd {
		who = "another agentd or a Postgres started by hand"
	}
	return fmt.Sprintf("%s uses the data directory %s (pid %d): stop it, or choose another data directory", who, e.DataDir, e.PID)
}

// Unwrap makes errors.Is(err, ErrInUse) true.
func (e *InUseError) Unwrap() error { return ErrInUse }

// dirLock is an flock on the file beside the data directory. The kernel drops
// it when we die, whatever the cause, so holding it proves that no other
// agentd on this machine owns the directory. The file says who we are and
// which postmaster is ours, for the next owner and for InUseError.
type dirLock struct {
	file     *os.File
	previous int // the postmaster that the last owner recorded, 0 if it stopped it
}

func acquireLock(l layout) (*dirLock, error) {
	for {
		f, err := os.OpenFile(l.lock(), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open lock: %w", err)
		}
		agentd, postmaster := readLock(f)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(&InUseError{DataDir: l.data, PID: agentd, Agentd: true}, f.Close())
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", l.lock(), err), f.Close())
		}
		if !sameFile(f, l.lock()) {
			// A throwaway server deleted the file between our open and our
			// lock; a lock on a deleted file keeps nobody out.
			if err := f.Close(); err != nil {
				return nil, fmt.Errorf("close lock: %w", err)
			}
			continue
		}
		lock := &dirLock{file: f, previous: postmaster}
		if err := lock.record(postmaster); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return lock, nil
	}
}

// record writes our pid and the postmaster's, 0 for none.
func (d *dirLock) record(postmaster int) error {
	if err := d.file.Truncate(0); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	if _, err := d.file.WriteAt(fmt.Appendf(nil, "%d %d\n", os.Getpid(), postmaster), 0); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	return nil
}

// release unlocks before it closes: closing alone leaves the lock to a child
// that this process is forking just then, which has the file open until its
// exec, and the next owner would find the directory in use.
func (d *dirLock) release() error {
	return errors.Join(unix.Flock(int(d.file.Fd()), unix.LOCK_UN), d.file.Close())
}

func readLock(f *os.File) (agentd, postmaster int) {
	buf := make([]byte, 64)
	n, _ := f.ReadAt(buf, 0)
	_, _ = fmt.Sscan(strings.TrimSpace(string(buf[:n])), &agentd, &postmaster)
	return agentd, postmaster
}

func sameFile(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}
