package loop_test

import (
	"context"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// working is a worker that advances one run in the background.
type working struct {
	id        string
	leaving   chan struct{}
	interrupt chan struct{}
	// kill ends its context: it stops at once and writes nothing more.
	kill context.CancelFunc
	done chan error
}

// work begins to advance j under a fresh worker id.
func work(t testing.TB, b *looptest.Bench, j loop.Job) *working {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	w := &working{
		id: looptest.NewID(), leaving: make(chan struct{}), interrupt: make(chan struct{}), kill: kill, done: make(chan error, 1),
	}
	go func() {
		defer kill()
		w.done <- b.Engine.Advance(ctx, j, loop.Holder{WorkerID: w.id, Leaving: w.leaving, Interrupt: w.interrupt})
	}()
	return w
}

// wait returns how Advance ended.
func (w *working) wait(t testing.TB) error {
	t.Helper()
	select {
	case err := <-w.done:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("the engine does not return")
		return nil
	}
}

// handedOver lets a first worker advance j for d of the bubble's time, then
// interrupts it, and returns the job that it left.
func handedOver(t testing.TB, b *looptest.Bench, j loop.Job, d time.Duration) loop.Job {
	t.Helper()
	w := work(t, b, j)
	pause(t.Context(), d)
	close(w.interrupt)
	if err := w.wait(t); err != nil {
		t.Fatalf("interrupted worker: %v", err)
	}
	return next(t, b, j)
}

// buried releases j from a worker that is dead, and returns the job that
// follows.
func buried(t testing.TB, b *looptest.Bench, j loop.Job, workerID string) loop.Job {
	t.Helper()
	ok, err := b.Commands.ReleaseDead(t.Context(), loop.Release{
		TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, WorkerID: workerID, Now: time.Now(), Actor: looptest.Tester,
	})
	if err != nil || !ok {
		t.Fatalf("release: %v, %v", ok, err)
	}
	return next(t, b, j)
}

// next is the job with the run's current ticket, which must be in the log.
func next(t testing.TB, b *looptest.Bench, j loop.Job) loop.Job {
	t.Helper()
	j.Ticket = b.Run(t, j).Ticket
	for _, have := range b.Log.(interface{ Jobs() []loop.Job }).Jobs() {
		if have == j {
			return j
		}
	}
	t.Fatalf("there is no job %+v", j)
	return j
}

// cancel asks the run of j to stop.
func cancel(t testing.TB, b *looptest.Bench, j loop.Job) error {
	t.Helper()
	return b.Commands.CancelRun(t.Context(), loop.CancelRun{
		TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, Reason: "enough", Actor: looptest.Tester,
	})
}
