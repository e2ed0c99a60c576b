package pluginhost_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
)

func TestADigestIsOfAllThatABundleHasAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := roots(t, "p")[0]
	path := install(t, dir, "a", "x")
	if err := os.Symlink("run", filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(path, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	digest := func() string {
		t.Helper()
		d, err := pluginhost.Bundle{Root: dir, Path: path}.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	in := func(name string) string { return filepath.Join(path, name) }
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]string{digest(): "the beginning"}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"content", func() { write(t, in("run"), "#!/bin/sh\ny\n", 0o755) }},
		{"another file", func() { write(t, in("e"), "", 0o644) }},
		{"its name", func() { do(os.Rename(in("e"), in("f"))) }},
		{"where it is", func() { do(os.Rename(in("f"), in("d/f"))) }},
		{"that it is executable", func() { do(os.Chmod(in("d/f"), 0o755)) }},
		{"an empty directory", func() { do(os.Mkdir(in("g"), 0o755)) }},
		{"a link", func() { do(os.Remove(in("link"))); do(os.Symlink("d/f", in("link"))) }},
		{"a file for a link", func() { do(os.Remove(in("link"))); write(t, in("link"), "d/f", 0o644) }},
	} {
		step.do()
		d := digest()
		if other, twice := seen[d]; twice {
			t.Errorf("with another %s the digest is that of %s", step.name, other)
		}
		seen[d] = step.name
	}
	before := digest()
	do(os.Chmod(in("run"), 0o700))
	do(os.Chmod(in("link"), 0o600))
	if digest() != before {
		t.Error("the umask of a checkout is in the digest")
	}
}

func TestABundleThatIsNotItsOwnIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do   func(root, path string) error
		want string
	}{
		"a link out of it":          {func(_, p string) error { return os.Symlink("../b", filepath.Join(p, "l")) }, "link: the link leads out"},
		"a link to everywhere":      {func(_, p string) error { return os.Symlink("/etc/passwd", filepath.Join(p, "l")) }, "the link leads out"},
		"a link to nowhere":         {func(_, p string) error { return os.Symlink("x", filepath.Join(p, "l")) }, "the link leads out of the plugin, or nowhere: x"},
		"a link out through a link": {func(_, p string) error { return linkThroughLink(p) }, "the link leads out"},
		"a pipe":                    {func(_, p string) error { return syscall.Mkfifo(filepath.Join(p, "f"), 0o600) }, "f is neither a file nor a directory"},
		"written by everybody":      {func(_, p string) error { return os.Chmod(filepath.Join(p, "run"), 0o757) }, "run may be written by everybody: chmod o-w"},
		"written by a group": {func(_, p string) error {
			return chownMode(filepath.Join(p, "run"), os.Geteuid(), os.Geteuid()+1, 0o775)
		}, "may be written by group"},
		"of another user":          {func(_, p string) error { return chownMode(filepath.Join(p, "run"), 4242, 4242, 0o755) }, "run belongs to user 4242"},
		"in an open directory":     {func(r, _ string) error { return os.Chmod(r, 0o777) }, "may be written by everybody"},
		"itself an open directory": {func(_, p string) error { return os.Chmod(p, 0o777) }, "may be written by everybody"},
		"too large":                {func(_, p string) error { return os.Truncate(filepath.Join(p, "run"), 5<<30) }, "has more than"},
		"too many files": {func(_, p string) error {
			for i := range 10_001 {
				if err := os.Symlink("run", filepath.Join(p, fmt.Sprint(i))); err != nil {
					return err
				}
			}
			return nil
		}, "has more than 10000 files"},
		"gone": {func(_, p string) error { return os.RemoveAll(p) }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := roots(t, "p")[0]
			path := install(t, root, "a", "")
			if err := test.do(root, path); errors.Is(err, os.ErrPermission) {
				t.Skip("=== SKIPPED: only root gives files away") // the other cases are for everybody
			} else if err != nil {
				t.Fatal(err)
			}
			b := pluginhost.Bundle{Root: root, Path: path, Manifest: pluginhost.Manifest{ID: "a"}}
			want := strings.TrimPrefix(test.want, "link: ")
			if _, err := b.Digest(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want %s", err, want)
			}
			if err := b.Check(false); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the check says %v, want %s", err, want)
			}
		})
	}
	root := roots(t, "p")[0]
	path := install(t, root, "a", "")
	if err := os.Chmod(filepath.Join(path, "run"), 0o775); err != nil {
		t.Fatal(err)
	}
	if stat, err := os.Stat(path); err != nil || stat.Sys().(*syscall.Stat_t).Gid != stat.Sys().(*syscall.Stat_t).Uid {
		return // this user's group is not his own
	}
	if _, err := (pluginhost.Bundle{Root: root, Path: path}).Digest(); err != nil {
		t.Errorf("written by the user's own group: %v", err)
	}
}

// linkThroughLink makes a link that leads out only for those who follow another.
func linkThroughLink(path string) error {
	if err := os.MkdirAll(filepath.Join(path, "d/e"), 0o755); err != nil {
		return err
	}
	if err := os.Symlink("../..", filepath.Join(path, "d/e/up")); err != nil {
		return err
	}
	return os.Symlink("d/e/up/../p", filepath.Join(path, "l"))
}

func chownMode(name string, uid, gid int, mode os.FileMode) error {
	if err := os.Chown(name, uid, gid); err != nil {
		return err
	}
	return os.Chmod(name, mode)
}
