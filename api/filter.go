package api

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/api/sse"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// filter says which events a reader wants. The zero value wants all.
type filter struct {
	types map[event.Type]bool
	// channel is that of the emissions, "" for every one.
	channel string
}

// parseFilter refuses what can only be a slip: a reader who waits for a type that
// there is not would wait for ever.
func parseFilter(names []string, channel string) (filter, error) {
	if err := checkName("channel", channel); err != nil {
		return filter{}, err
	}
	if len(names) == 0 && channel == "" {
		return filter{}, nil
	}
	f := filter{types: map[event.Type]bool{}, channel: channel}
	known := map[event.Type]bool{}
	for _, t := range event.Types() {
		known[t] = true
	}
	for _, name := range names {
		t := event.Type(name)
		if !known[t] {
			return filter{}, invalid("types", fmt.Sprintf("names %q, and there is no such event type: send names such as %s and %s",
				event.Shorten(strings.ToValidUTF8(name, "\uFFFD"), 80), event.TypeEmission, event.TypeRunCompleted))
		}
		f.types[t] = true
	}
	switch {
	case len(names) == 0:
		f.types[event.TypeEmission] = true
	case channel != "" && !f.types[event.TypeEmission]:
		return filter{}, invalid("channel", "is one of emissions: add emission to types, or leave types out")
	}
	return f, nil
}

func (f filter) all() bool { return f.types == nil }

// keeps reports whether the reader wants e.
func (f filter) keeps(e event.Event) bool {
	switch {
	case f.all():
		return true
	case !f.types[e.Type]:
		return false
	case e.Type != event.TypeEmission || f.channel == "":
		return true
	}
	// What cannot be read, a newer server may have written: it is shown.
	p, err := event.Decode(e)
	emission, ok := p.(event.Emission)
	return err != nil || !ok || emission.Channel == f.channel
}

// kept are the events that the reader wants, in the memory of none of them.
func (f filter) kept(events []event.Event) []event.Event {
	if f.all() {
		return events
	}
	var out []event.Event
	for _, e := range events {
		if f.keeps(e) {
			out = append(out, e)
		}
	}
	return out
}

// filtered is a stream of which only a part is shown.
type filtered struct {
	sse.Stream
	filter    filter
	heartbeat time.Duration
}

// Next implements [sse.Stream].
func (f *filtered) Next(ctx context.Context) ([]event.Event, error) {
	return showing(ctx, f.Stream, f.heartbeat, func(events []event.Event) ([]event.Event, error) {
		return f.filter.kept(events), nil
	})
}

// showing waits for events of which something is shown. Those that are not are
// silence to the reader, who is owed a heartbeat all the same.
func showing(ctx context.Context, s sse.Stream, heartbeat time.Duration, shown func([]event.Event) ([]event.Event, error)) ([]event.Event, error) {
	for due := time.Now().Add(heartbeat); ; {
		events, err := s.Next(ctx)
		if err != nil || len(events) == 0 {
			return nil, err
		}
		out, err := shown(events)
		if err != nil || len(out) > 0 || !time.Now().Before(due) {
			return out, err
		}
	}
}

// followOnly is follow for a reader who wants only a part. With untilIdle and
// nothing that it wants to send, the error is [sse.ErrNothingLeft].
func (s *server) followOnly(ctx context.Context, sessionID string, after int64, untilIdle bool, keep filter) (sse.Stream, error) {
	f, err := s.follow(ctx, sessionID, after, untilIdle)
	if err != nil {
		return nil, err
	}
	if keep.all() {
		return f, nil
	}
	f.batch = maxEventsPage // little of it is kept
	if err := f.skip(ctx, keep.keeps); err != nil {
		return nil, err
	}
	return &filtered{Stream: f, filter: keep, heartbeat: s.Heartbeat}, nil
}

// skip moves the cursor of a stream that ends when the session is idle up to the
// first event that is shown. If it is idle and there is none, the error is
// [sse.ErrNothingLeft]: the reader's own cursor never gets to the end, and it would
// come back for nothing again and again.
func (f *follower) skip(ctx context.Context, shown func(event.Event) bool) error {
	for f.untilIdle {
		head, err := f.head(ctx, f.tenantID, f.sessionID)
		if err != nil {
			return err
		}
		events, err := f.Feed.Events(ctx, f.tenantID, f.sessionID, f.after, maxEventsPage)
		if err != nil {
			return err
		}
		for _, e := range events {
			if shown(e) {
				return nil
			}
			f.after = e.Seq
		}
		if len(events) > 0 {
			continue
		}
		f.after = max(f.after, head.LastSeq)
		if f.saidAll(head) {
			return sse.ErrNothingLeft
		}
		return nil
	}
	return nil
}

// eventsPerCall bounds what one call looks at for a page of what a reader wants.
const eventsPerCall = 20 * maxEventsPage

// foundEvents are what a reader wants of the events above a cursor and up to upTo.
type foundEvents struct {
	events []event.Event
	upTo   int64
	// more says that there are events above upTo.
	more bool
}

// eventsAbove finds at most size events, and looks at no more than it may for them.
func (s *server) eventsAbove(ctx context.Context, tenantID, sessionID string, after int64, size int, keep filter) (foundEvents, error) {
	f := foundEvents{upTo: after}
	batch := size + 1 // one more says whether another page follows
	if !keep.all() {
		batch = maxEventsPage
	}
	for looked := 0; ; looked += batch {
		events, err := s.Feed.Events(ctx, tenantID, sessionID, f.upTo, batch)
		if err != nil {
			return foundEvents{}, err
		}
		for _, e := range events {
			wanted := keep.keeps(e)
			if wanted && len(f.events) == size {
				f.more = true
				return f, nil
			}
			if f.upTo = e.Seq; wanted {
				f.events = append(f.events, e)
			}
		}
		if f.more = len(events) == batch; !f.more || looked+batch >= eventsPerCall {
			return f, nil
		}
	}
}
