package yamlfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// TestWhatIsNoRegularFileIsNotRead, and keeps nobody waiting: a pipe into which
// nobody writes would keep a process from its start, or from every later change.
func TestWhatIsNoRegularFileIsNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, links := range [][2]string{{"loop", "pool"}, {"pool", "loop"}, {"self", "self"}, {"nowhere", "gone"}, {"topipe", "pipe"}} {
		if err := os.Symlink(links[1], at(links[0])); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"pipe": "is no regular file", "topipe": "is no regular file", "/dev/zero": "is no regular file", "": "is a directory",
		"loop": "too many levels of symbolic links", "self": "too many levels of symbolic links", "nowhere": "no such file", "a\x00b": "invalid argument",
	} {
		path := at(name)
		if filepath.IsAbs(name) {
			path = name
		}
		if text, err := yamlfile.Read(path); err == nil || text != nil || !strings.HasSuffix(err.Error(), want) && !strings.Contains(err.Error(), want+" ") {
			t.Errorf("%s: %q, %v; want %s", name, text, err, want)
		}
	}
}

func TestReadReadsNoMoreThanIsNeeded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "long.yaml")
	f, err := os.Create(path)
	if err == nil {
		defer func() { _ = f.Close() }()
		err = f.Truncate(1 << 30) // it takes no space
	}
	if err != nil {
		t.Fatal(err)
	}
	if text, err := yamlfile.Read(path); err != nil || len(text) != yamlfile.MaxBytes+1 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
