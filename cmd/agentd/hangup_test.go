package main

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestATerminalThatGoesAfterItsSignalIsGone: the signal may be heard before the
// system has taken the terminal away.
func TestATerminalThatGoesAfterItsSignalIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signals, asked := make(chan os.Signal, 1), make(chan struct{}, 1)
		stopped, ended := make(chan struct{}), make(chan struct{})
		start := time.Now()
		gone := func() bool { return time.Since(start) >= hangupTakes }
		go passHangups(stopped, signals, gone, func() { close(ended) }, asked)
		signals <- syscall.SIGHUP
		<-asked // it may as well be somebody who wants hooks loaded again
		<-ended
		close(stopped)
		if took := time.Since(start); took != hangupTakes {
			t.Errorf("seen after %s", took)
		}
	})
}
