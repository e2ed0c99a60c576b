package loop_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
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

// hookedLog calls before ahead of each append of the engine that uses it. It
// holds no lock meanwhile, so others may append.
type hookedLog struct {
	*looptest.Log
	before func(loop.Append)
}

func (l *hookedLog) Append(ctx context.Context, a loop.Append) (loop.Appended, error) {
	l.before(a)
	return l.Log.Append(ctx, a)
}

// hooked makes b's engine, and nobody else, call before ahead of its appends.
func hooked(b *looptest.Bench, before func(loop.Append)) {
	b.Engine.Log = &hookedLog{Log: b.Log.(*looptest.Log), before: before}
}

// has reports whether a holds an event of that type.
func has(a loop.Append, typ event.Type) bool {
	return slices.ContainsFunc(a.Events, func(e event.Event) bool { return e.Type == typ })
}

// stalls is a model that says text and then nothing more. If it obeys it ends
// with its context, else with release.
func stalls(release <-chan struct{}, text ...stream.Chunk) looptest.Model {
	return func(ctx context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		for _, c := range text {
			if !yield(c, nil) {
				return
			}
		}
		if release != nil {
			<-release
			yield(looptest.Text("too late"), nil)
			return
		}
		<-ctx.Done()
		yield(stream.Chunk{}, ctx.Err())
	}
}

// blocks is a tool that runs until its context ends, or, if release is not
// nil, until release.
func blocks(name string, release <-chan struct{}) looptest.Tool {
	return looptest.Tool{Name: name, Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
		if release != nil {
			<-release
			return loop.ToolOutput{Content: "too late"}, nil
		}
		<-ctx.Done()
		return loop.ToolOutput{}, ctx.Err()
	}}
}

// goesOn checks that the session takes another message, with a request that a
// strict provider accepts.
func goesOn(t *testing.T, b *looptest.Bench, sessionID string) {
	t.Helper()
	agent := b.Engine.Agents["demo"]
	agent.Model = strict(t, says("as you wish"))
	b.Engine.Agents["demo"] = agent
	if run := b.Advance(t, b.Start(t, sessionID, "and now?")); run.Status != loop.RunCompleted {
		t.Errorf("the next run is %+v", run)
	}
	checked(t, b, sessionID)
}
