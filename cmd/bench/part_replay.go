package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const partReplay = "replay"

// longSession is in a database that all rounds use.
type longSession struct{ url, id string }

// measureReplay measures a client that comes late to a long session.
func (b *bench) measureReplay(ctx context.Context) error {
	if b.long.id == "" {
		name, url, err := b.pg.database(ctx)
		if err != nil {
			return err
		}
		id, err := writeLongSession(ctx, url, b.replay)
		if err != nil {
			return err
		}
		b.pg.keep(name)
		b.long = longSession{url: url, id: id}
	}
	server, err := b.startAgentd(ctx, b.long.url, nil, "--roles=api")
	if err != nil {
		return err
	}
	defer server.Kill()
	var first, total []time.Duration
	before, _ := memory(server.PID())
	for range b.replays {
		f, t, err := replayOnce(ctx, server.URL(), b.long.id, b.replay)
		if err != nil {
			return err
		}
		first, total = append(first, f), append(total, t)
	}
	item := fmt.Sprintf("%d events", b.replay)
	b.addTimes(partReplay, item, "first event", first, 50)
	b.addTimes(partReplay, item, "all events", total, 50)
	b.add(partReplay, item, "events", perSecond, float64(b.replay)/percentile(total, 50).Seconds())
	if _, peak := memory(server.PID()); peak > 0 {
		b.add(partReplay, item, "agentd memory at its highest", "MB", peak)
		b.add(partReplay, item, "of it without clients", "MB", before)
	}
	return nil
}

func replayOnce(ctx context.Context, url, sessionID string, want int) (first, total time.Duration, err error) {
	from := time.Now()
	s, err := subscribe(ctx, url, sessionID, "?until=idle", 64<<10)
	if err != nil {
		return 0, 0, err
	}
	defer s.close()
	n := 0
	for {
		_, err := s.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, 0, fmt.Errorf("replay: after %d events: %w", n, err)
		}
		if n++; n == 1 {
			first = time.Since(from)
		}
	}
	if n != want {
		return 0, 0, fmt.Errorf("replay: %d events, want %d", n, want)
	}
	return first, time.Since(from), nil
}

// writeLongSession appends a session with one run of n events in all.
func writeLongSession(ctx context.Context, url string, n int) (id string, err error) {
	s, err := startStack(ctx, stackConfig{url: url, idle: true})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	ref, err := s.commands.CreateSession(ctx, loop.CreateSession{TenantID: tenantID, Actor: actor})
	if err != nil {
		return "", err
	}
	w := &eventWriter{stack: s, session: ref.SessionID, run: newID(), last: 1}
	message := newID()
	w.write(ctx, 0,
		event.MessageCreated{MessageID: message, Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: userText}}},
		event.RunCreated{Agent: agentName, MessageID: message, AssistantMessageID: newID()},
		event.RunQueued{Ticket: 1}, event.RunStarted{WorkerID: newID(), Epoch: 1, Ticket: 1})
	w.write(ctx, 1, event.TurnStarted{}, event.ModelRequested{Attempt: 1, Model: modelName, MessageIDs: []string{message}})
	ending := 3
	for w.err == nil && int(w.last) < n-ending {
		deltas := make([]event.Payload, min(1000, n-ending-int(w.last)))
		for i := range deltas {
			deltas[i] = event.AssistantDelta{Attempt: 1, Lane: stream.LaneText, BlockID: "0", Text: fmt.Sprintf("token %d ", i)}
		}
		w.write(ctx, 1, deltas...)
	}
	w.write(ctx, 1, event.AssistantCompleted{
		Attempt: 1, MessageID: newID(), Parts: []hooks.Part{{Type: hooks.PartText, Text: "It is long."}}, Finish: stream.FinishStop,
	}, event.TurnCompleted{})
	w.write(ctx, 0, event.RunCompleted{Reason: stream.FinishStop})
	if w.err != nil {
		return "", fmt.Errorf("write a long session: %w", w.err)
	}
	return ref.SessionID, nil
}

// eventWriter appends without an engine. After an error it does nothing.
type eventWriter struct {
	stack        *stack
	session, run string
	last         int64
	err          error
}

func (w *eventWriter) write(ctx context.Context, turn int, payloads ...event.Payload) {
	a := loop.Append{ID: newID(), TenantID: tenantID, SessionID: w.session, Expected: w.last}
	for _, p := range payloads {
		if w.err != nil {
			return
		}
		var e event.Event
		scope := event.Scope{SessionID: w.session, RunID: w.run, Turn: turn, At: time.Now(), Actor: actor}
		if _, ok := p.(event.MessageCreated); ok {
			scope.RunID = ""
		}
		e, w.err = event.New(scope, p)
		a.Events = append(a.Events, e)
	}
	var done loop.Appended
	if done, w.err = w.stack.store.Append(ctx, a); w.err == nil {
		w.last = done.LastSeq
	}
}
