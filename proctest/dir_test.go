package proctest_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/proctest"
)

const prefix = "proctest-dir-"

// age makes a directory as old as one that a sweep looks at.
func age(t *testing.T, dir string) {
	t.Helper()
	long := time.Now().Add(-2 * time.Minute)
	if err := os.Chtimes(dir, long, long); err != nil {
		t.Fatal(err)
	}
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// ending is a test that ends before the one that it is part of.
type ending struct {
	testing.TB
	end func()
}

func (e *ending) Cleanup(f func()) { e.end = f }

func TestADirectoryIsHeldAndGoesWithItsTest(t *testing.T) {
	t.Parallel()
	it := &ending{TB: t}
	dir := proctest.Dir(it, prefix)
	if err := os.Mkdir(filepath.Join(dir, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	age(t, dir)
	proctest.Sweep(os.TempDir(), prefix)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v; want a directory that all may enter", info, err)
	}
	if _, err := proctest.Hold(dir); err == nil {
		t.Error("two hold it")
	}
	it.end()
	if there(dir) {
		t.Error("it is left")
	}
	if _, err := proctest.Hold(dir); err == nil {
		t.Error("holds what is not there")
	}
}

func TestASweepTakesWhatAKilledProcessHeld(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), roleVariable+"=holder", tempVariable+"="+temp)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	dir, failed, _ := strings.Cut(strings.TrimSpace(line), " ")
	if err != nil || failed != "<nil>" {
		t.Fatalf("%q, %v", line, err)
	}
	age(t, dir)
	proctest.Sweep(temp, prefix)
	if !there(dir) {
		t.Error("swept while its owner lives")
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // it was killed
	proctest.Sweep(temp, prefix)
	if there(dir) {
		t.Error("it is left")
	}
}

func TestASweepLeavesWhatIsInUseOrNotItsOwn(t *testing.T) {
	t.Parallel()
	temp, system := t.TempDir(), t.TempDir()
	elsewhere := func(dir string) string { return filepath.Join(system, filepath.Base(dir)) }
	for name, want := range map[string]bool{
		prefix + "left": false, prefix + "left-without-lock": false,
		prefix + "young": true, prefix + "held": true, prefix + "held-inside": true, prefix + "held-elsewhere": true, "other-left": true,
	} {
		dir := filepath.Join(temp, name)
		inside, data := filepath.Join(dir, "lock"), elsewhere(dir)
		for _, d := range []string{dir, data} {
			if err := os.Mkdir(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if name != prefix+"left-without-lock" {
			if err := os.WriteFile(inside, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if name != prefix+"young" {
			age(t, dir)
		}
		if path := map[string]string{prefix + "held": dir, prefix + "held-inside": inside, prefix + "held-elsewhere": data}[name]; path != "" {
			release, err := proctest.Hold(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(release)
		}
		t.Cleanup(func() {
			if there(dir) != want || there(data) != want {
				t.Errorf("%s: there %t, its data %t, want %t", name, there(dir), there(data), want)
			}
		})
	}
	file := filepath.Join(temp, prefix+"file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	age(t, file)
	sweep := func(temp string) {
		proctest.Sweep(temp, prefix, func(dir string) (locks, left []string) {
			return []string{filepath.Join(dir, "lock"), elsewhere(dir)}, []string{elsewhere(dir)}
		})
	}
	sweep(temp)
	sweep(filepath.Join(temp, "nowhere"))
	if !there(file) {
		t.Error("swept what is no directory")
	}
}
