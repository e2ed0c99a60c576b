package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	// linger is how long a session that nobody watches any more is remembered,
	// so that a client between two reads finds its place again.
	linger = 2 * time.Second
	// headsPerQuery bounds the arrays that a poll sends.
	headsPerQuery = 1000
)

var errClosed = errors.New("store is closed")

// logReader is what a hub reads.
type logReader interface {
	// readAfter returns up to limit events above after, with the head in the
	// same snapshot; [loop.ErrNotFound] for a session that the tenant does not
	// see.
	readAfter(ctx context.Context, tenantID, sessionID string, after int64, limit int) (found, error)
	// moved says where those of the sessions stand that are deleted, or do not
	// stand where they are known to: at the seqs, in the same order.
	moved(ctx context.Context, sessionIDs []string, seqs []int64) ([]head, error)
}

type head struct {
	sessionID         string
	knownSeq, lastSeq int64
	deleted           bool
}

// hub hands on what was committed to those who wait for it. What this process
// commits, waiters get from memory. What others commit is announced, or found
// by the poll, and one waiter of each session reads it for all. Signals are
// only hints: what is delivered is decided by the seqs in the log.
type hub struct {
	log    logReader
	every  time.Duration // of the poll
	logger *slog.Logger
	look   chan struct{} // asks for a poll now
	closed chan struct{}
	stirs  stirs

	mu     sync.Mutex
	topics map[string]*topic // by session id
}

func newHub(log logReader, every time.Duration, logger *slog.Logger) *hub {
	return &hub{
		log: log, every: every, logger: logger,
		look: make(chan struct{}, 1), closed: make(chan struct{}), topics: map[string]*topic{},
	}
}

// next blocks until there is something above after, or ctx ends, or the hub.
func (h *hub) next(ctx context.Context, tenantID, sessionID string, after int64, limit int) ([]event.Event, error) {
	t := h.acquire(sessionID)
	defer h.release(t)
	t.enter(time.Now())
	defer func() { t.leave(time.Now()) }()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s := t.next(tenantID, after, limit)
		switch {
		case s.deleted:
			return nil, loop.ErrNotFound
		case len(s.events) > 0:
			return s.events, nil
		case s.wait != nil:
			select {
			case <-s.wait:
			case <-ctx.Done():
			case <-h.closed:
				return nil, errClosed
			}
		case s.fill:
			if err := h.fill(ctx, t, tenantID, sessionID, s); err != nil {
				return nil, err
			}
		default:
			f, err := h.log.readAfter(ctx, tenantID, sessionID, after, limit)
			if err != nil {
				return nil, err
			}
			t.read(tenantID, f)
			if len(f.events) > 0 {
				return f.events, nil
			}
			after = max(after, f.head)
		}
	}
}

// fill reads what the tail lacks, for all who wait.
func (h *hub) fill(ctx context.Context, t *topic, tenantID, sessionID string, s step) (err error) {
	var f found
	defer func() { t.filled(s, f) }()
	f, err = h.log.readAfter(ctx, tenantID, sessionID, s.after, tailEvents)
	if errors.Is(err, loop.ErrNotFound) {
		t.saw(0, true)
	}
	if err == nil {
		t.read(tenantID, f)
	}
	return err
}

// watch is [loop.Log]'s Watch.
func (h *hub) watch(sessionID string) (signals <-chan int64, stop func()) {
	t := h.acquire(sessionID)
	w := make(chan int64, 1)
	t.mu.Lock()
	if t.watchers == nil {
		t.watchers = map[chan int64]struct{}{}
	}
	t.watchers[w] = struct{}{}
	t.mu.Unlock()
	var once sync.Once
	return w, func() {
		once.Do(func() {
			t.mu.Lock()
			delete(t.watchers, w)
			t.mu.Unlock()
			h.release(t)
		})
	}
}

// handOn takes in what this process has committed. It does not block.
func (h *hub) handOn(batch []committed) {
	for _, c := range batch {
		id, _ := canonicalID(c.sessionID)
		if t := h.find(id); t != nil {
			t.commit(c)
		}
	}
	h.stirs.stir()
}

// announced takes in what another process says that it committed.
func (h *hub) announced(sessionID string, head int64) {
	id, _ := canonicalID(sessionID)
	if t := h.find(id); t != nil {
		t.saw(head, false)
	}
}

// lookNow asks for a poll, when announcements may have been missed.
func (h *hub) lookNow() {
	nudge(h.look)
	h.stirs.stir()
}

// run polls until ctx ends: the floor under every kind of signal.
func (h *hub) run(ctx context.Context) {
	defer close(h.closed)
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	deaf := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-h.look:
		}
		err := h.poll(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !deaf:
			h.logger.WarnContext(ctx, "cannot ask the database what is new", "error", err)
		case err == nil && deaf:
			h.logger.InfoContext(ctx, "the database answers again")
		}
		deaf = err != nil
	}
}

// poll asks where all watched sessions stand, and drops those that nobody
// watches any more.
func (h *hub) poll(ctx context.Context) error {
	ids, topics := h.watched(time.Now())
	seqs := make([]int64, 0, headsPerQuery)
	for len(ids) > 0 {
		n := min(len(ids), headsPerQuery)
		seqs = seqs[:0]
		for _, t := range topics[:n] {
			seqs = append(seqs, t.at())
		}
		heads, err := h.log.moved(ctx, ids[:n], seqs)
		if err != nil {
			return err
		}
		for _, at := range heads {
			t := h.find(at.sessionID)
			if t == nil {
				continue
			}
			if at.lastSeq < at.knownSeq {
				t.lose()
			}
			t.saw(at.lastSeq, at.deleted)
		}
		ids, topics = ids[n:], topics[n:]
	}
	return nil
}

// watched returns all topics and their ids, without those that it drops.
func (h *hub) watched(now time.Time) (ids []string, topics []*topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids, topics = make([]string, 0, len(h.topics)), make([]*topic, 0, len(h.topics))
	for id, t := range h.topics {
		if t.refs == 0 && now.Sub(t.idleSince) >= linger {
			delete(h.topics, id)
			continue
		}
		t.forget(now)
		ids, topics = append(ids, id), append(topics, t)
	}
	return ids, topics
}

func (h *hub) acquire(sessionID string) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[sessionID]
	if t == nil {
		t = &topic{}
		h.topics[sessionID] = t
	}
	t.refs++
	return t
}

func (h *hub) release(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.refs--
	if t.refs == 0 {
		t.idleSince = time.Now()
	}
}

func (h *hub) find(sessionID string) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.topics[sessionID]
}
