package pgembed

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// busy starts a session that computes without a pause and one that sleeps, and
// returns when both are at it. What they say about their end is of no interest.
func busy(t *testing.T, url string) {
	t.Helper()
	psql := psqlPath(t)
	for _, sql := range []string{"select count(*) from generate_series(1, 1000000000000)", "select pg_sleep(600)"} {
		cmd := exec.Command(psql, "-X", "-c", sql, url)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	eventually(t, "two sessions are busy", func() bool {
		return query(t, url, "select count(*) from pg_stat_activity where state = 'active' and pid <> pg_backend_pid() and query like 'select%'") == "2"
	})
}

func kill9(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

func TestKilledOwner(t *testing.T) {
	t.Parallel()

	t.Run("TakesPostgresAndBusyBackendsWithIt", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS != "linux" {
			t.Skip("needs the parent-death signal")
		}
		data := filepath.Join(newDir(t), "pg")
		cmd, _, url := readyHelper(t, helperConfig{DataDir: data})
		query(t, url, "create table t as select 42 as n")
		busy(t, url)
		if got := len(postgresUnder(data)); got < 5 {
			t.Fatalf("%d processes of Postgres before the kill", got)
		}
		began := time.Now()
		kill9(t, cmd)
		eventually(t, "no process of Postgres is left", func() bool { return len(postgresUnder(data)) == 0 })
		t.Logf("all gone after %s", time.Since(began))

		s := setup(t, Config{DataDir: data})
		if got := query(t, s.URL(""), "select n from t"); got != "42" {
			t.Errorf("n = %q", got)
		}
	})

	t.Run("OrphanIsStoppedByTheNextStart", func(t *testing.T) {
		t.Parallel()
		data := filepath.Join(newDir(t), "pg")
		cmd, orphan, url := readyHelper(t, helperConfig{DataDir: data, Outlive: true})
		query(t, url, "create table t as select 42 as n")
		busy(t, url)
		kill9(t, cmd)
		if !alive(orphan) {
			t.Fatal("there is no orphan to stop")
		}
		s := setup(t, Config{DataDir: data})
		if inspect(orphan, data).state == statePostmaster {
			t.Error("the orphan lives on")
		}
		if got := query(t, s.URL(""), "select n from t"); got != "42" {
			t.Errorf("n = %q", got)
		}
	})

	t.Run("BackendsOfAKilledPostmasterAreWaitedFor", func(t *testing.T) {
		t.Parallel()
		data := filepath.Join(newDir(t), "pg")
		cmd, orphan, url := readyHelper(t, helperConfig{DataDir: data, Outlive: true})
		busy(t, url)
		kill9(t, cmd)
		if err := syscall.Kill(orphan, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		// The computing backend does not notice; it goes while Start retries.
		timer := time.AfterFunc(time.Second, func() {
			for _, pid := range postgresUnder(data) {
				_ = exec.Command("kill", "-KILL", pid).Run()
			}
		})
		defer timer.Stop()
		began := time.Now()
		setup(t, Config{DataDir: data})
		t.Logf("started after %s", time.Since(began))
	})

	t.Run("ThrowawayIsSweptByTheNextOne", func(t *testing.T) {
		t.Parallel()
		cmd, postmaster, _ := readyHelper(t, helperConfig{Throwaway: true})
		data, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", postmaster))
		if err != nil {
			t.Skip("needs /proc")
		}
		kill9(t, cmd)
		live := setup(t, Config{Throwaway: true})
		if _, err := os.Stat(filepath.Dir(data)); err != nil {
			t.Errorf("swept while its lock file is young: %v", err)
		}
		old := time.Now().Add(-2 * youngScratch)
		if err := os.Chtimes(filepath.Join(filepath.Dir(data), "pg.lock"), old, old); err != nil {
			t.Fatal(err)
		}
		setup(t, Config{Throwaway: true})
		eventually(t, "the killed one's directory is gone", func() bool {
			_, err := os.Stat(filepath.Dir(data))
			return os.IsNotExist(err)
		})
		if got := query(t, live.URL(""), "select 1"); got != "1" {
			t.Errorf("select 1 = %q on the live one", got)
		}
	})

	t.Run("UnfinishedInitdbIsDoneAgain", func(t *testing.T) {
		t.Parallel()
		dir := newDir(t)
		data, bin := filepath.Join(dir, "pg"), filepath.Join(dir, "bin")
		fakeBinaries(t, bin, "15", `while [ "$1" != -D ]; do shift; done
mkdir "$2"; echo 15 > "$2/PG_VERSION"; exec sleep 600`)
		cmd, _ := startHelper(t, helperConfig{DataDir: data, BinDir: bin})
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		half := filepath.Join(dir, "pg.init-*", "data", "PG_VERSION")
		eventually(t, "initdb is half done", func() bool {
			found, _ := filepath.Glob(half)
			return len(found) == 1
		})
		kill9(t, cmd)

		s := setup(t, Config{DataDir: data})
		query(t, s.URL(""), "select 1")
		if left, _ := filepath.Glob(filepath.Join(dir, "pg.init-*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

func TestDataDirInUse(t *testing.T) {
	t.Parallel()

	t.Run("OfALiveAgentdIsRefusedWithItsPID", func(t *testing.T) {
		t.Parallel()
		data := filepath.Join(newDir(t), "pg")
		cmd, postmaster, url := readyHelper(t, helperConfig{DataDir: data})
		_, err := Start(t.Context(), Config{DataDir: data})
		var inUse *InUseError
		if !errors.As(err, &inUse) || inUse.PID != cmd.Process.Pid || !inUse.Agentd {
			t.Fatalf("Start = %v, want the pid %d", err, cmd.Process.Pid)
		}
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint(cmd.Process.Pid)) || !strings.Contains(err.Error(), "another agentd") {
			t.Errorf("Start = %v", err)
		}
		if !alive(postmaster) {
			t.Error("its Postgres was stopped")
		}
		query(t, url, "select 1")
	})

	t.Run("OfAPostgresStartedByHandIsRefused", func(t *testing.T) {
		t.Parallel()
		s := setup(t, Config{})
		stop(t, s)
		acct, err := chooseAccount()
		if err != nil {
			t.Fatal(err)
		}
		acct = acct.adopt(s.DataDir())
		cmd := exec.Command(filepath.Join(s.BinDir(), "postgres"), "-D", s.DataDir(), "-k", s.DataDir(), "-c", "listen_addresses=")
		cmd.Stderr = io.Discard
		cmd.SysProcAttr = childAttr(acct.credential(), 0)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGINT); _ = cmd.Wait() })
		eventually(t, "the other Postgres is ready", func() bool {
			f, ok := readPIDFile(s.DataDir())
			return ok && f.status == "ready"
		})
		_, err = Start(t.Context(), Config{DataDir: s.DataDir()})
		var inUse *InUseError
		if !errors.As(err, &inUse) || inUse.PID != os.Getpid() || inUse.Agentd {
			t.Fatalf("Start = %v, want our own pid %d", err, os.Getpid())
		}
		if inspect(cmd.Process.Pid, s.DataDir()).state != statePostmaster {
			t.Error("it was stopped")
		}
	})

	t.Run("StalePIDOfAnotherProgramIsNot", func(t *testing.T) {
		t.Parallel()
		s := setup(t, Config{})
		stop(t, s)
		acct, err := chooseAccount()
		if err != nil {
			t.Fatal(err)
		}
		// A program of the same user: on its number Postgres refuses to start.
		other := exec.Command("sleep", "600")
		other.SysProcAttr = childAttr(acct.credential(), syscall.SIGKILL)
		p, err := startProcess(other)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.signal(syscall.SIGKILL); <-p.done })
		text := fmt.Sprintf("%d\n%s\n0\n5432\n\n\n0 0\nready\n", p.pid, s.DataDir())
		if err := os.WriteFile(pidPath(s.DataDir()), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(pidPath(s.DataDir()), acct.uid, acct.gid); err != nil {
			t.Fatal(err)
		}
		setup(t, Config{DataDir: s.DataDir()})
		if inspect(p.pid, s.DataDir()).state != stateOther {
			t.Error("the other program was stopped")
		}
	})
}

func TestUnexpectedExitClosesDoneAndSaysWhy(t *testing.T) {
	t.Parallel()
	s := setup(t, Config{})
	if err := s.Err(); err != nil {
		t.Errorf("Err while running = %v", err)
	}
	if err := syscall.Kill(s.PID(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
	case <-time.After(patience):
		t.Fatal("Done stays open")
	}
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "immediate shutdown request") {
		t.Errorf("Err = %v", err)
	}
	stop(t, s)
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "immediate shutdown request") {
		t.Errorf("Err after Stop = %v", err)
	}
	setup(t, Config{DataDir: s.DataDir()})
}
