package loop

import (
	"context"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// RetryRun asks for a failed run to be taken up again.
type RetryRun struct {
	TenantID  string
	SessionID string
	RunID     string
	Actor     event.Actor
}

// RetriedRun is the answer to [RetryRun].
type RetriedRun struct {
	// Seq is the seq of the failure: watch from there.
	Seq int64
	// Repeated says that the run was under way again already and nothing was
	// done.
	Repeated bool
}

// RetryRun queues a run that has failed, as the same run. It goes on where it
// failed: turns that were finished are kept, an answer that was cut off is
// replaced by that of a new turn, and no tool is run again. A session with
// another active run refuses it with a [BusyError]; a run that has not failed,
// that a check refused, or that the conversation has left behind, is a
// [RetryError]. Asking again for what is under way is no error. A run that a
// limit of its agent ended fails again, unless the limit was raised.
func (c *Commands) RetryRun(ctx context.Context, cmd RetryRun) (RetriedRun, error) {
	var out RetriedRun
	err := c.retry(ctx, cmd.TenantID, cmd.SessionID, func(h Head) (Append, error) {
		s, err := c.Log.Load(ctx, cmd.TenantID, cmd.SessionID, cmd.RunID)
		if err != nil {
			return Append{}, err
		}
		r, _ := s.Run(cmd.RunID)
		switch {
		case r.Status.Active() && r.Retries > 0:
			out = RetriedRun{Seq: r.RetriedFrom, Repeated: true}
			return Append{}, nil
		case h.ActiveRunID != "":
			return Append{}, &BusyError{ActiveRunID: h.ActiveRunID}
		case h.LastSeq != s.LastSeq:
			return Append{}, ErrConflict // the head is of another moment
		}
		if err := refuseRetry(h, r); err != nil {
			return Append{}, err
		}
		out = RetriedRun{Seq: r.EndedSeq}
		d := newDraft(c.NewID, s, event.Scope{SessionID: h.SessionID, RunID: r.ID, At: c.Now(), Actor: cmd.Actor})
		if t, _ := r.Turn(); t.Status == TurnStopped && s.messageIndex(t.MessageID) >= 0 {
			d.add(event.MessagesReplaced{FromMessageID: t.MessageID, MessageIDs: []string{t.MessageID}})
		}
		d.add(event.RunQueued{Ticket: r.Ticket + 1, Cause: event.QueuedForRetry})
		d.job(r.Ticket + 1)
		return d.done()
	})
	if err != nil {
		return RetriedRun{}, err
	}
	return out, nil
}

func refuseRetry(h Head, r Run) error {
	problem := ""
	switch {
	case r.Status != RunFailed:
		problem = "it is " + string(r.Status) + ", and only a failed run can be"
	case r.Reason == string(event.FailBlocked):
		problem = "a check refused it, and that decision stands: start a new run instead"
	case r.RolledBack:
		problem = "its messages have left the conversation: start a new run instead"
	case h.LastRunID != r.ID:
		problem = "the conversation has gone on without it: start a new run instead"
	default:
		return nil
	}
	return &RetryError{RunID: r.ID, Problem: problem}
}
