package pluginhost_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
)

func TestAPluginWithoutAProgramIsTold(t *testing.T) {
	t.Parallel()
	for want, does := range map[string]func(program string) error{
		"there is no program":           os.Remove,
		"may not be executed: chmod +x": func(program string) error { return os.Chmod(program, 0o644) },
		"run is no program": func(program string) error {
			if err := os.Remove(program); err != nil {
				return err
			}
			return os.Mkdir(program, 0o755)
		},
	} {
		root := roots(t, "p")[0]
		path := install(t, root, "a", "")
		bundles, _ := pluginhost.Discover([]string{root})
		if err := bundles[0].Check(false); err != nil {
			t.Fatal(err)
		}
		if err := does(filepath.Join(path, "run")); err != nil {
			t.Fatal(err)
		}
		if err := bundles[0].Check(false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the check says %v; want %s", err, want)
		}
	}
}

// TestADirectoryThatNoHostCanUseIsTold and nothing is made in one that can be used.
func TestADirectoryThatNoHostCanUseIsTold(t *testing.T) {
	t.Parallel()
	base := temp(t)
	file := filepath.Join(base, "file")
	write(t, file, "", 0o600)
	for name, mode := range map[string]os.FileMode{"mine": 0o700, "open": 0o755} {
		if err := os.Mkdir(filepath.Join(base, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]string{
		filepath.Join(base, "mine"):                  "",
		filepath.Join(base, "new", "er"):             "",
		filepath.Join(base, "open"):                  "mode 0700",
		file:                                         "is no directory",
		filepath.Join(file, "x"):                     "not a directory",
		filepath.Join(base, strings.Repeat("x", 60)): "longer than 50 bytes",
	} {
		err := pluginhost.CheckDir(dir)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", dir, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(base, "new")); !os.IsNotExist(err) {
		t.Error("the directory was made")
	}
}
