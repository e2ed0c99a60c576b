package loop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestWhoLosesTheClaimAsksNobodyElse: a job that was delivered twice has two
// workers ask the same pure hooks, until the first of them has the answers
// recorded.
func TestWhoLosesTheClaimAsksNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), says("hi"))
		runs, contexts := 0, 0
		b.Use(hooks.Hooks{
			BeforeRunStart: hooks.Named("run", "1", func(ctx context.Context, _ hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
				if runs++; runs == 1 {
					<-ctx.Done()
				}
				return hooks.BeforeRunStartResult{Action: hooks.ActionContinue}, nil
			}, hooks.Pure()),
			TransformContext: hooks.Named("context", "1", func(context.Context, hooks.TransformContext) (hooks.TransformContextResult, error) {
				contexts++
				return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
			}, hooks.Pure()),
		})
		j := b.Start(t, b.Session(t), "hi")
		slow := work(t, b, j)
		synctest.Wait()
		begin := time.Now()
		if run := b.Advance(t, j); run.Status != loop.RunCompleted {
			t.Fatalf("run %+v", run)
		}
		if err := slow.wait(t); err != nil || !time.Now().Equal(begin) {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if runs != 2 || contexts != 1 {
			t.Errorf("the hooks were asked %d and %d times; want 2 and 1", runs, contexts)
		}
		checked(t, b, j.SessionID)
	})
}
