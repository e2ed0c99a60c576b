package loop

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// watch is what observes one attempt of a model call. What a chunk says before the
// observers have seen it is known to the goroutine that reads the provider and to
// nobody else.
type watch struct {
	set  *stream.Set
	call stream.Call
	// began is when the call was, for [stream.Chunk].At.
	began time.Time
	// attempt is set once ready is; nil then means that nobody observes such calls.
	attempt atomic.Pointer[stream.Attempt]
	ready   atomic.Bool
	// chunk is the number of the provider's last chunk.
	chunk atomic.Int64
	// stuck is for how long the observers had been at work when that was last looked
	// at. look says when it is time again.
	stuck time.Duration
	look  *time.Timer
}

// lookEvery is the time between two looks at whether observers hang, as long as they
// were not found at work: there is one for each answer that is going on.
const lookEvery = time.Second

// watch returns what observes the call of t, nil where there are no observers.
func (r *runner) watch(t Turn) *watch {
	if r.asks.Observers == nil {
		return nil
	}
	return &watch{set: r.asks.Observers, began: time.Now(), call: stream.Call{
		Class: stream.ClassMain, Attempt: t.Attempt, Model: t.Model, TenantID: r.job.TenantID, Agent: r.run().Agent,
	}}
}

// read reads the model into ans, by way of the observers. That ans has ended is said
// whatever the model and the observers do, to end this goroutine too.
func (w *watch) read(ctx context.Context, chunks iter.Seq2[stream.Chunk, error], ans *answer) {
	err := errAbandoned
	defer func() { ans.end(err) }()
	attempt := w.begin()
	if attempt == nil {
		err = pull(ctx, chunks, ans.add, ans.room)
		return
	}
	defer func() { err = observed(ctx, attempt, ans, err) }()
	defer func() {
		if said := err; said != nil && attempt.Stopped() == nil {
			err = errAbandoned // which it is where nobody comes back from there
			err = cleaned(attempt, said)
		}
	}()
	err = pull(ctx, chunks, func(c stream.Chunk) (bool, error) { return w.pass(ctx, attempt, c, ans) }, ans.room)
}

// begin makes the observers, nil for none.
func (w *watch) begin() *stream.Attempt {
	if w == nil {
		return nil
	}
	attempt := w.set.Begin(w.call)
	w.attempt.Store(attempt)
	w.ready.Store(true)
	return attempt
}

// observed tells the observers how the answer has ended, which was with err, and ans
// what they did. It returns what is left of err.
func observed(ctx context.Context, attempt *stream.Attempt, ans *answer, err error) error {
	how := stream.EndFinished
	stopped := attempt.Stopped()
	switch {
	case stopped != nil:
		if errors.Is(err, errAbandoned) {
			ans.stopped(*stopped, stream.Usage{})
		}
		how, err = stream.EndStopped, nil
	case ctx.Err() != nil:
		how = stream.EndCancelled
	case err != nil || !ans.finished():
		how = stream.EndFailed
	}
	ans.observed(attempt.End(how))
	return err
}

// cleaned is err without what observers take out of answers: a provider may repeat
// in an error what it has said, or what it was asked.
func cleaned(attempt *stream.Attempt, err error) error {
	clean := func(text, otherwise string) string {
		if kept, ok := attempt.Clean(text); ok {
			return kept
		}
		return otherwise
	}
	const withheld = "the model call failed; what the provider says of it cannot be redacted, and is not kept"
	var me *ModelError
	if !errors.As(err, &me) {
		return errors.New(clean(err.Error(), withheld))
	}
	shown := *me
	shown.Message, shown.Code, shown.Err = clean(me.Message, withheld), clean(me.Code, ""), nil
	return &shown
}

var (
	// errStopped ends the reading of an answer that an observer has stopped.
	errStopped = errors.New("an observer stopped the answer")
	errWentOn  = errors.New("the model's answer went on behind its end")
	// errAbandoned: the goroutine was ended in the place of returning.
	errAbandoned = errors.New("the model, or an observer, ended the goroutine in which the answer was read")
)

// pass has the observers see c, and ans what they made of it.
func (w *watch) pass(ctx context.Context, attempt *stream.Attempt, c stream.Chunk, ans *answer) (full bool, err error) {
	if ans.finished() {
		return false, errWentOn // which they would not be shown
	}
	c.At = time.Since(w.began)
	w.chunk.Add(1)
	out := attempt.Push(c)
	if out.Stop != nil {
		ans.stopped(*out.Stop, c.Finish.Usage)
		return false, errStopped
	}
	if full, err = ans.takeIn(out); err == nil && out.Pause > 0 {
		err = sleep(ctx, out.Pause)
	}
	return full, err
}

// looks is when to look whether the observers hang, with hangs; stop frees it. A nil
// watch never is.
func (w *watch) looks() (due <-chan time.Time, stop func()) {
	if w == nil {
		return nil, func() {}
	}
	w.look = time.NewTimer(lookEvery)
	return w.look.C, func() { w.look.Stop() }
}

// hangs reports whether an observer does not come back, and which, and arms the next
// look. That it was found at work twice, and longer each time, keeps a machine that
// stood still from looking like it.
func (w *watch) hangs() (in stream.Asked, yes bool) {
	attempt, stuck, limit := w.attempt.Load(), time.Duration(0), stream.DefaultAttemptTime
	switch {
	case attempt != nil:
		stuck, in = attempt.Stuck(), attempt.Asked()
		if in.Registration != nil {
			limit = in.Registration.AttemptTime
		}
	case !w.ready.Load():
		stuck = time.Since(w.began)
	}
	before := w.stuck
	w.stuck = stuck
	if stuck > 0 {
		w.look.Reset(stream.DefaultAttemptTime)
	} else {
		w.look.Reset(lookEvery)
	}
	return in, limit > 0 && before > 0 && stuck > limit && stuck >= before+stream.DefaultAttemptTime/2
}

// hung is how an answer ends whose observers hang.
func (w *watch) hung(in stream.Asked) stream.Stopped {
	s := stream.Stopped{Observer: "unknown", Policy: stream.StopFail, Reason: "An observer did not come back, so the answer was stopped.", Failed: true, Chunk: int(w.chunk.Load())}
	if in.Registration != nil {
		s.Observer = in.Registration.ID
		s.Reason = fmt.Sprintf("The observer %s did not come back (%s), so the answer was stopped.", s.Observer, hooks.OutcomeTimeout)
	}
	return s
}
