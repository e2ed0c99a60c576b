package loop

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
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
	ans := newAnswer(t.Attempt, r.engine.Agents[r.run().Agent].Prices)
	pulled := make(chan struct{})
	chunks := r.stream(callCtx, t, ans)
	go func() {
		defer close(pulled)
		ans.end(pull(callCtx, chunks, ans))
	}()
	err := r.follow(ctx, ans)
	stop()
	r.join(pulled, "model call")
	if len(r.facts) == 0 {
		// It was cut off: what hooks said of an answer of which nothing was
		// shown leads to nothing.
		r.cut, r.rulings = void(append(r.rulings, ans.takeDecisions()...)), nil
	}
	return err
}

// pull reads the model into ans. A panic in an adapter fails the call and not
// the worker.
func pull(ctx context.Context, chunks iter.Seq2[stream.Chunk, error], ans *answer) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("model panicked: %v\n%s", v, debug.Stack())
		}
	}()
	for c, err := range chunks {
		if err != nil {
			return err
		}
		full, err := ans.add(c)
		if err != nil {
			return &ModelError{Message: err.Error()}
		}
		if full {
			select {
			case <-ans.room:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// follow makes the answer durable until it ends or the run must stop.
func (r *runner) follow(ctx context.Context, ans *answer) error {
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
				r.facts = append(r.facts, r.outcome(ans)...)
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

// outcome turns the end of an answer into facts. A failed call is made again
// if nothing was shown and the policy allows it; else it fails the run and
// keeps what was shown.
func (r *runner) outcome(ans *answer) []event.Payload {
	var fail event.RunFailed
	var me *ModelError
	switch {
	case ans.refused != nil:
		fail = blockedRun(*ans.refused)
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
		r.log.Error("model call failed", "epoch", r.epoch, "seq", r.state.LastSeq, "error", r.context.withoutValues(ans.err.Error()))
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
