package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	testDirPrefix = "agentd-test-"
	// systemData is where the data of a dev goes that Postgres cannot reach.
	systemData = "/var/lib/agentd"
	// oldTestDir is more than a test takes.
	oldTestDir = 10 * time.Minute
)

// holdDir keeps sweeps away from a directory until the function is called that
// it returns, or until this process is gone.
func holdDir(t *testing.T, dir string) (release func()) {
	t.Helper()
	f, err := os.Open(dir)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = f.Close() }
}

// isHeld reports whether a process has locked a file or directory.
func isHeld(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}

// systemDirOf is what a dev that runs in dir may leave in a directory of the
// system.
func systemDirOf(system, dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(system, hex.EncodeToString(sum[:6]))
}

// sweepTestDirs deletes what killed tests have left: their directories, and the
// data of the devs that ran there. What is younger, or in use, stays.
func sweepTestDirs(temp, system string) {
	temp, err := filepath.EvalSymlinks(temp)
	if err != nil {
		return
	}
	dirs, _ := filepath.Glob(filepath.Join(temp, testDirPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < oldTestDir {
			continue
		}
		data := systemDirOf(system, dir)
		if slices.ContainsFunc([]string{dir, filepath.Join(dir, ".agentd", "pg.lock"), filepath.Join(data, "pg.lock")}, isHeld) {
			continue
		}
		// The directory last: without it nobody would find the data.
		if os.RemoveAll(data) == nil {
			_ = os.RemoveAll(dir) // or the next sweep does
		}
	}
}

func TestASweepTakesWhatKilledTestsHaveLeft(t *testing.T) {
	t.Parallel()
	temp, system := t.TempDir(), t.TempDir()
	temp, err := filepath.EvalSymlinks(temp)
	if err != nil {
		t.Fatal(err)
	}
	file := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-oldTestDir - time.Minute)
	made := map[string]string{}
	for _, name := range []string{"left", "held", "data-held", "system-held", "young"} {
		dir := filepath.Join(temp, testDirPrefix+name)
		made[name] = dir
		file(filepath.Join(dir, ".agentd", "pg.lock"))
		file(filepath.Join(systemDirOf(system, dir), "pg.lock"))
		if name != "young" {
			if err := os.Chtimes(dir, long, long); err != nil {
				t.Fatal(err)
			}
		}
	}
	foreign := filepath.Join(temp, "agentd-else")
	file(filepath.Join(foreign, "x"))
	if err := os.Chtimes(foreign, long, long); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{made["held"], filepath.Join(made["data-held"], ".agentd", "pg.lock"), filepath.Join(systemDirOf(system, made["system-held"]), "pg.lock")} {
		t.Cleanup(holdDir(t, path))
	}
	sweepTestDirs(temp, system)
	sweepTestDirs(filepath.Join(temp, "nowhere"), system)
	there := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	for name, dir := range made {
		if want := name != "left"; there(dir) != want || there(systemDirOf(system, dir)) != want {
			t.Errorf("%s: there %v, its data %v, want %v", name, there(dir), there(systemDirOf(system, dir)), want)
		}
	}
	if !there(foreign) {
		t.Error("swept what is somebody else's")
	}
}
