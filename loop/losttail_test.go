package loop_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// failover is a log whose place another one takes, which has less.
type failover struct {
	loop.Log
	other atomic.Pointer[looptest.Log]
}

func (l *failover) Append(ctx context.Context, a loop.Append) (loop.Appended, error) {
	if o := l.other.Load(); o != nil {
		return o.Append(ctx, a)
	}
	return l.Log.Append(ctx, a)
}

func (l *failover) Load(ctx context.Context, tenantID, sessionID, runID string) (loop.State, error) {
	if o := l.other.Load(); o != nil {
		return o.Load(ctx, tenantID, sessionID, runID)
	}
	return l.Log.Load(ctx, tenantID, sessionID, runID)
}

func (l *failover) Head(ctx context.Context, tenantID, sessionID string) (loop.Head, error) {
	if o := l.other.Load(); o != nil {
		return o.Head(ctx, tenantID, sessionID)
	}
	return l.Log.Head(ctx, tenantID, sessionID)
}

func (l *failover) Events(ctx context.Context, tenantID, sessionID string, after int64, limit int) ([]event.Event, error) {
	if o := l.other.Load(); o != nil {
		return o.Events(ctx, tenantID, sessionID, after, limit)
	}
	return l.Log.Events(ctx, tenantID, sessionID, after, limit)
}

// TestALogThatLostItsTailGetsTheRunBack: what was built on the lost commits is
// void, and the run goes on from what is left.
func TestALogThatLostItsTailGetsTheRunBack(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]int{"the lease is left": 4, "the lease is lost too": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				first, second := looptest.NewLog(), looptest.NewLog()
				lose := make(chan struct{})
				tries := 0
				b := looptest.NewBench(first, paced(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
					if tries++; tries > 1 {
						says("again")(ctx, req, yield)
						return
					}
					for _, s := range []string{"a", "b", "c"} {
						yield(looptest.Text(s), nil)
					}
					<-lose
					yield(looptest.Text("d"), nil)
					<-ctx.Done()
				}))
				var appends []loop.Append
				first.FailAppends(func(a loop.Append) error {
					appends = append(appends, a)
					return nil
				})
				log := &failover{Log: first}
				b.Log, b.Engine.Log, b.Commands.Log = log, log, log
				j := b.Start(t, b.Session(t), "hi")
				w := work(t, b, j)
				pause(t.Context(), time.Minute)
				synctest.Wait()
				for _, a := range appends[:keep] {
					if _, err := second.Append(t.Context(), a); err != nil {
						t.Fatal(err)
					}
				}
				log.other.Store(second)
				close(lose)
				err := w.wait(t)
				run := b.Run(t, j)
				if run.Status != loop.RunQueued || errors.Is(err, loop.ErrLeaseLost) != (keep == 2) || err != nil && keep != 2 {
					t.Errorf("returned %v, run %+v", err, run)
				}
				j.Ticket = run.Ticket
				if run = b.Advance(t, j); run.Status != loop.RunCompleted || tries != 2 {
					t.Errorf("run %+v after %d calls", run, tries)
				}
				if err := looptest.CheckLog(b.Events(t, j.SessionID)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
