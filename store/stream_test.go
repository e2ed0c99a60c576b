package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// tries counts the appends that it passes on.
type tries struct {
	loop.Log
	n atomic.Int64
}

func (l *tries) Append(ctx context.Context, a loop.Append) (loop.Appended, error) {
	l.n.Add(1)
	return l.Log.Append(ctx, a)
}

// TestAStreamKeepsNobodyOut: an answer that comes faster than anybody can read
// where the session stands has its next deltas ready whenever the last ones are
// committed. Others get their turn all the same, a cancel above all.
func TestAStreamKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	for name, window := range map[string]time.Duration{"with the window for deltas": 0, "without": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startStore(t, storetest.New(t), store.Options{Queue: jobs{}, CommitWindow: window})
			streaming := make(chan struct{})
			b := looptest.NewBench(s, looptest.Model(func(ctx context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
				pace := time.NewTicker(100 * time.Microsecond) // a model that is very fast
				defer pace.Stop()
				for n := 0; ctx.Err() == nil && yield(looptest.Text("a word "), nil); n++ {
					if n == 100 {
						close(streaming)
					}
					<-pace.C
				}
			}))
			id := b.Session(t)
			j := b.Start(t, id, "hi")
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: looptest.NewID()}); err != nil {
					t.Error(err)
				}
			})
			<-streaming
			log := &tries{Log: s}
			b.Commands.Log = log
			const commands = 20
			for i := range commands {
				if err := b.Commands.UpdateSession(limit(t), loop.UpdateSession{TenantID: looptest.Tenant, SessionID: id, Title: new(fmt.Sprint(i)), Actor: looptest.Tester}); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Commands.CancelRun(limit(t), loop.CancelRun{TenantID: looptest.Tenant, SessionID: id, RunID: j.RunID, Actor: looptest.Tester}); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			t.Logf("%d commands took %d appends", commands+1, log.n.Load())
			if n := log.n.Load(); n > 10*commands {
				t.Errorf("%d commands took %d appends", commands+1, n)
			}
			if r := b.Run(t, j); r.Status != loop.RunCancelled {
				t.Errorf("run %+v; want it cancelled", r)
			}
		})
	}
}
