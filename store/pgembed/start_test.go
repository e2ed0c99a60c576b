package pgembed

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestStart(t *testing.T) {
	t.Parallel()

	t.Run("DataSurvivesStopAndStart", func(t *testing.T) {
		t.Parallel()
		s := setup(t, Config{})
		query(t, s.URL(""), "create table t as select 42 as n")
		stop(t, s)
		again := setup(t, Config{DataDir: s.DataDir()})
		if got := query(t, again.SocketURL("postgres"), "select n from t"); got != "42" {
			t.Errorf("n = %q", got)
		}
	})

	t.Run("StoppedWithoutTimeLosesNothing", func(t *testing.T) {
		t.Parallel()
		s := setup(t, Config{})
		query(t, s.URL(""), "create table t as select 42 as n")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Stop(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Stop = %v", err)
		}
		if alive(s.PID()) {
			t.Error("the postmaster lives on")
		}
		again := setup(t, Config{DataDir: s.DataDir()})
		if got := query(t, again.SocketURL(""), "select n from t"); got != "42" {
			t.Errorf("n = %q", got)
		}
	})

	t.Run("ThrowawayLeavesNothing", func(t *testing.T) {
		t.Parallel()
		s := setup(t, Config{Throwaway: true})
		if got := query(t, s.URL(""), "show fsync"); got != "off" {
			t.Errorf("fsync = %q", got)
		}
		stop(t, s)
		for _, path := range []string{s.layout.scratch, s.layout.sockets} {
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("%s: %v", path, err)
			}
		}
	})

	t.Run("SettingsWinOverDefaults", func(t *testing.T) {
		t.Parallel()
		s := setup(t, Config{Throwaway: true, Settings: map[string]string{"Max_Connections": "33"}})
		if got := query(t, s.URL(""), "show max_connections"); got != "33" {
			t.Errorf("max_connections = %q", got)
		}
		for _, name := range []string{"Port", "listen_addresses", "a=b"} {
			if _, err := Start(t.Context(), Config{Throwaway: true, Settings: map[string]string{name: "1"}}); err == nil || !strings.Contains(err.Error(), name) && !strings.Contains(err.Error(), "port") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})

	t.Run("FailureShowsTheLogAndCanBeMended", func(t *testing.T) {
		t.Parallel()
		data := filepath.Join(newDir(t), "pg")
		_, err := Start(t.Context(), Config{DataDir: data, Settings: map[string]string{"shared_buffers": "plenty"}})
		if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers": "plenty"`) {
			t.Fatalf("Start = %v", err)
		}
		setup(t, Config{DataDir: data})
	})

	t.Run("TakenPortIsAnError", func(t *testing.T) {
		t.Parallel()
		s := setup(t, Config{Throwaway: true})
		_, err := Start(t.Context(), Config{Throwaway: true, Port: s.Port()})
		if err == nil || !strings.Contains(err.Error(), "Address already in use") {
			t.Errorf("Start = %v", err)
		}
	})

	t.Run("EndedContextLeavesNothingRunning", func(t *testing.T) {
		t.Parallel()
		dir := newDir(t)
		bin := filepath.Join(dir, "bin")
		fakeBinaries(t, bin, "15", "sleep 600")
		for limit, bin := range map[time.Duration]string{0: "", 500 * time.Millisecond: bin} { // before and during initdb
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			_, err := Start(ctx, Config{DataDir: filepath.Join(dir, "pg"), BinDir: bin})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Start = %v", err)
			}
		}
		if out, err := exec.Command("pgrep", "-f", bin+"/initdb").Output(); err == nil {
			t.Errorf("initdb runs on: %s", out)
		}
		setup(t, Config{DataDir: filepath.Join(dir, "pg")})
	})

	t.Run("ClusterOfAnotherVersionIsRefusedUntouched", func(t *testing.T) {
		t.Parallel()
		for version, advice := range map[string]string{"12": "pg_dump", "99": "install Postgres 99"} {
			data := filepath.Join(newDir(t), "pg")
			if err := os.Mkdir(data, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(version+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Start(t.Context(), Config{DataDir: data})
			if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), advice) || !strings.Contains(err.Error(), "move the directory away") {
				t.Errorf("Start = %v", err)
			}
			if entries, _ := os.ReadDir(data); len(entries) != 1 {
				t.Errorf("in the data directory: %v", entries)
			}
		}
	})
}

func TestPassword(t *testing.T) {
	t.Parallel()
	psql := psqlPath(t)
	s := setup(t, Config{})
	first := s.URL("")

	info, err := os.Stat(s.layout.password())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("password file: %v, %v", info, err)
	}
	if info, err = os.Stat(s.layout.sockets); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("socket directory: %v, %v", info, err)
	}
	for _, url := range []string{strings.Replace(first, s.password, "guess", 1), strings.Replace(first, ":"+s.password, "", 1)} {
		if out, err := exec.Command(psql, "-Xwc", "select 1", url).CombinedOutput(); err == nil {
			t.Errorf("%s let in: %s", url, out)
		}
	}

	// Without the file a new one is set, and the old one no longer works.
	stop(t, s)
	if err := os.Remove(s.layout.password()); err != nil {
		t.Fatal(err)
	}
	again := setup(t, Config{DataDir: s.DataDir(), Port: s.Port()})
	if got := query(t, again.URL(""), "select current_user"); got != "agentd" {
		t.Errorf("current_user = %q", got)
	}
	if out, err := exec.Command(psql, "-Xwc", "select 1", first).CombinedOutput(); err == nil {
		t.Errorf("the old password let in: %s", out)
	}
	log, err := os.ReadFile(again.LogFile())
	if err != nil || strings.Contains(string(log), again.password) {
		t.Errorf("the log holds the password, or %v", err)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	if err := (*Server)(nil).Stop(t.Context()); err != nil {
		t.Errorf("nil: %v", err)
	}
	s := setup(t, Config{DataDir: filepath.Join(newDir(t), "pg")})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			stop(t, s)
			select {
			case <-s.Done():
			default:
				t.Error("Stop returned before the end")
			}
		})
	}
	wg.Wait()
	stop(t, s)
	if err := s.Err(); err != nil {
		t.Errorf("Err = %v", err)
	}
	log, err := os.ReadFile(s.LogFile())
	if err != nil || !strings.Contains(string(log), "received fast shutdown request") || !strings.Contains(string(log), "database system is shut down") {
		t.Errorf("log: %s, %v", log, err)
	}
}
