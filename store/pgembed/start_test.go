package pgembed

import (
	"context"
	"errors"
	"os"
	"testing"
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
}
