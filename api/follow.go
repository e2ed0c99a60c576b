package api

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"github.com/seed-2ca4966b/agentd/api/sse"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// batch is how many events a stream holds at a time. A slow reader costs that
// and no more: the rest stays in the database until it has taken these.
const batch = 64

// askAgain is the time between two attempts of a stream to read a log that
// cannot be reached.
const askAgain = 500 * time.Millisecond

// farewellTime is how long a stream may still read when the server stops.
const farewellTime = time.Second

// follower reads a session from a cursor on, as fast as its caller takes it. It
// pulls: there is no queue that could grow, and nothing between replay and live
// that could be lost or sent twice.
type follower struct {
	*server
	tenantID  string
	sessionID string
	after     int64
	untilIdle bool
	// batch is how many events are read at a time.
	batch int
	// mayBeIdle says that the last that was seen does not rule it out.
	mayBeIdle bool
	// goal is how far it still goes when the server stops; 0 before that.
	goal int64
	// hasRead says that the log could be read once.
	hasRead  bool
	patience patience
}

var _ sse.Stream = (*follower)(nil)

// follow checks the cursor. With untilIdle and nothing to send the error is
// [sse.ErrNothingLeft].
func (s *server) follow(ctx context.Context, sessionID string, after int64, untilIdle bool) (*follower, error) {
	sessionID, err := parseID("session_id", sessionID)
	if err != nil {
		return nil, err
	}
	f := &follower{server: s, tenantID: principalOf(ctx).tenantID, sessionID: sessionID, after: after, untilIdle: untilIdle, batch: batch, mayBeIdle: true}
	head, err := s.head(ctx, f.tenantID, sessionID)
	switch {
	case err != nil:
		return nil, err
	case after > head.LastSeq:
		return nil, sse.ErrCursorAhead
	case untilIdle && f.saidAll(head):
		return nil, sse.ErrNothingLeft
	}
	return f, nil
}

// head is Feed.Head for those who may not see deleted sessions.
func (s *server) head(ctx context.Context, tenantID, sessionID string) (loop.Head, error) {
	h, err := s.Feed.Head(ctx, tenantID, sessionID)
	if err == nil && h.Deleted {
		return loop.Head{}, loop.ErrNotFound
	}
	return h, err
}

// saidAll is true as well while people are waited for: they may take days.
func (f *follower) saidAll(h loop.Head) bool {
	return f.after >= h.LastSeq && (h.ActiveRunID == "" || h.Waiting)
}

// Next implements [sse.Stream]. It outlasts a log that cannot be reached: a
// stream that ended for that would end for all at once, and look as if nothing
// were left to say. What it returns meanwhile are heartbeats.
func (f *follower) Next(ctx context.Context) ([]event.Event, error) {
	events, err := f.next(ctx)
	f.hasRead = f.hasRead || err == nil
	if !f.hasRead || !errors.Is(err, loop.ErrUnavailable) {
		return events, err
	}
	again := time.NewTimer(askAgain/2 + rand.N(askAgain))
	defer again.Stop()
	select {
	case <-again.C:
		return nil, nil
	case <-f.Stopping.Done():
		return nil, sse.ErrStopping
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *follower) next(ctx context.Context) ([]event.Event, error) {
	if f.isStopping() {
		return f.farewell(ctx)
	}
	if f.untilIdle && f.mayBeIdle {
		head, err := f.head(ctx, f.tenantID, f.sessionID)
		if err != nil {
			return nil, err
		}
		if f.saidAll(head) {
			return nil, io.EOF
		}
	}
	wait := f.patience.begin(ctx, f.Stopping, f.Heartbeat)
	events, err := f.Feed.Next(wait, f.tenantID, f.sessionID, f.after, f.batch)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case wait.Err() == nil:
		return nil, err
	case f.isStopping():
		return f.farewell(ctx)
	default:
		// Whatever the last event was, a silent session is worth a look.
		f.mayBeIdle = true
		return nil, nil
	}
	if len(events) > 0 {
		last := events[len(events)-1]
		f.after = last.Seq
		f.mayBeIdle = last.RunID == "" || leavesIdle(last.Type)
	}
	return events, nil
}

// farewell is what there is to send when the server stops: that a run has just
// ended, for instance, which may be why it can stop. A session that had come to
// rest costs no query then: there may be thousands.
func (f *follower) farewell(ctx context.Context) ([]event.Event, error) {
	if f.goal == 0 {
		if f.hasRead && f.mayBeIdle {
			return nil, sse.ErrStopping
		}
		head, err := f.head(ctx, f.tenantID, f.sessionID)
		if err != nil {
			return nil, sse.ErrStopping // the reader comes back with its cursor
		}
		f.goal = max(head.LastSeq, 1)
	}
	if f.after >= f.goal {
		return nil, sse.ErrStopping
	}
	ctx, cancel := context.WithTimeout(ctx, farewellTime)
	defer cancel()
	events, err := f.Feed.Next(ctx, f.tenantID, f.sessionID, f.after, f.batch)
	if err != nil || len(events) == 0 {
		return nil, sse.ErrStopping
	}
	f.after = events[len(events)-1].Seq
	return events, nil
}

// Close implements [sse.Stream].
func (f *follower) Close() { f.patience.end() }

func (f *follower) isStopping() bool { return f.Stopping.Err() != nil }

// leavesIdle reports whether nobody may be at work on the run behind the event.
func leavesIdle(t event.Type) bool {
	switch t {
	case event.TypeRunCompleted, event.TypeRunFailed, event.TypeRunCancelled, event.TypeRunSuspended, event.TypeApprovalDecided:
		return true
	default:
		return false
	}
}
