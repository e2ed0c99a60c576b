// Package proctest keeps test binaries, and the processes that they start,
// from outliving whoever started them: a killed "go test" leaves nothing
// behind.
package proctest

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// parentEvery is how often the parent is looked for, since a process that is no
// longer a child is told nothing about it.
const parentEvery = 200 * time.Millisecond

// Main runs the tests of a package that starts no processes, looks for
// goroutines that were left behind, and exits.
func Main(m *testing.M) {
	DieWithParent()
	goleak.VerifyTestMain(m)
}

// WatchParent calls end, from a goroutine of its own, when the process that
// started this one is gone or when this one is told to end. end cleans up and
// should exit. The watch lasts until unwatch returns.
func WatchParent(end func(why string)) (unwatch func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	parent := os.Getppid()
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(parentEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case s := <-signals:
				end(s.String())
			case <-tick.C:
				if os.Getppid() != parent {
					end("the process that started the tests is gone")
				}
			}
		}
	})
	return func() {
		signal.Stop(signals)
		close(done)
		running.Wait()
	}
}
