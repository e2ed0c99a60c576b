package loop

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// BadStateError says where what is stored of a run breaks off. It unwraps to
// [ErrBadState].
type BadStateError struct {
	// Seq is that of the event, or of the place of the message.
	Seq int64
	// Problem is half a sentence for people, without anything that was said.
	Problem string
}

// Error names the place and the problem.
func (e *BadStateError) Error() string {
	return fmt.Sprintf("the stored state of the run is broken at seq %d: %s", e.Seq, e.Problem)
}

// Unwrap returns [ErrBadState].
func (e *BadStateError) Unwrap() error { return ErrBadState }

// FoldRun folds the events of one run onto its session, as [Log.Load] needs it:
// where [Fold] passes over what it cannot read or what the tables refuse, it
// returns a [BadStateError]. To go on with what is left would do again what was
// done, or leave out what was decided. A type that this binary does not know is
// passed over, unless the event says that it is required.
func FoldRun(s State, events []event.Event) (State, error) {
	for _, e := range events {
		p, err := event.Decode(e)
		if err != nil {
			return s, &BadStateError{Seq: e.Seq, Problem: fmt.Sprintf("the payload of %s cannot be read", e.Type)}
		}
		if u, ok := p.(event.Unknown); ok && u.Required() {
			return s, &BadStateError{Seq: e.Seq, Problem: fmt.Sprintf("%s is required to be understood, and this version does not know it", event.Shorten(string(e.Type), 80))}
		}
		replaced, ok := p.(event.MessagesReplaced)
		switch {
		case ok && !s.neverBegins(replaced):
			// It names messages of other runs, which are not there. The
			// conversation is read as it is now.
			s.LastSeq = max(s.LastSeq, e.Seq)
		case allows(s, e, p) != nil:
			return s, &BadStateError{Seq: e.Seq, Problem: fmt.Sprintf("%s does not follow from the events before it", e.Type)}
		default:
			s = s.after(e, p)
		}
	}
	return s, nil
}

// endBad ends the run of d if its stored state is broken, and reports whether
// it is.
func (d *draft) endBad(newID func() string) bool {
	if d.bad == nil {
		return false
	}
	d.add(closing(newID, d.run(), string(event.FailBadState))...)
	d.add(event.RunFailed{Reason: event.FailBadState, Error: d.bad.Error()})
	return true
}

// endBadRun ends the run whose job this is: whoever takes it up comes to the
// same. Without a claim there is no lease, and nobody works on it.
func (r *runner) endBadRun(ctx context.Context) error {
	e := r.engine
	asks, done := e.inForce()
	defer done()
	c := &Commands{Log: e.Log, Hooks: asks.Hooks, NewID: e.NewID, Now: e.Now, Logger: e.Logger}
	return r.patiently(ctx, func() error {
		_, err := c.replan(ctx, r.job.TenantID, r.job.SessionID, r.job.RunID, event.System("worker:"+r.holder.WorkerID), func(d *draft, run Run) bool {
			ends := run.Status == RunQueued && run.Ticket == r.job.Ticket && d.endBad(e.NewID)
			if ends {
				r.log.Error("the run is ended", "error", d.bad)
			}
			return ends
		})
		if errors.Is(err, ErrNotFound) {
			return nil // deleted in the meantime
		}
		return err
	})
}
