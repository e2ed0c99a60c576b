package api

import (
	"context"
	"io"

	"github.com/seed-2ca4966b/agentd/api/sse"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// runFollower is a follower that shows the events of one run and ends with its
// last one.
type runFollower struct {
	*follower
	runID string
	ended bool
}

var _ sse.Stream = (*runFollower)(nil)

// openRunSSE follows a run for the event stream. Behind the last event of the
// run that the reader wants the error is [sse.ErrNothingLeft].
func (s *server) openRunSSE(ctx context.Context, runID string, q sse.Query) (sse.Stream, error) {
	keep, err := parseFilter(q.Types, q.Channel)
	if err != nil {
		return nil, err
	}
	if runID, err = parseID("run_id", runID); err != nil {
		return nil, err
	}
	tenantID := principalOf(ctx).tenantID
	run, err := s.Reader.GetRun(ctx, tenantID, runID)
	if err != nil {
		return nil, err
	}
	f, err := s.follow(ctx, run.SessionID, q.After, q.UntilIdle)
	if err != nil {
		return nil, err
	}
	// Once more, now that the cursor is known to be of the past: what it has
	// seen end, has ended.
	if run, err = s.Reader.GetRun(ctx, tenantID, runID); err != nil {
		return nil, err
	}
	rf := &runFollower{follower: f, runID: runID}
	shown := func(e event.Event) bool { return e.RunID == runID && keep.keeps(e) }
	if run.Status.Terminal() {
		left, err := rf.isLeft(ctx, shown)
		switch {
		case err != nil:
			return nil, err
		case !left:
			return nil, sse.ErrNothingLeft
		}
	}
	if keep.all() {
		return rf, nil
	}
	f.batch = maxEventsPage
	if err := f.skip(ctx, shown); err != nil {
		return nil, err
	}
	return &filtered{Stream: rf, filter: keep, heartbeat: s.Heartbeat}, nil
}

// isLeft reports whether a run that has ended has events above the cursor that are
// shown. It moves the cursor up to them.
func (f *runFollower) isLeft(ctx context.Context, shown func(event.Event) bool) (bool, error) {
	for {
		events, err := f.Feed.Events(ctx, f.tenantID, f.sessionID, f.after, maxEventsPage)
		if err != nil || len(events) == 0 {
			return false, err
		}
		for _, e := range events {
			if shown(e) {
				return true, nil
			}
			f.after = e.Seq
		}
	}
}

// Next implements [sse.Stream].
func (f *runFollower) Next(ctx context.Context) ([]event.Event, error) {
	if f.ended {
		return nil, io.EOF
	}
	return showing(ctx, f.follower, f.Heartbeat, func(events []event.Event) ([]event.Event, error) {
		return f.own(ctx, events)
	})
}

// own keeps the events of the run, up to its end.
func (f *runFollower) own(ctx context.Context, events []event.Event) (own []event.Event, err error) {
	for _, e := range events {
		if e.RunID != f.runID {
			continue
		}
		own = append(own, e)
		if f.ended, err = f.endsWith(ctx, e); f.ended || err != nil {
			return own, err
		}
	}
	return own, nil
}

// endsWith reports whether the event is the run's last one. A failure is not, if
// the run was taken up again since.
func (f *runFollower) endsWith(ctx context.Context, e event.Event) (bool, error) {
	switch e.Type {
	case event.TypeRunCompleted, event.TypeRunCancelled:
		return true, nil
	case event.TypeRunFailed:
		run, err := f.Reader.GetRun(ctx, f.tenantID, f.runID)
		return err == nil && run.EndedSeq == e.Seq, err
	default:
		return false, nil
	}
}
