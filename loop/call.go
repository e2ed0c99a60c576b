package loop

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// stopGrace is how long a model call or a tool that was told to stop may take
// before it is left behind. What it still says is not heard.
const stopGrace = 500 * time.Millisecond

// callModel makes the model call that model.requested announced, and makes
// what it shows durable while it arrives. It leaves the outcome in r.facts:
// none if the call was stopped.
func (r *runner) callModel(ctx context.Context) error {
	t, _ := r.run().Turn()
	r.startTurn(ctx, t.Attempt > 1)
	callCtx, stop := context.WithCancel(ctx)
	ans := newAnswer(t.Attempt, r.agent().Prices)
	pulled := make(chan struct{})
	chunks, w := r.stream(callCtx, t, ans), r.watch(t)
	go func() {
		defer close(pulled)
		w.read(callCtx, chunks, ans)
	}()
	err := r.follow(ctx, ans, w)
	stop()
	r.join(pulled, "model call")
	if len(r.facts) == 0 {
		// It was cut off: what hooks said of an answer of which nothing was
		// shown leads to nothing.
		r.cut, r.rulings = void(append(r.rulings, ans.takeDecisions()...)), nil
		r.cut = append(r.cut, r.observed(t, ans.takeReports(), false)...)
	}
	return err
}

// pull reads the model into what takes its chunks. A panic in an adapter fails the
// call and not the worker.
func pull(ctx context.Context, chunks iter.Seq2[stream.Chunk, error], take func(stream.Chunk) (full bool, err error), room <-chan struct{}) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
	}()
	for c, err := range chunks {
		if err != nil {
			return err
		}
		full, err := take(c)
		switch {
		case errors.Is(err, errNotOpened), errors.Is(err, errWentOn):
			return &ModelError{Message: err.Error()}
		case err != nil:
			return err
		}
		if full {
			select {
			case <-room:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// follow makes the answer durable until it ends or the run must stop.
func (r *runner) follow(ctx context.Context, ans *answer, w *watch) error {
	look, stop := w.looks()
	defer stop()
	for {
		select {
		case <-ans.ready:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			deltas, done := ans.take()
			r.facts = deltas
			r.rulings = append(r.rulings, ans.takeDecisions()...)
			if done {
				r.conclude(ans)
				return nil
			}
			if err := r.record(ctx); err != nil {
				return err
			}
			crash(PointModelStreaming)
		case reached := <-r.wake:
			if err := r.woken(ctx, reached); err != nil {
				return err
			}
		case <-r.recheck:
			if err := r.catchCancel(ctx); err != nil {
				return err
			}
		case <-look:
			if r.leaveObservers(ans, w) {
				return nil
			}
		case <-r.expiry:
			r.expired = true
			return nil
		case <-r.holder.Interrupt:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if r.run().CancelRequested {
			return nil
		}
	}
}

// leaveObservers ends an answer whose observers hang, if they do.
func (r *runner) leaveObservers(ans *answer, w *watch) bool {
	in, yes := w.hangs()
	if !yes {
		return false
	}
	s := w.hung(in)
	if !ans.leave(s) {
		return false // it has come back after all
	}
	r.log.Error("left behind: an observer does not come back", "observer", s.Observer, "epoch", r.epoch, "seq", r.state.LastSeq)
	r.facts, _ = ans.take()
	r.rulings = append(r.rulings, ans.takeDecisions()...)
	r.rulings = append(r.rulings, r.hung(in, ans.stop)...)
	r.conclude(ans)
	return true
}

// conclude adds how an answer ended to the facts, and what its observers did to the
// rulings.
func (r *runner) conclude(ans *answer) {
	t, _ := r.run().Turn()
	r.facts = append(r.facts, r.outcome(ans)...)
	r.rulings = append(r.rulings, r.observed(t, ans.takeReports(), true)...)
}

// outcome turns the end of an answer into facts. A failed call is made again
// if nothing was shown and the policy allows it; else it fails the run and
// keeps what was shown.
func (r *runner) outcome(ans *answer) []event.Payload {
	var fail event.RunFailed
	var me *ModelError
	switch {
	case ans.refused != nil:
		fail = blockedRun(*ans.refused)
	case ans.stop != nil:
		return r.stoppedBy(ans, *ans.stop)
	case ans.err == nil && ans.finish != nil:
		return ans.completed(r.engine.NewID)
	case ans.err == nil:
		fail = event.RunFailed{Reason: event.FailIncomplete, Error: "the model's answer ended in the middle: the connection closed before a finish reason came"}
	case errors.As(ans.err, &me):
		fail = event.RunFailed{Reason: event.FailModel}
		text, changed := event.CleanText(r.context.withoutValues(me.Message))
		code, changedCode := event.CleanText(r.context.withoutValues(me.Code))
		fail.Error, fail.Code, fail.Status = event.Shorten(text, 2000), event.Shorten(code, 200), me.Status
		fail.Sanitized = changed || changedCode
	default:
		fail = event.RunFailed{Reason: event.FailModel, Error: "the model call failed; the worker's log has the cause"}
	}
	if ans.err != nil && ans.refused == nil {
		r.log.Error("model call failed", "epoch", r.epoch, "seq", r.state.LastSeq, "code", fail.Code, "error", r.context.withoutValues(ans.err.Error()))
	}
	if again, ok := r.retry(ans, fail); ok {
		return []event.Payload{again}
	}
	t, _ := r.run().Turn()
	cut := stopped(r.engine.NewID, t.Attempt, ans.shown(), string(fail.Reason))
	cut.Usage, cut.Cost = ans.spent()
	return []event.Payload{cut, fail}
}

// join waits for a goroutine that was told to stop.
func (r *runner) join(done <-chan struct{}, what string) {
	t := time.NewTimer(stopGrace)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		r.log.Error("left behind: it does not stop when told to", "what", what, "epoch", r.epoch, "after", stopGrace)
	}
}
