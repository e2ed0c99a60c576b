package proctest

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// youngDir is how old a directory is before a sweep looks at it: it is made a
// moment before it is held.
const youngDir = time.Minute

// Dir makes a directory in the system's temporary one that every user may
// enter; its name begins with prefix. It is deleted when the test ends, and by
// a [Sweep] for that prefix once this process is gone, should that come first.
func Dir(t testing.TB, prefix string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		t.Fatal(err)
	}
	release, err := Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
		release()
	})
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user has to get to what is in it
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Hold locks a file or directory until release is called or this process is
// gone, however it goes: the kernel sees to that. It fails if somebody holds it.
func Hold(path string) (release func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	// Unlocked and not just closed: a child that is being forked has it open
	// until its exec.
	return func() {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		_ = f.Close()
	}, nil
}

// held reports whether a process holds what is there.
func held(path string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	release, err := Hold(path)
	if err == nil {
		release()
	}
	return err != nil
}

// Sweep deletes the directories in temp that [Dir] has made for prefix in
// processes that were killed. What is held stays, what is a minute young, and
// what is somebody else's. A caller whose tests leave more than the directory
// gives a function that says of each what else must be unheld, and what else
// has to go, which goes first: without the directory nobody would find it.
func Sweep(temp, prefix string, also ...func(dir string) (locks, left []string)) {
	temp, err := filepath.EvalSymlinks(temp)
	if err != nil {
		return
	}
	dirs, _ := filepath.Glob(filepath.Join(temp, prefix+"*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < youngDir || !ours(info) {
			continue
		}
		locks, left := []string{dir}, []string(nil)
		for _, f := range also {
			l, more := f(dir)
			locks, left = append(locks, l...), append(left, more...)
		}
		if slices.ContainsFunc(locks, held) {
			continue
		}
		// What cannot be deleted is left for the next sweep.
		failed := func(path string) bool { return os.RemoveAll(path) != nil }
		if !slices.ContainsFunc(left, failed) {
			_ = os.RemoveAll(dir)
		}
	}
}

// ours reports whether this user may delete what belongs to the file's owner.
func ours(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (os.Geteuid() == 0 || int(stat.Uid) == os.Geteuid())
}
