package pluginhost_test

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
)

// Where host and keeper can do nothing any more the kernel does.
func TestAPluginDoesNotOutliveItsHostAndItsKeeper(t *testing.T) {
	t.Parallel()
	base := temp(t)
	root, dir := filepath.Join(base, "p"), filepath.Join(base, "r")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	install(t, root, "a", "trap '' HUP; "+strings.Replace(serves("a"), "exec ", "", 1)+" & wait; sleep 1000")
	host := exec.Command("/proc/self/exe", "host", dir, root)
	host.Stderr = t.Output()
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	if err := host.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(parentOf(t, pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, func() bool { return len(users(t, base)) == 1 })
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = host.Wait() // it was killed
}

func TestHostsShareADirectory(t *testing.T) {
	t.Parallel()
	w := setup(t)
	install(t, w.root, "a", serves("a"))
	p := w.up(t)
	config := pluginhost.Config{Dir: w.dir, Keeper: keeper, Log: slog.New(slog.DiscardHandler), Greet: greet}
	other, err := pluginhost.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if other.SocketDir() == w.SocketDir() {
		t.Error("they have the same sockets")
	}
	if err := other.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, said, err := call(t, p, "say", "1"); err != nil || said != "1" {
		t.Errorf("a plugin of the first says %q, %v", said, err)
	}
	if info, err := os.Stat(w.SocketDir()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its sockets: %v, %v", info, err)
	}
}

func TestAHostDoesNotUseADirectoryOfOthers(t *testing.T) {
	t.Parallel()
	base := temp(t)
	config := pluginhost.Config{Keeper: keeper, Log: slog.New(slog.DiscardHandler), Greet: greet}
	for name, test := range map[string]struct {
		do   func(dir string) error
		want string
	}{
		"open":                               {func(d string) error { return os.Mkdir(d, 0o755) }, "is no directory of user"},
		"a link":                             {func(d string) error { return os.Symlink(base, d) }, "is no directory of user"},
		"a file":                             {func(d string) error { return os.WriteFile(d, nil, 0o600) }, "not a directory"},
		"too-deep" + strings.Repeat("x", 50): {func(string) error { return nil }, "is longer than 50 bytes"},
		"locked":                             {func(d string) error { return os.MkdirAll(filepath.Join(d, "lock"), 0o700) }, "is a directory"},
	} {
		config.Dir = filepath.Join(base, name)
		if err := test.do(config.Dir); err != nil {
			t.Fatal(err)
		}
		if _, err := pluginhost.New(config); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	if _, err := pluginhost.New(pluginhost.Config{Dir: base}); err == nil {
		t.Error("a host without a keeper")
	}
}

func TestAHostThatCannotBeSeenToBeGoneIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(temp(t), "r")
	for _, path := range []string{"h1/host.lock", "h2/keepers.lock"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil { // no file can be opened there
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "h3"), 0o500); err != nil {
		t.Fatal(err)
	}
	log := &logged{}
	h, err := pluginhost.New(pluginhost.Config{Dir: dir, Keeper: keeper, Log: slog.New(slog.NewTextHandler(log, nil)), Greet: greet})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "h*"))
	if err != nil || len(left) != 2 || !strings.Contains(log.String(), "plugins of a host that is gone have not ended") {
		t.Errorf("left %v, %v; logged %s", left, err, log)
	}
}

// TestAHostDeletesNothingButWhatHostsHaveLeft: somebody names his own directory.
func TestAHostDeletesNothingButWhatHostsHaveLeft(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(temp(t), "r")
	for _, path := range []string{"h1/s", "home/work", "h", "h2x/notes", ".config"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "letter"), "dear", 0o600)
	write(t, filepath.Join(dir, "h3"), "a file", 0o600)
	if err := os.Symlink("home", filepath.Join(dir, "h4")); err != nil {
		t.Fatal(err)
	}
	h, err := pluginhost.New(pluginhost.Config{Dir: dir, Keeper: keeper, Log: slog.New(slog.DiscardHandler), Greet: greet})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"h1": false, "home/work": true, "h": true, "h2x/notes": true, ".config": true, "letter": true, "h3": true, "h4": true} {
		if _, err := os.Lstat(filepath.Join(dir, path)); (err == nil) != want {
			t.Errorf("%s is there: %t, %v", path, err == nil, err)
		}
	}
}
