package observed

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// watch hands on what one request brings and says to the session what it was.
type watch struct {
	session *observe.Session
	ctx     context.Context //nolint:containedctx // of the one call that it lives for
	yield   func(stream.Chunk, error) bool

	// finish is the end of a whole answer, once it is whole; err what it broke off
	// with; stopped that the consumer wanted no more.
	finish  stream.Finish
	whole   bool
	err     error
	stopped bool
	// rejected says that the consumer did not want the answer begun. Models set it
	// from where they read.
	rejected atomic.Bool
	// returned says that the model has, and did not panic.
	returned bool
}

// over makes the call and reads its answer to the end. A panic goes on as it is.
func (w *watch) over(call func() iter.Seq2[stream.Chunk, error]) {
	defer w.end()
	call()(w.next)
	w.returned = true
}

// next hands one element on, and only then are plugins told: none of them makes it
// later.
func (w *watch) next(c stream.Chunk, err error) bool {
	at := time.Now()
	more := w.yield(c, err)
	if w.stopped {
		return more
	}
	w.stopped = !more
	if err != nil {
		w.err = err
		return more
	}
	if c.Kind == stream.KindFinish {
		w.finish, w.whole = c.Finish, true
	}
	w.session.Event(eventType(c), len(c.Text), at)
	return more
}

func (w *watch) end() {
	usage := w.finish.Usage
	if me := modelError(w.err); me != nil {
		if me.Status != 0 {
			w.session.Status(me.Status)
		}
		if !w.whole {
			usage = me.Usage
		}
	}
	w.say(observe.RawUsage{Input: observe.Int(usage.InputTokens), Output: observe.Int(usage.OutputTokens)})
}

// say says how it ended.
func (w *watch) say(usage observe.RawUsage) {
	switch {
	case !w.returned:
		w.session.Fail(observe.ErrorPanic, usage)
	case w.err != nil:
		w.session.Fail(w.class(), usage)
	case w.whole:
		w.session.Complete(completion(w.finish.Reason), usage)
	case w.ctx.Err() != nil:
		w.session.Fail(observe.ErrorCancelled, usage)
	case w.stopped:
		w.session.Fail(observe.ErrorStopped, usage)
	default:
		w.session.Fail(observe.ErrorIncomplete, usage)
	}
}

// class is what the request broke off with.
func (w *watch) class() observe.ErrorClass {
	if w.rejected.Load() {
		return observe.ErrorRejected
	}
	return errorClass(w.err, w.ctx.Err() != nil)
}

// eventType names what a chunk is. What is added later is other.
func eventType(c stream.Chunk) observe.EventType {
	switch c.Kind {
	case stream.KindToolCall:
		return observe.EventToolCall
	case stream.KindFinish:
		return observe.EventFinish
	case stream.KindEnd:
		return observe.EventOther
	case stream.KindDelta:
		switch c.Lane {
		case stream.LaneText:
			return observe.EventText
		case stream.LaneReasoning:
			return observe.EventReasoning
		case stream.LaneToolArguments:
			return observe.EventToolArguments
		}
	}
	return observe.EventOther
}

func completion(r stream.FinishReason) observe.CompletionClass {
	switch r {
	case stream.FinishStop:
		return observe.CompletionStop
	case stream.FinishLength:
		return observe.CompletionLength
	case stream.FinishToolCalls:
		return observe.CompletionToolCalls
	case stream.FinishContentFilter:
		return observe.CompletionContentFilter
	case stream.FinishUnknown:
	}
	return observe.CompletionUnknown
}
