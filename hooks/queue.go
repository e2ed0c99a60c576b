package hooks

import (
	"context"
	"sync"
	"time"
)

// Queued says that the hook called with ctx waits for its turn, until done is
// called: the time is a part of what the decision records as Queue, also if the
// hook never gets its turn. It is for hooks that let only so many calls at once
// through to what they ask. In a context that no gate has given it does nothing.
// Calling done again does nothing, so it may be deferred.
func Queued(ctx context.Context) (done func()) {
	q, _ := ctx.Value(queueKey{}).(*queue)
	if q == nil {
		return func() {}
	}
	q.begin()
	return sync.OnceFunc(q.end)
}

type queueKey struct{}

// queue measures how long a call waits. Its zero value has not waited.
type queue struct {
	now func() time.Time
	// outer is that of the hook whose function this call is made by.
	outer *queue

	mu      sync.Mutex
	total   time.Duration
	waiting int
	since   time.Time
}

// queueing returns a context whose hook can say that it waits. The waiting
// begins with the call: it is not entered yet.
func queueing(ctx context.Context, now func() time.Time) (context.Context, *queue) {
	outer, _ := ctx.Value(queueKey{}).(*queue)
	q := &queue{now: now, outer: outer, waiting: 1, since: now()}
	return context.WithValue(ctx, queueKey{}, q), q
}

func (q *queue) begin() {
	for ; q != nil; q = q.outer {
		q.mu.Lock()
		if q.waiting == 0 {
			q.since = q.now()
		}
		q.waiting++
		q.mu.Unlock()
	}
}

func (q *queue) end() {
	for ; q != nil; q = q.outer {
		q.leave()
	}
}

// leave ends one wait of this call alone.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	if q.waiting == 0 {
		q.total += q.now().Sub(q.since)
	}
}

// waited is how long the call has waited so far.
func (q *queue) waited() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting > 0 {
		return q.total + q.now().Sub(q.since)
	}
	return q.total
}
