package pgembed

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReleasedLockIsFreeWhileAChildIsBeingForked: a forked child shares the
// open file until its exec, as a duplicate of the descriptor does.
func TestReleasedLockIsFreeWhileAChildIsBeingForked(t *testing.T) {
	t.Parallel()
	l := layout{data: filepath.Join(newDir(t), "pg")}
	first, err := acquireLock(l)
	if err != nil {
		t.Fatal(err)
	}
	child, err := unix.Dup(int(first.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(child) })
	if err := first.release(); err != nil {
		t.Fatal(err)
	}
	second, err := acquireLock(l)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	if err := second.release(); err != nil {
		t.Error(err)
	}
}
