package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-2ca4966b/agentd/cmd/proc"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	partPaced    = "paced"
	partAudience = "audience"

	// paceEvery is the time between two deltas of a stream.
	paceEvery   = 20 * time.Millisecond
	addedTime   = "added latency"
	streamsHint = " streams"
)

// measurePaced measures what agentd adds to a provider's chunk on its way to a
// client of its own.
func (b *bench) measurePaced(ctx context.Context) error {
	for _, n := range b.streams {
		if err := b.addPaced(ctx, partPaced, fmt.Sprint(n)+streamsHint, n, 1); err != nil {
			return err
		}
	}
	return nil
}

// measureAudience measures the same for many clients of one session.
func (b *bench) measureAudience(ctx context.Context) error {
	n := b.clientsThatFit(b.audience)
	return b.addPaced(ctx, partAudience, fmt.Sprintf("%d clients of one session", n), 1, n)
}

// listener is a client of a paced stream.
type listener struct {
	heard  chan struct{} // closed at the first delta
	once   sync.Once
	mu     sync.Mutex
	from   time.Time // of the window; what was yielded before is not measured
	deltas []delta
}

// delta is one that was heard.
type delta struct {
	yielded time.Time
	added   time.Duration
}

func (b *bench) addPaced(ctx context.Context, part, item string, streams, clients int) error {
	return b.paced(ctx, streams, clients, func(listening context.Context, node *proc.Process, listeners []*listener) error {
		return b.window(ctx, listening, part, item, node, listeners)
	})
}

// paced calls measure while a node streams, with what it needs to measure:
// listening ends when a stream does.
func (b *bench) paced(ctx context.Context, streams, clients int,
	measure func(listening context.Context, node *proc.Process, listeners []*listener) error, nodeArgs ...string,
) error {
	_, url, err := b.pg.database(ctx)
	if err != nil {
		return err
	}
	sessions, err := seedSessions(ctx, url, streams)
	if err != nil {
		return err
	}
	node, err := b.startNode(ctx, url, nodeArgs...)
	if err != nil {
		return err
	}
	defer node.Kill()
	ctx, hangUp := context.WithCancel(ctx)
	listeners := make([]*listener, streams*clients)
	group, listening := errgroup.WithContext(ctx)
	defer func() {
		hangUp()
		_ = group.Wait() // of a measurement that has failed already
	}()
	err = each(ctx, 64, len(listeners), func(_ context.Context, i int) error {
		s, err := subscribe(listening, node.URL(), sessions[i/clients], "", 4096)
		if err != nil {
			return err
		}
		l := &listener{heard: make(chan struct{})}
		listeners[i] = l
		group.Go(func() error { return l.listen(s) })
		return nil
	})
	if err != nil {
		return err
	}
	if err := b.startStreams(ctx, node, sessions, listeners); err != nil {
		return err
	}
	return measure(listening, node, listeners)
}

// startStreams returns once everybody has heard something.
func (b *bench) startStreams(ctx context.Context, node *proc.Process, sessions []string, listeners []*listener) error {
	c := newClient(node.URL())
	defer c.close()
	err := each(ctx, 32, len(sessions), func(ctx context.Context, i int) error { return c.start(ctx, sessions[i], userText) })
	if err != nil {
		return err
	}
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	for i, l := range listeners {
		select {
		case <-l.heard:
		case <-limit.C:
			return fmt.Errorf("stream %d of %d has said nothing for %s", i+1, len(listeners), startLimit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return pause(ctx, b.warm)
}

// window measures for the time of one measurement.
func (b *bench) window(ctx, listening context.Context, part, item string, node *proc.Process, listeners []*listener) error {
	server, db, self := processCPU(node.PID()), familyCPU(b.pg.server.PID()), selfCPU()
	all, wall, err := b.hear(listening, listeners)
	if err != nil {
		return err
	}
	server, db, self = processCPU(node.PID())-server, familyCPU(b.pg.server.PID())-db, selfCPU()-self
	b.addTimes(part, item, addedTime, all, 50, 99, 99.9, 100)
	b.add(part, item, "chunks", perSecond, float64(len(all))/wall.Seconds())
	if server > 0 {
		percent := func(d time.Duration) float64 { return 100 * d.Seconds() / wall.Seconds() }
		b.add(part, item, "agentd CPU", "% of a core", percent(server))
		b.add(part, item, "Postgres CPU", "% of a core", percent(db))
		b.add(part, item, "clients' CPU", "% of a core", percent(self))
		now, _ := memory(node.PID())
		b.add(part, item, "agentd memory", "MB", now)
	}
	return ctx.Err()
}

// hear listens for the time of one measurement.
func (b *bench) hear(listening context.Context, listeners []*listener) (all []time.Duration, wall time.Duration, err error) {
	from := openAll(listeners)
	if err := hold(listening, b.time); err != nil {
		return nil, 0, err
	}
	to := time.Now()
	for _, l := range listeners {
		all = append(all, l.close(to)...)
	}
	if len(all) == 0 {
		return nil, 0, fmt.Errorf("nothing was heard in %s", to.Sub(from))
	}
	return all, to.Sub(from), nil
}

// openAll opens a window, which begins at from.
func openAll(listeners []*listener) (from time.Time) {
	from = time.Now()
	for _, l := range listeners {
		l.open(from)
	}
	return from
}

// hold waits while streams that have no end go on.
func hold(listening context.Context, d time.Duration) error {
	if err := pause(listening, d); err != nil {
		return fmt.Errorf("a stream has ended early: %w", context.Cause(listening))
	}
	return nil
}

// listen ends when the connection is closed or the run has ended, which are errors
// for a stream that has no end.
func (l *listener) listen(s *subscription) error {
	defer s.close()
	for {
		data, err := s.next()
		if err != nil {
			return err
		}
		now := time.Now()
		said := false
		l.mu.Lock()
		stamps(data, func(yielded time.Time) {
			said = true
			l.once.Do(func() { close(l.heard) })
			if !l.from.IsZero() && !yielded.Before(l.from) {
				l.deltas = append(l.deltas, delta{yielded, now.Sub(yielded)})
			}
		})
		l.mu.Unlock()
		if said {
			continue
		}
		if typ := event.Type(eventType(data)); typ == event.TypeRunCompleted || typ == event.TypeRunFailed {
			return fmt.Errorf("%s: %.300s", typ, data)
		}
	}
}

func (l *listener) open(from time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from = from
}

// close returns what was yielded in the window, which is over, before to.
func (l *listener) close(to time.Time) (added []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.deltas {
		if d.yielded.Before(to) {
			added = append(added, d.added)
		}
	}
	l.from, l.deltas = time.Time{}, nil
	return added
}
