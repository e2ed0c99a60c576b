package hooks_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// TestAHookThatWaitsForItsTurnSaysSo: the ledger has that time, however often it
// waits, also of a hook inside of one, and of one that waited in vain.
func TestAHookThatWaitsForItsTurnSaysSo(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	waits := func(ctx context.Context, d time.Duration) {
		done := hooks.Queued(ctx)
		defer done()
		time.Sleep(d) //nolint:forbidigo // time is fake
		done()
	}
	works := func(ctx context.Context, d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	twice := func(ctx context.Context, _ call) (callResult, error) {
		waits(ctx, 10*time.Millisecond)
		works(ctx, 20*time.Millisecond)
		waits(ctx, 5*time.Millisecond)
		return callResult{Action: hooks.ActionContinue}, nil
	}
	inVain := func(ctx context.Context, _ call) (callResult, error) {
		works(ctx, 30*time.Millisecond)
		defer hooks.Queued(ctx)()
		<-ctx.Done()
		return callResult{}, ctx.Err()
	}
	atOnce := func(ctx context.Context, _ call) (callResult, error) {
		first, second := hooks.Queued(ctx), hooks.Queued(ctx)
		works(ctx, 10*time.Millisecond)
		first()
		works(ctx, 10*time.Millisecond)
		second()
		return callResult{Action: hooks.ActionContinue}, nil
	}
	for name, test := range map[string]struct {
		hook    callHook
		queue   time.Duration
		latency time.Duration
	}{
		"not at all":    {continues(), 0, 0},
		"twice":         {twice, 15 * time.Millisecond, 35 * time.Millisecond},
		"in vain":       {inVain, limit - 30*time.Millisecond, limit},
		"twice at once": {atOnce, 20 * time.Millisecond, 20 * time.Millisecond},
		"inside":        {hooks.Named("inner", "1", twice), 15 * time.Millisecond, 35 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, ds := ask(t, hooks.Named("h", "1", test.hook, hooks.TimeLimit(limit)), zone("-"))
				expect(t, "times", []time.Duration{ds[0].Queue, ds[0].Latency}, []time.Duration{test.queue, test.latency})
			})
		})
	}
	hooks.Queued(t.Context())() // nobody asks how long
}

// TestWaitingForATurnIsBesideTheTimeLimit where a hook declares so: its deadline in the
// ledger stays what one call may take.
func TestWaitingForATurnIsBesideTheTimeLimit(t *testing.T) {
	t.Parallel()
	const limit, queue = 100 * time.Millisecond, 50 * time.Millisecond
	after := func(d time.Duration) callHook {
		return func(ctx context.Context, _ call) (callResult, error) {
			select {
			case <-time.After(d):
				return callResult{Action: hooks.ActionContinue}, nil
			case <-ctx.Done():
				return callResult{}, ctx.Err()
			}
		}
	}
	for took, want := range map[time.Duration]hooks.Outcome{
		limit + queue - time.Millisecond: hooks.OutcomeOK, limit + queue + time.Millisecond: hooks.OutcomeTimeout,
	} {
		synctest.Test(t, func(t *testing.T) {
			_, ds := ask(t, hooks.Named("h", "1", after(took), hooks.TimeLimit(limit), hooks.QueueLimit(queue)), zone("-"))
			expect(t, "decision", []any{ds[0].Outcome, ds[0].Deadline}, []any{want, limit})
		})
	}
}
