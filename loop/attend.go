package loop

import (
	"context"
	"errors"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// errTailLost: the log has less than it had. The database failed over to a
// copy that lacked its last commits, and what was built on them is void.
var errTailLost = errors.New("the log has lost its tail")

// catchUp folds what others appended, all of it or nothing: a reader that is cut
// off in the middle has events whose decisions it does not know. A claim that
// came too late ends with epoch 0 and no facts; a lease that is gone is an error,
// as soon as it is seen.
func (r *runner) catchUp(ctx context.Context) error {
	const page = 500
	for s := r.state; ; {
		head, err := r.engine.Log.Head(ctx, r.job.TenantID, r.job.SessionID)
		if err != nil {
			return err
		}
		if head.LastSeq < s.LastSeq {
			return errTailLost
		}
		events, err := r.engine.Log.Events(ctx, r.job.TenantID, r.job.SessionID, s.LastSeq, page)
		if err != nil {
			return err
		}
		s = FoldAll(s, events)
		if r.epoch != 0 && s.Epoch != r.epoch {
			return ErrLeaseLost
		}
		// Others write decisions too, and only the head tells where the ledger
		// stands: it has to be that of the last event.
		if head.LastSeq == s.LastSeq {
			s.Ledger = head.Ledger
			r.state = s
			break
		}
	}
	switch {
	case r.epoch == 0 && !r.claimable():
		r.facts = nil
	case r.epoch == 0:
		r.facts = []event.Payload{r.claimFact()}
	}
	return nil
}

// handBack queues the run again, from what is left of the log, if this worker
// still holds it there.
func (r *runner) handBack(ctx context.Context) error {
	for {
		err := r.load(ctx)
		run := r.run()
		if err != nil || run.Status != RunRunning || run.WorkerID != r.holder.WorkerID {
			return errors.Join(ErrLeaseLost, err)
		}
		r.log.Warn("the log has lost its tail: the run is handed back", "epoch", r.state.Epoch, "seq", r.state.LastSeq)
		r.epoch, r.facts, r.rulings = r.state.Epoch, nil, nil
		d := r.draft()
		d.add(event.RunReleased{Cause: event.ReleaseShutdown, WorkerID: run.WorkerID, Epoch: r.state.Epoch + 1, Ticket: run.Ticket + 1})
		d.job(run.Ticket + 1)
		a, err := d.done()
		if err != nil {
			return err
		}
		err = r.patiently(ctx, func() error {
			_, err := r.engine.Log.Append(ctx, a)
			return err
		})
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// woken follows a value of the watch: a seq that is this runner's own work is
// no news.
func (r *runner) woken(ctx context.Context, reached int64) error {
	if reached != 0 && reached <= r.state.LastSeq {
		return nil
	}
	return r.catchCancel(ctx)
}

// catchCancel reads what others appended, above all a cancel. A log that
// cannot be read is no reason to stop, but to look again.
func (r *runner) catchCancel(ctx context.Context) error {
	r.recheck = nil
	err := r.catchUp(ctx)
	if err == nil || errors.Is(err, ErrLeaseLost) || ctx.Err() != nil {
		return err
	}
	r.log.Warn("read the log for a cancel", "epoch", r.epoch, "error", err)
	r.recheck = time.After(recheckAfter)
	return nil
}

// attend waits for ask, and follows meanwhile whether the run has to stop. ask
// must end soon after its context does.
func (r *runner) attend(ctx context.Context, ask func(context.Context) error) error {
	askCtx, stop := context.WithCancel(ctx)
	defer stop()
	asked := make(chan struct{})
	var said error // once asked is closed
	go func() {
		defer close(asked)
		said = ask(askCtx)
	}()
	// A run that was to stop before gives its hooks the time that a tool has,
	// all of them together.
	var grace <-chan time.Time
	if r.stopping() {
		if r.graceEnds.IsZero() {
			r.graceEnds = time.Now().Add(stopGrace)
		}
		t := time.NewTimer(time.Until(r.graceEnds))
		defer t.Stop()
		grace = t.C
	}
	interrupt := r.holder.Interrupt
	for void := false; !void; {
		var err error
		select {
		case <-asked:
			return said
		case x := <-r.returns:
			// That another tool ran is durable before anybody ponders on.
			err = r.heard(ctx, x)
		case <-r.news:
			r.told()
			err = r.record(ctx)
		case reached := <-r.wake:
			err = r.woken(ctx, reached)
		case <-r.recheck:
			err = r.catchCancel(ctx)
		case <-r.expiry:
			r.expired = true
		case <-interrupt:
			interrupt, void = nil, grace == nil
		case <-grace:
			void = true
		}
		if err != nil {
			stop()
			<-asked
			return err
		}
		// Who has lost the claim knows what was decided since: nobody is asked again.
		void = void || r.lost() || grace == nil && r.stopping()
	}
	stop()
	<-asked
	return errVoid
}

// stopping reports whether the run is to end, as far as is known here.
func (r *runner) stopping() bool {
	return r.run().CancelRequested || r.expired || closed(r.holder.Interrupt)
}
