package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// poisonedAfter is how many workers in a row may die over one run, with no
// step finished in between, before the run is given up.
const poisonedAfter = 5

// Release takes a run away from a worker that is dead, and queues it again.
type Release struct {
	TenantID  string
	SessionID string
	RunID     string
	// WorkerID is the dead worker: a run that somebody else holds by now is
	// left alone.
	WorkerID string
	// Now is the log's clock, from which the delay of a run that keeps
	// killing its workers is counted.
	Now   time.Time
	Actor event.Actor
}

// ReleaseDead appends run.released for a run that a dead worker holds. That
// raises the epoch, so the worker, should it still be alive, writes nothing
// more. A run that was asked to stop ends here, and so does one whose stored
// state is broken. The first time another is queued at once; then it waits longer
// each time, and after five it fails as poisoned. It returns false if there was
// nothing to release.
func (c *Commands) ReleaseDead(ctx context.Context, cmd Release) (bool, error) {
	return c.replan(ctx, cmd.TenantID, cmd.SessionID, cmd.RunID, cmd.Actor, func(d *draft, r Run) bool {
		if r.Status != RunRunning || r.WorkerID != cmd.WorkerID {
			return false
		}
		release := event.RunReleased{
			Cause: event.ReleaseWorkerDead, WorkerID: r.WorkerID, Epoch: d.state.Epoch + 1, Ticket: r.Ticket + 1,
		}
		wait := takeoverDelay(r.Takeovers)
		if wait > 0 {
			at := cmd.Now.Add(wait).UTC().Truncate(time.Microsecond)
			release.NotBefore = &at
		}
		if r.CancelRequested {
			release.NotBefore = nil
			d.add(release)
			d.add(closing(c.NewID, d.run(), stopCancelled)...)
			d.add(event.RunCancelled{Reason: r.CancelReason})
			return true
		}
		d.add(release)
		if d.endBad(c.NewID) {
			return true
		}
		if d.run().Takeovers >= poisonedAfter {
			d.add(closing(c.NewID, d.run(), string(event.FailPoisoned))...)
			d.add(event.RunFailed{
				Reason: event.FailPoisoned,
				Error:  fmt.Sprintf("the run was given up: %d workers in a row died while they worked on it", poisonedAfter),
			})
			return true
		}
		if wait == 0 {
			d.job(release.Ticket)
		}
		return true
	})
}

// Requeue makes a new job for a queued run: one whose job was lost with its
// worker, or whose delay is over. Ticket is the ticket that the caller saw; a
// run that has moved on is left alone. One whose stored state is broken ends
// here. It returns false if there was nothing to do.
func (c *Commands) Requeue(ctx context.Context, j Job, cause string, actor event.Actor) (bool, error) {
	return c.replan(ctx, j.TenantID, j.SessionID, j.RunID, actor, func(d *draft, r Run) bool {
		if r.Status != RunQueued || r.Ticket != j.Ticket {
			return false
		}
		if d.endBad(c.NewID) {
			return true
		}
		d.add(event.RunQueued{Ticket: r.Ticket + 1, Cause: cause})
		d.job(r.Ticket + 1)
		return true
	})
}

// takeoverDelay grows with the takeovers before this one.
func takeoverDelay(before int) time.Duration {
	if before == 0 {
		return 0
	}
	return time.Second << (before - 1)
}

func (d *draft) job(ticket int64) {
	d.a.Jobs = append(d.a.Jobs, Job{
		TenantID: d.base.TenantID, SessionID: d.base.SessionID, RunID: d.scope.RunID, Ticket: ticket,
	})
}

// replan loads a run, lets plan draft what follows, and appends it; on a
// conflict it does all of that again. Of a run whose stored state is broken plan
// gets what the tables say, and the draft says so. plan returns false if there
// is nothing to do.
func (c *Commands) replan(
	ctx context.Context, tenantID, sessionID, runID string, actor event.Actor, plan func(*draft, Run) bool,
) (bool, error) {
	for {
		s, err := c.Log.Load(ctx, tenantID, sessionID, runID)
		var bad *BadStateError
		if err != nil && !errors.As(err, &bad) {
			return false, err
		}
		r, ok := s.Run(runID)
		if !ok || s.Deleted {
			return false, ErrNotFound
		}
		d := newDraft(c.NewID, s, event.Scope{SessionID: sessionID, RunID: runID, At: c.Now(), Actor: actor})
		d.bad = bad
		if !plan(d, r) {
			return false, nil
		}
		a, err := d.done()
		if err != nil {
			return false, err
		}
		if _, err = c.Log.Append(ctx, a); !errors.Is(err, ErrConflict) {
			if now := d.run(); err == nil && now.Status.Terminal() && !r.Status.Terminal() {
				c.notifyEnd(ctx, tenantID, sessionID, now)
			}
			return err == nil, err
		}
	}
}

// notifyEnd tells that a run which nobody held has ended.
func (c *Commands) notifyEnd(ctx context.Context, tenantID, sessionID string, r Run) {
	asks, done := c.inForce()
	defer done()
	notifyEnd(ctx, c.Logger, asks.Hooks, tenantID, sessionID, r)
}
