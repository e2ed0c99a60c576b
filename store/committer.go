package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/loop"
)

const (
	// A larger group saves no more round trips worth speaking of, and keeps those
	// in it waiting for longer.
	maxGroup      = 512
	maxGroupBytes = 4 << 20
	// maxFailures bounds how often an append meets a broken database before its
	// caller is told; the pauses between add up to some seconds.
	maxFailures = 7
	// tryFor bounds the same in time, where each failure takes long, and the wait
	// for a lock that somebody else has.
	tryFor       = 10 * time.Second
	firstBackoff = 25 * time.Millisecond
	maxBackoff   = 800 * time.Millisecond
	// commitTimeout is for a database that answers nothing at all; one that
	// works ends long statements by itself.
	commitTimeout = 40 * time.Second
	// courtesy is how long the deltas of a session wait for somebody who was
	// refused there and has to read where the session stands and to plan again.
	// Behind a stream that is faster than that, a cancel would never come
	// through. They wait no longer than it takes, and all of it only for somebody
	// who gave up.
	courtesy = 200 * time.Millisecond
)

// committer gathers requests into groups and commits one group at a time. What
// arrives while a commit is in flight goes into the next group.
type committer struct {
	store  *Store
	edge   edge
	tryFor time.Duration

	mu        sync.Mutex
	accepting bool
	pending   []*request // in order of arrival
	alone     map[pgtype.UUID]struct{}
	refused   map[pgtype.UUID]time.Time // until when deltas wait

	wake   chan struct{} // has room for one: something changed
	cancel context.CancelFunc
	done   chan struct{}

	// These belong to the goroutine that commits.
	conn       ownConn
	lastCommit time.Time
	took       time.Duration // the last commit
	backoff    time.Duration

	aside *aside
}

func newCommitter(s *Store, e edge) *committer {
	c := &committer{
		store: s, edge: e, tryFor: tryFor,
		alone: make(map[pgtype.UUID]struct{}), refused: make(map[pgtype.UUID]time.Time),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		conn: ownConn{pool: s.pool},
	}
	c.aside = newAside(c)
	return c
}

func (c *committer) start(ctx context.Context) {
	ctx, c.cancel = context.WithCancel(ctx)
	c.mu.Lock()
	c.accepting = true
	c.mu.Unlock()
	go c.run(ctx)
}

func (c *committer) stop(ctx context.Context) error {
	c.mu.Lock()
	c.accepting = false
	c.mu.Unlock()
	nudge(c.wake)
	defer c.cancel()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		c.cancel()
		<-c.done
		return ctx.Err()
	}
}

func (c *committer) submit(r *request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.accepting {
		return errNotRunning
	}
	c.pending = append(c.pending, r)
	nudge(c.wake)
	return nil
}

// nudge leaves a signal in ch, which has room for one.
func nudge(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default: // there is one that was not heard yet
	}
}

func (c *committer) run(ctx context.Context) {
	defer close(c.done)
	defer c.aside.running.Wait()
	defer c.conn.release()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if ctx.Err() != nil {
			c.giveUp()
			return
		}
		group, wait, over := c.next(time.Now())
		switch {
		case over:
			return
		case len(group) > 0:
			began := time.Now()
			c.commit(ctx, group)
			c.lastCommit = time.Now()
			c.took = c.lastCommit.Sub(began)
			continue
		case wait > 0:
			timer.Reset(wait)
		default:
			c.conn.release()
		}
		select {
		case <-c.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// next takes the group that is due. Without one it says how long to wait for
// it, 0 meaning until a signal, or that all is over.
func (c *committer) next(now time.Time) (group []*request, wait time.Duration, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = slices.DeleteFunc(c.pending, (*request).abandoned)
	if len(c.pending) == 0 {
		return nil, 0, !c.accepting && len(c.alone) == 0
	}
	maps.DeleteFunc(c.refused, func(_ pgtype.UUID, until time.Time) bool { return !c.accepting || !now.Before(until) })
	due := c.lastCommit.Add(c.store.opts.window(c.took))
	if c.accepting && now.Before(due) && len(c.pending) < maxGroup && !slices.ContainsFunc(c.pending, func(r *request) bool { return !r.append.Deltas }) {
		return nil, due.Sub(now), false
	}
	if group = c.take(); len(group) == 0 {
		for _, until := range c.refused {
			wait = max(wait, until.Sub(now))
		}
	}
	return group, wait, false
}

// take removes the next group from pending. A second append of a session, or
// one whose session is aside, stays for a later group, as deltas do that wait
// for somebody else.
func (c *committer) take() []*request {
	var group []*request
	taken := make(map[pgtype.UUID]struct{}, min(len(c.pending), maxGroup))
	bytes := 0
	rest := c.pending[:0]
	for _, r := range c.pending {
		if _, wait := c.refused[r.sessionID]; wait && r.append.Deltas {
			rest = append(rest, r)
			continue
		}
		_, busy := c.alone[r.sessionID]
		_, second := taken[r.sessionID]
		full := len(group) == maxGroup || len(group) > 0 && bytes+r.bytes > maxGroupBytes
		// Marked even when it stays: what follows in the session must not overtake.
		taken[r.sessionID] = struct{}{}
		if busy || second || full {
			rest = append(rest, r)
			continue
		}
		bytes += r.bytes
		group = append(group, r)
		delete(c.refused, r.sessionID)
	}
	clear(c.pending[len(rest):])
	c.pending = rest
	return group
}

// again puts requests back in front, where they came from.
func (c *committer) again(requests ...*request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = slices.Insert(c.pending, 0, requests...)
}

func (c *committer) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.pending {
		r.fail(errNotRunning)
	}
	c.pending = nil
}

func (c *committer) commit(ctx context.Context, group []*request) {
	open, locked := group, []*request(nil)
	err := c.conn.use(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		outcomes, err := c.store.write(ctx, conn, group, false)
		if err != nil {
			return err
		}
		open = c.finishWritten(group, outcomes)
		locked, err = c.settle(ctx, conn, open)
		return err
	})
	switch {
	case err == nil:
		c.backoff = 0
		c.aside.take(ctx, locked...)
	case hasCode(err, codeLockNotAvailable):
		c.split(ctx, open)
	case errors.Is(err, errPoolExhausted):
		for _, r := range open {
			r.fail(err) // one after the other, they would wait for as long again
		}
	case transient(err):
		c.retry(ctx, open, err)
	case len(open) > 1:
		for _, r := range open {
			c.commit(ctx, []*request{r})
		}
	default:
		open[0].fail(err)
	}
}

