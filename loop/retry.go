package loop

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Retry says what becomes of a model call that failed before it showed
// anything. A call that has shown something is never made again for a failure:
// people would see two answers.
type Retry struct {
	// Attempts is how many calls of one turn may fail before the run does; 0
	// is 1. Only failures that a later call may be spared count as worth
	// another: see [ModelError].
	Attempts int
	// MaxWait caps the wait before the next call, also the one that the
	// provider asks for. 0 is [DefaultMaxWait].
	MaxWait time.Duration
}

const (
	// DefaultMaxWait is the longest wait between two attempts of a model call
	// where nothing else is said.
	DefaultMaxWait = time.Minute

	// firstWait is the wait after the first failure; each further one doubles
	// it.
	firstWait = 500 * time.Millisecond

	// slotWait is the longest wait during which a worker keeps the run. For a
	// longer one the run is handed back.
	slotWait = 3 * time.Second
)

// wait is how long to wait after a turn's nth failure. What the provider asks
// for is never undercut, but for the cap; the rest is spread, so that runs that
// failed together do not come back together.
func (p Retry) wait(n int, asked time.Duration) time.Duration {
	limit := p.MaxWait
	if limit <= 0 {
		limit = DefaultMaxWait
	}
	own := limit
	if n <= 16 {
		own = min(firstWait<<(n-1), limit)
	}
	own = own/2 + rand.N(own/2+1)
	if asked > 0 {
		return min(max(asked, own)+rand.N(asked/8+1), limit)
	}
	return own
}

// Why an attempt of a model call is void.
const (
	// discardInterrupted: its worker was stopped or died.
	discardInterrupted = "interrupted"
	// discardFailed: it failed before it showed anything, and is made again.
	discardFailed = "failed"
)

// retry is what is written when the failed call is to be made again; ok is
// false if the failure stands.
func (r *runner) retry(ans *answer, fail event.RunFailed) (p event.AssistantDiscarded, ok bool) {
	t, _ := r.run().Turn()
	policy := r.engine.Agents[r.run().Agent].Retry
	if ans.refused != nil || ans.begun() || t.Failed+1 >= policy.Attempts {
		return p, false
	}
	p = event.AssistantDiscarded{
		Attempt: t.Attempt, Reason: discardFailed, Error: fail.Error, Code: fail.Code, Status: fail.Status, Sanitized: fail.Sanitized,
	}
	var me *ModelError
	switch {
	case errors.As(ans.err, &me) && me.Retryable:
		r.retryIn = policy.wait(t.Failed+1, me.RetryAfter)
	case ans.err == nil:
		r.retryIn = policy.wait(t.Failed+1, 0)
	default:
		return p, false
	}
	at := r.engine.Now().Add(r.retryIn).UTC().Truncate(time.Microsecond)
	p.RetryAt = &at
	p.Usage, p.Cost = ans.spent()
	return p, true
}

// backOff waits before a call is made again, if one is. A wait that is too
// long for that is left to the planner, which hands the run back.
func (r *runner) backOff(ctx context.Context) error {
	if r.retryIn == 0 || r.retryIn > slotWait {
		return nil
	}
	timer := time.NewTimer(r.retryIn)
	defer timer.Stop()
	due := time.Now().Add(r.retryIn)
	r.retryIn = 0
	if err := r.record(ctx); err != nil {
		return err
	}
	for !r.run().CancelRequested {
		select {
		case <-timer.C:
			return nil
		case reached := <-r.wake:
			if err := r.woken(ctx, reached); err != nil {
				return err
			}
		case <-r.recheck:
			if err := r.catchCancel(ctx); err != nil {
				return err
			}
		case <-r.expiry:
			r.expired = true
			return nil
		case <-r.holder.Leaving:
			r.retryIn = time.Until(due) // whoever comes next waits for the rest
			return nil
		case <-r.holder.Interrupt:
			r.retryIn = time.Until(due)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// waitOn waits for what is left of the wait that an earlier worker began. Where
// that one handed the run back for it, the wait is over, by the log's clock:
// RetryAt is by another, which may be an hour ahead.
func (r *runner) waitOn(ctx context.Context) error {
	t, _ := r.run().Turn()
	if t.Status != TurnOpen || t.RetryAt == nil || r.run().ReleasedFor == event.ReleaseBackoff {
		return nil
	}
	limit := r.engine.Agents[r.run().Agent].Retry.MaxWait
	if limit <= 0 {
		limit = DefaultMaxWait
	}
	r.retryIn = min(max(t.RetryAt.Sub(r.engine.Now()), 0), limit)
	return r.backOff(ctx)
}
