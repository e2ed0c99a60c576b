package loop

import (
	"context"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// FailRun ends a run whatever state it is in.
type FailRun struct {
	TenantID  string
	SessionID string
	RunID     string
	// Reason is a sentence for people; it is required.
	Reason string
	Actor  event.Actor
	// Sanitized says that Reason was already made valid where it came in.
	Sanitized bool
}

// FailRun ends a run as failed, in one append: whether it is enqueued, queued,
// running or waiting, with a worker that is dead, that hangs or that is well.
// Where one holds it the lease is taken away first, so nothing that the worker
// still has to say is stored. A tool that was entered may have taken effect; its
// result is that its outcome is unknown, and open approvals are closed. The
// run's events need not be readable. A run that has ended is [ErrRunEnded].
//
// Prefer [Commands.CancelRun], which lets the worker stop the run in order.
func (c *Commands) FailRun(ctx context.Context, cmd FailRun) error {
	reason, sanitized := event.CleanText(cmd.Reason)
	if blank(reason) {
		return &InvalidError{Field: "reason", Problem: "is required: say for the log why the run is ended by force"}
	}
	ended := false
	_, err := c.replan(ctx, cmd.TenantID, cmd.SessionID, cmd.RunID, cmd.Actor, func(d *draft, r Run) bool {
		if ended = r.Status.Terminal(); ended {
			return false
		}
		if r.Status == RunRunning {
			d.add(event.RunReleased{Cause: event.ReleaseForced, WorkerID: r.WorkerID, Epoch: d.state.Epoch + 1, Ticket: r.Ticket + 1})
		}
		d.add(d.state.withdrawn(r)...)
		d.add(closing(c.NewID, d.run(), string(event.FailForced))...)
		d.add(event.RunFailed{
			Reason: event.FailForced, Error: event.Shorten("the run was ended by force: "+reason, 2000), Sanitized: sanitized || cmd.Sanitized,
		})
		return true
	})
	if err == nil && ended {
		return ErrRunEnded
	}
	return err
}
