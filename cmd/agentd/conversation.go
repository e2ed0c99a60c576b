package main

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// view shows the events of a run. It is used by one goroutine.
type view interface {
	show(e event.Payload)
	// waiting says that another run of the session has to end first.
	waiting()
	// reply shows what answers a message in place of a run.
	reply(text string)
	// decide asks a person whether a call may run. errUndecided means that
	// nobody is there to say, and ends the wait for the run.
	decide(a *agentdv1.Approval) (approve bool, err error)
	// late says that somebody else was faster to answer.
	late(err error)
}

// conversation is one session, seen by one client. It is used by one goroutine.
type conversation struct {
	*client
	sessionID string
	agent     string
	// seen is the seq of the last event that was seen.
	seen uint64
}

// answer sends text and shows what follows, until the run has ended; that is
// the event that it returns. The first value from interrupts cancels the run,
// the second one stops waiting for it.
func (c *conversation) answer(ctx context.Context, text string, v view, interrupts <-chan struct{}) (event.Payload, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	started := make(chan string, 1)
	canceller := make(chan struct{})
	go func() {
		defer close(canceller)
		c.cancelWhen(ctx, interrupts, started, stop)
	}()
	defer func() {
		stop()
		<-canceller
	}()
	run, err := c.start(ctx, text, v)
	if err != nil {
		return nil, orInterrupted(err)
	}
	if run.GetHandled() {
		v.reply(run.GetReply())
		return event.RunCompleted{}, nil
	}
	started <- run.GetRunId()
	end, err := c.attend(ctx, run.GetRunId(), run.GetAfter(), v, v.show)
	return end, orInterrupted(err)
}

var errInterrupted = errors.New("interrupted")

// orInterrupted names the only thing that ends the context of an answer.
func orInterrupted(err error) error {
	if errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	return err
}

// cancelWhen turns the first interrupt into a cancel, if a run was started by
// then, and the second one, or any other, into a call of stop.
func (c *conversation) cancelWhen(ctx context.Context, interrupts <-chan struct{}, started <-chan string, stop func()) {
	select {
	case <-interrupts:
	case <-ctx.Done():
		return
	}
	select {
	case runID := <-started:
		quiet := *c.client
		quiet.away, quiet.back = func() {}, func() {} // the stream says it
		done := make(chan struct{})
		go func() {
			defer close(done)
			// One that has ended by itself cannot be cancelled, and its end is
			// what the stream brings.
			_, _ = call(ctx, &quiet, c.runs.CancelRun, &agentdv1.CancelRunRequest{RunId: runID, Reason: "interrupted in chat"})
		}()
		defer func() { <-done }()
	default:
		stop()
		return
	}
	select {
	case <-interrupts:
		stop()
	case <-ctx.Done():
	}
}

// start starts a run, once: a server that was killed after it had stored the
// message is sent the same key again.
func (c *conversation) start(ctx context.Context, text string, v view) (*agentdv1.StartRunResponse, error) {
	text, _ = event.CleanText(text) // bytes of another encoding cannot be sent
	request := &agentdv1.StartRunRequest{
		SessionId: c.sessionID, Agent: c.agent, Text: text, IdempotencyKey: uuid.NewString(),
	}
	o := outage{client: c.client}
	for {
		response, err := callOnce(ctx, c.runs.StartRun, request)
		if err == nil {
			o.over()
			return response, nil
		}
		switch reason := reasonOf(err); reason.GetReason() {
		case "session_busy":
			o.over()
			v.waiting()
			err = c.awaitRun(ctx, reason.GetActiveRunId(), v)
		default:
			err = o.wait(ctx, err)
		}
		if err != nil {
			return nil, err
		}
	}
}

// awaitRun returns when a run has ended. It is silent, unless the run waits for
// people: then this is the place to answer, and what follows is shown.
func (c *conversation) awaitRun(ctx context.Context, runID string, v view) error {
	session, err := call(ctx, c.client, c.sessions.GetSession, &agentdv1.GetSessionRequest{
		Name: &agentdv1.GetSessionRequest_SessionId{SessionId: c.sessionID},
	})
	if err != nil || session.GetSession().GetActiveRunId() != runID {
		return err
	}
	show := func(event.Payload) {}
	asked, err := c.settle(ctx, runID, v)
	if err != nil {
		return err
	}
	if asked {
		show = v.show
	}
	_, err = c.attend(ctx, runID, session.GetSession().GetLastSeq(), v, show)
	return err
}

// reasonOf returns the detail of an error of the server, nil if there is none.
func reasonOf(err error) *agentdv1.ErrorReason {
	var refused *connect.Error
	if !errors.As(err, &refused) {
		return nil
	}
	for _, detail := range refused.Details() {
		if message, err := detail.Value(); err == nil {
			if reason, ok := message.(*agentdv1.ErrorReason); ok {
				return reason
			}
		}
	}
	return nil
}

// follow shows the events of a run above a cursor, each once and in order,
// whatever happens to the server meanwhile. It returns the one that ends the
// run, or that says that the run waits for people.
func (c *conversation) follow(ctx context.Context, runID string, after uint64, show func(event.Payload)) (event.Payload, error) {
	o := outage{client: c.client}
	for {
		var end event.Payload
		err := c.watch(ctx, after, func(e *agentdv1.Event) (more bool, err error) {
			o.over()
			if e.GetSeq() <= after {
				return true, nil
			}
			after, c.seen = e.GetSeq(), e.GetSeq()
			if e.GetRunId() != runID {
				return true, nil
			}
			payload, err := event.Decode(event.Event{
				Seq: int64(e.GetSeq()), Type: event.Type(e.GetType()), Payload: []byte(e.GetDataJson()),
			})
			if err != nil {
				return false, err
			}
			c.log.DebugContext(ctx, "event", "seq", e.GetSeq(), "type", e.GetType())
			show(payload)
			switch payload.(type) {
			case event.RunCompleted, event.RunFailed, event.RunCancelled, event.RunSuspended:
				end = payload
			}
			return end == nil, nil
		})
		if end != nil {
			return end, nil
		}
		if err := o.wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

var errStreamEnded = connect.NewError(connect.CodeUnavailable, errors.New("the stream of events has ended"))

// watch hands on the events above after until handle wants no more or the
// stream breaks. A heartbeat has seq 0. It always returns an error unless
// handle has ended it.
func (c *conversation) watch(ctx context.Context, after uint64, handle func(*agentdv1.Event) (more bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(c.silence, cancel)
	defer quiet.Stop()
	stream, err := c.sessions.WatchEvents(ctx, connect.NewRequest(&agentdv1.WatchEventsRequest{SessionId: c.sessionID, After: after}))
	if err != nil {
		return err
	}
	defer func() {
		cancel() // or closing would wait for the end of the stream
		_ = stream.Close()
	}()
	for stream.Receive() {
		quiet.Reset(c.silence)
		if more, err := handle(stream.Msg().GetEvent()); err != nil || !more {
			return err
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return errStreamEnded
}
