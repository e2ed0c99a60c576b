package pluginhost_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
)

func TestALockIsWrittenAndRead(t *testing.T) {
	t.Parallel()
	dir := roots(t, "p")[0]
	if lock, err := pluginhost.ReadLock(dir); err != nil || lock.Exists {
		t.Errorf("none: %+v, %v", lock, err)
	}
	want := map[string]string{"a": "sha256:" + strings.Repeat("a", 64), "b": "sha256:" + strings.Repeat("b", 64)}
	for range 2 {
		if err := pluginhost.WriteLock(dir, want); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := pluginhost.ReadLock(dir)
	if err != nil || !lock.Exists || len(lock.Digests) != 2 || lock.Digests["b"] != want["b"] {
		t.Errorf("%+v, %v", lock, err)
	}
	if err := pluginhost.WriteLock(dir, map[string]string{"a b": want["a"]}); err == nil {
		t.Error("an id that is none is locked")
	}
	if err := pluginhost.WriteLock(filepath.Join(dir, "absent"), want); err == nil {
		t.Error("written where there is no directory")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("it has left %v, %v", entries, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, pluginhost.LockName)); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, pluginhost.LockName, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := pluginhost.WriteLock(dir, want); err == nil {
		t.Error("written over a directory")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("it has left %v, %v", entries, err)
	}
}

func TestALockThatCannotBeReadIsNoLock(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("a", 64)
	for name, test := range map[string]struct {
		do   func(name string) error
		want string
	}{
		"a line that is none": {func(n string) error { return os.WriteFile(n, []byte("# x\n\na "+digest+" \nb\n"), 0o644) }, ":4: expected the id"},
		"an id twice":         {func(n string) error { return os.WriteFile(n, []byte("a "+digest+"\na "+digest), 0o644) }, ":2: a stands twice"},
		"open to everybody":   {func(n string) error { return errors.Join(os.WriteFile(n, nil, 0o644), os.Chmod(n, 0o666)) }, "written by everybody"},
		"a directory":         {func(n string) error { return os.Mkdir(n, 0o755) }, "directory"},
		"a loop":              {func(n string) error { return os.Symlink(pluginhost.LockName, n) }, "symbolic links"},
		"too long":            {func(n string) error { return os.WriteFile(n, []byte(strings.Repeat("#\n", 200<<10)), 0o644) }, "has more than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := roots(t, "p")[0]
			path := install(t, dir, "a", "")
			if err := test.do(filepath.Join(dir, pluginhost.LockName)); err != nil {
				t.Fatal(err)
			}
			if _, err := pluginhost.ReadLock(dir); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %s", err, test.want)
			}
			b := pluginhost.Bundle{Root: dir, Path: path, Manifest: pluginhost.Manifest{ID: "a"}}
			if err := b.Check(false); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the plugin passes: %v", err)
			}
		})
	}
}

func TestWhatIsNotAsLockedIsNotStarted(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *pluginhost.Config) { c.RequireLock = true })
	path := install(t, w.root, "a", "touch "+filepath.Join(w.root, "ran")+"; exit 1")
	refused := func(want string) {
		t.Helper()
		b := w.found(t)
		if err := b[0].Check(true); !errors.Is(err, pluginhost.ErrNotLocked) || !strings.Contains(err.Error(), want) {
			t.Errorf("the check says %v, want %s", err, want)
		}
		err := w.Reload(t.Context(), b)
		if !errors.Is(err, pluginhost.ErrNotLocked) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "plugin a: ") {
			t.Errorf("the error is %v, want %s", err, want)
		}
		if _, err := os.Stat(filepath.Join(w.root, "ran")); err == nil {
			t.Error("it has run")
		}
	}
	refused("there is no " + w.root)
	if err := pluginhost.WriteLock(w.root, nil); err != nil {
		t.Fatal(err)
	}
	refused("it is not in " + w.root)
	digest, err := w.found(t)[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	if err := pluginhost.WriteLock(w.root, map[string]string{"a": digest}); err != nil {
		t.Fatal(err)
	}
	if err := w.found(t)[0].Check(true); err != nil {
		t.Errorf("as locked: %v", err)
	}
	write(t, filepath.Join(path, "run"), "#!/bin/sh\ntouch "+filepath.Join(w.root, "ran")+"; exit 2\n", 0o755)
	refused("a has changed since it was locked: it is sha256:")
}
