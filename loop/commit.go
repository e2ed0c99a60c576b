package loop

import (
	"context"
	"errors"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// commit appends the facts together with what the next step wants written.
func (r *runner) commit(ctx context.Context) (step, error) {
	for {
		d := r.draft()
		p := r.planner()
		st := p.next(d.state, d.run())
		turn, _ := d.run().Turn()
		if len(r.facts) > 0 && r.insists(st.gates, turn.Calls) {
			// A hook may take long, or take the process down: what it is asked
			// about has to be there afterwards, under the same ids. Unless it has
			// said that it does neither: see [hooks.Pure].
			if err := r.record(ctx); err != nil || r.lost() {
				return step{}, err
			}
			continue
		}
		r.endTurns(ctx, d.run(), st.write)
		err := r.pass(ctx, d, &st, p.agent)
		if errors.Is(err, errVoid) {
			if r.lost() {
				return step{}, nil // while hooks were asked about a run that was not claimed yet
			}
			continue
		}
		if err != nil {
			return step{}, err
		}
		if st.release && d.run().NotBefore == nil {
			d.job(d.run().Ticket)
		}
		if len(d.a.Events) == 0 && d.err == nil {
			return st, nil
		}
		again, err := r.append(ctx, d)
		if err != nil || r.lost() {
			return step{}, err
		}
		if !again {
			return st, nil
		}
	}
}

// record makes the facts durable without planning a step.
func (r *runner) record(ctx context.Context) error {
	for len(r.facts) > 0 {
		if _, err := r.append(ctx, r.draft()); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) draft() *draft {
	d := newDraft(r.engine.NewID, r.state, event.Scope{
		SessionID: r.job.SessionID, RunID: r.job.RunID, At: r.engine.Now(),
		Actor: event.System("worker:" + r.holder.WorkerID),
	})
	d.worker, d.epoch, d.random = r.holder.WorkerID, r.epoch, r.engine.Random
	if n := len(r.facts) - 1; n >= 0 && len(r.rulings) > 0 && r.facts[n].EventType() == event.TypeRunFailed {
		d.add(r.facts[:n]...)
		d.end(r.rulings, r.facts[n])
	} else {
		d.add(r.facts...)
		if r.epoch == 0 {
			d.epoch = d.run().Epoch // decisions in the append of the claim are made under it
		}
		d.decide(r.rulings)
	}
	d.a.Epoch = r.epoch
	d.a.Deltas = onlyDeltas(r.facts) && len(r.rulings) == 0
	return d
}

// append sends d. On success the facts are durable. On a conflict it folds in
// what was appended and returns true: draft again.
func (r *runner) append(ctx context.Context, d *draft) (again bool, err error) {
	a, err := d.done()
	if err != nil {
		return false, err
	}
	tries := 0
	err = r.patiently(ctx, func() error {
		tries++
		_, err := r.engine.Log.Append(ctx, a)
		return err
	})
	if errors.Is(err, ErrConflict) {
		return true, r.patiently(ctx, func() error { return r.catchUp(ctx) })
	}
	if err == nil && tries > 1 {
		err = r.patiently(ctx, func() error { return r.stillHeld(ctx, d.state) })
	}
	if err != nil {
		return false, err
	}
	r.state = d.state
	r.epoch = r.run().Epoch
	r.facts, r.rulings, r.cut, r.asked = nil, nil, nil, nil
	clear(r.said)
	if r.run().Takeovers == 0 {
		r.rejoin() // it has finished a step
	}
	return false, nil
}

// stillHeld says whether what an append has led to is what is now. One that was
// sent again may have gone through long ago, and the run may have been taken away
// since: what was to follow, a tool above all, is not this worker's to do.
func (r *runner) stillHeld(ctx context.Context, led State) error {
	head, err := r.engine.Log.Head(ctx, r.job.TenantID, r.job.SessionID)
	if err == nil && head.Epoch != led.Epoch {
		return ErrLeaseLost
	}
	return err
}

// patiently asks the log the same thing again while it cannot be reached,
// until ctx ends: an outage costs a run time and nothing else.
func (r *runner) patiently(ctx context.Context, ask func() error) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := ask()
		if !errors.Is(err, ErrUnavailable) {
			return err
		}
		r.log.Warn("ask the log again", "epoch", r.epoch, "seq", r.state.LastSeq, "error", err)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func onlyDeltas(payloads []event.Payload) bool {
	for _, p := range payloads {
		if p.EventType() != event.TypeAssistantDelta {
			return false
		}
	}
	return len(payloads) > 0
}