// finishWritten answers the requests that were written and returns the others.
func (c *committer) finishWritten(group []*request, outcomes map[pgtype.UUID]outcome) (open []*request) {
	var written []*request
	for _, r := range group {
		if outcomes[r.sessionID] == outcomeWritten {
			written = append(written, r)
		} else {
			open = append(open, r)
		}
	}
	c.finish(written...)
	return open
}

// settle decides on requests that a group did not write: all of them, or none
// when there is an error. It returns those that found their rows locked again.
func (c *committer) settle(ctx context.Context, conn *pgxpool.Conn, open []*request) (locked []*request, err error) {
	if len(open) == 0 {
		return nil, nil
	}
	fates, err := fates(ctx, conn, open)
	if err != nil {
		return nil, err
	}
	for i, r := range open {
		if c.decided(r, fates[i]) {
			continue
		}
		if r.skipped++; r.skipped > 1 {
			locked = append(locked, r)
		} else {
			c.again(r)
		}
	}
	return locked, nil
}

// decided answers a request, unless its fate is open.
func (c *committer) decided(r *request, f fate) bool {
	switch f {
	case fateOpen:
		return false
	case fateMine:
		c.finish(r)
	case fateConflict:
		c.refuse(r)
	case fateLeaseLost:
		r.fail(loop.ErrLeaseLost)
	case fateNotFound:
		r.fail(loop.ErrNotFound)
	case fateExpired:
		r.fail(loop.ErrExpired)
	}
	return true
}

// refuse answers a request whose session has moved on. What is not deltas comes
// again, and then finds no deltas in front of it.
func (c *committer) refuse(r *request) {
	if !r.append.Deltas {
		c.mu.Lock()
		c.refused[r.sessionID] = time.Now().Add(courtesy)
		c.mu.Unlock()
	}
	r.fail(loop.ErrConflict)
}

// finish hands on what was committed and answers. Handing on comes first, so
// that who waits for the answer finds the events with those who watch.
func (c *committer) finish(requests ...*request) {
	if len(requests) == 0 {
		return
	}
	group := make([]committed, len(requests))
	for i, r := range requests {
		group[i] = committed{
			tenantID: r.append.TenantID, sessionID: r.append.SessionID,
			events: r.append.Events, jobs: r.append.Jobs,
		}
	}
	c.edge.handOn(group)
	for _, r := range requests {
		r.succeed()
	}
}

// split is for a group that waited for a lock which is not a session's. Only a
// new session waits for a rival in the ordinary course: for the one that has
// its external id and is not committed yet.
func (c *committer) split(ctx context.Context, group []*request) {
	for _, r := range group {
		if len(group) == 1 || r.creates {
			c.aside.take(ctx, r)
		} else {
			c.commit(ctx, []*request{r})
		}
	}
}

// retry puts the requests back and pauses. A commit whose answer was lost does
// no harm: the next attempt is refused, and finds its own events in the log.
func (c *committer) retry(ctx context.Context, group []*request, err error) {
	if hasCode(err, codeReadOnly) {
		c.store.pool.Reset() // the other connections lead to the same server
	}
	c.store.logger.WarnContext(ctx, "commit did not go through", "appends", len(group), "error", err)
	var left []*request
	for _, r := range group {
		if c.triesAgain(r) {
			left = append(left, r)
		} else {
			r.fail(err)
		}
	}
	c.again(left...)
	c.backoff = min(max(firstBackoff, 2*c.backoff), maxBackoff)
	pause(ctx, c.backoff)
}

// triesAgain counts an attempt that failed, and says whether there is another.
func (c *committer) triesAgain(r *request) bool {
	r.failures++
	return r.failures < maxFailures && time.Since(r.began) < c.tryFor
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
