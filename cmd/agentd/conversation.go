package main

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/seed-2ca4966b/agentd/api/client"
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
	// decide asks a person whether a call may run, or whether one of unknown
	// outcome did. errUndecided means that nobody is there to say, and ends the
	// wait for the run.
	decide(a *agentdv1.Approval) (yes bool, err error)
	// late says that somebody else was faster to answer.
	late(err error)
}

// conversation is one session, seen by one client. It is used by one goroutine.
type conversation struct {
	client    *client.Client
	sessionID string
	agent     string
	// policy is for messages that come while another run is active.
	policy string
	// log gets what only people who look for a fault want to know: no payloads.
	log *slog.Logger
	// seen is the seq of the last event that was seen.
	seen uint64
	// sending is false while a message waits for another run to end: then it starts none.
	sending atomic.Bool
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
	if run.GetEnqueued() {
		v.waiting()
		if err := c.settleActive(ctx, v); err != nil {
			return nil, orInterrupted(err)
		}
	}
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

// sendTime is how long an interrupt waits for the answer to a message that is on its
// way: the server may have started its run by then.
const sendTime = 3 * time.Second

// cancelWhen turns the first interrupt into a cancel, if a run was started by
// then or by a message that is on its way, and the second one, or any other, into a call of stop.
func (c *conversation) cancelWhen(ctx context.Context, interrupts <-chan struct{}, started <-chan string, stop func()) {
	select {
	case <-interrupts:
	case <-ctx.Done():
		return
	}
	var wait time.Duration
	if c.sending.Load() {
		wait = sendTime
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return
	case runID := <-started:
		quiet := c.client.With(client.WithOutage(nil, nil)) // the stream says it
		done := make(chan struct{})
		go func() {
			defer close(done)
			// One that has ended by itself cannot be cancelled, and its end is
			// what the stream brings.
			_ = quiet.CancelRun(ctx, runID, "interrupted in chat")
		}()
		defer func() { <-done }()
	case <-interrupts:
		stop()
		return
	case <-late.C:
		stop()
		return
	}
	select {
	case <-interrupts:
		stop()
	case <-ctx.Done():
	}
}

// start starts a run, when those before it have ended.
func (c *conversation) start(ctx context.Context, text string, v view) (*agentdv1.StartRunResponse, error) {
	text, _ = event.CleanText(text) // bytes of another encoding cannot be sent
	for {
		c.sending.Store(true)
		run, err := c.client.StartRun(ctx, &agentdv1.StartRunRequest{SessionId: c.sessionID, Agent: c.agent, Text: text, Policy: c.policy})
		var refused *client.Error
		if !errors.As(err, &refused) || refused.Reason != "session_busy" {
			return run, err
		}
		c.sending.Store(false)
		v.waiting()
		if err := c.awaitRun(ctx, refused.Detail.GetActiveRunId(), v); err != nil {
			return nil, err
		}
	}
}

// awaitRun returns when a run has ended. It is silent, unless the run waits for
// people: then this is the place to answer, and what follows is shown.
func (c *conversation) awaitRun(ctx context.Context, runID string, v view) error {
	session, err := c.client.GetSession(ctx, c.sessionID)
	if err != nil || session.GetActiveRunId() != runID {
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
	_, err = c.attend(ctx, runID, session.GetLastSeq(), v, show)
	return err
}

// follow shows the events of a run above a cursor. It returns the one that ends
// the run, or that says that the run waits for people.
func (c *conversation) follow(ctx context.Context, runID string, after uint64, show func(event.Payload)) (event.Payload, error) {
	var end event.Payload
	for e, err := range c.client.Watch(ctx, c.sessionID, after) {
		if err != nil {
			return nil, err
		}
		c.seen = e.GetSeq()
		if e.GetRunId() != runID {
			continue
		}
		payload, err := event.Decode(event.Event{
			Seq: int64(e.GetSeq()), Type: event.Type(e.GetType()), Payload: []byte(e.GetDataJson()),
		})
		if err != nil {
			return nil, err
		}
		c.log.DebugContext(ctx, "event", "seq", e.GetSeq(), "type", e.GetType())
		show(payload)
		if rests(payload) {
			end = payload
			break
		}
	}
	return end, nil
}

// rests reports whether a run goes no further by itself behind the event.
func rests(e event.Payload) bool {
	switch e.(type) {
	case event.RunCompleted, event.RunFailed, event.RunCancelled, event.RunSuspended:
		return true
	}
	return false
}
