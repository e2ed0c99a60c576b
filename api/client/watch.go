package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Watch yields the events of a session above a cursor, and goes on with those
// that follow: each once and in order, without a hole, over as many connections
// as it takes. The cursor is the seq of an event, 0 for all; one above the last
// event is refused with cursor_ahead.
//
// It ends when the loop over it does, or with an error, which is the last that
// is yielded: that of ctx, an [Error] that would come again (the session was
// deleted), or an [AwayError] if there is a patience. Whoever wants to go on then
// has the seq of the last event. Leaving never touches a run.
func (c *Client) Watch(ctx context.Context, sessionID string, after uint64) iter.Seq2[*agentdv1.Event, error] {
	return c.Follow(ctx, &agentdv1.WatchEventsRequest{SessionId: sessionID, After: after})
}

// Follow is Watch for a part of the events: those of the types, and of the channel,
// that the request names. Without a hole then means without a hole in these. That
// the request is to end when the session is idle counts for nothing.
func (c *Client) Follow(ctx context.Context, r *agentdv1.WatchEventsRequest) iter.Seq2[*agentdv1.Event, error] {
	return c.watch(ctx, c.stream(), r)
}

// WatchRun is Watch for the events of one run, and ends behind the run's last
// one, without an error. Nothing is yielded if the cursor is there already. Once
// a failed run is taken up again, its failure is not the last event any more.
func (c *Client) WatchRun(ctx context.Context, runID string, after uint64) iter.Seq2[*agentdv1.Event, error] {
	return func(yield func(*agentdv1.Event, error) bool) {
		o := c.stream()
		run, err := c.runNow(ctx, o, runID)
		if err != nil {
			yield(nil, err)
			return
		}
		// A run that had not ended by then has its last event above any cursor
		// that there was. One that had may have it below, and then a stream would
		// wait for ever.
		events := c.watch(ctx, o, &agentdv1.WatchEventsRequest{SessionId: run.GetSessionId(), After: after})
		if run.GetEndedSeq() > 0 {
			events = c.events(ctx, o, &agentdv1.ListEventsRequest{SessionId: run.GetSessionId(), After: after, PageSize: eventsPage})
		}
		for e, err := range events {
			if err == nil && e.GetRunId() != run.GetId() {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
			switch event.Type(e.GetType()) {
			case event.TypeRunCompleted, event.TypeRunCancelled:
				return
			case event.TypeRunFailed:
				if run.GetEndedSeq() == 0 {
					if run, err = c.runNow(ctx, o, runID); err != nil {
						yield(nil, err)
						return
					}
				}
				if e.GetSeq() == run.GetEndedSeq() {
					return
				}
			default:
			}
		}
	}
}

// eventsPage is the most that the server gives at once.
const eventsPage = 500

// runNow is a run as it stands, asked for within an outage of the caller's.
func (c *Client) runNow(ctx context.Context, o *outage, runID string) (*agentdv1.Run, error) {
	response, err := persist(ctx, o, c.runs.GetRun, &agentdv1.GetRunRequest{RunId: runID})
	return response.GetRun(), err
}

func (c *Client) stream() *outage { return &outage{Client: c, forever: c.patience == 0} }

func (c *Client) watch(ctx context.Context, o *outage, first *agentdv1.WatchEventsRequest) iter.Seq2[*agentdv1.Event, error] {
	return func(yield func(*agentdv1.Event, error) bool) {
		r := proto.CloneOf(first) // a second loop starts where the first did
		r.UntilIdle = false       // or an end would be taken for a connection that broke
		for {
			left := false
			err := c.connection(ctx, r, func(e *agentdv1.Event) bool {
				o.over()
				if e.GetSeq() <= r.GetAfter() { // a heartbeat has none
					return true
				}
				r.After = e.GetSeq()
				left = !yield(e, nil)
				return !left
			})
			if left {
				return
			}
			if err := o.wait(ctx, err); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

var errStreamEnded = connect.NewError(connect.CodeUnavailable, errors.New("the stream of events has ended"))

// connection hands on what one connection brings, heartbeats included, until
// handle wants no more or the connection breaks, which is its error.
func (c *Client) connection(ctx context.Context, r *agentdv1.WatchEventsRequest, handle func(*agentdv1.Event) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(c.silence, cancel)
	defer quiet.Stop()
	stream, err := c.sessions.WatchEvents(ctx, connect.NewRequest(proto.CloneOf(r)))
	if err != nil {
		return err
	}
	defer func() {
		cancel() // or closing would wait for the end of the stream
		_ = stream.Close()
	}()
	for stream.Receive() {
		// Not while the events are handled: that is no silence of the server's.
		quiet.Stop()
		if !handle(stream.Msg().GetEvent()) {
			return nil
		}
		quiet.Reset(c.silence)
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return errStreamEnded
}
