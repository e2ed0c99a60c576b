package store

import (
	"context"
	"sync"
)

// asideSlots is how many appends may wait for locked rows at once, each on a
// connection of its own.
const asideSlots = 2

// aside commits appends whose rows somebody else holds, one by one and apart
// from the groups, so that they stall nobody else. While an append is aside,
// its session is in no group.
type aside struct {
	committer *committer
	slots     chan struct{}
	running   sync.WaitGroup
}

func (a *aside) init(c *committer) {
	a.committer = c
	a.slots = make(chan struct{}, asideSlots)
}

func (a *aside) wait() { a.running.Wait() }

func (a *aside) take(ctx context.Context, r *request) {
	c := a.committer
	c.mu.Lock()
	c.alone[r.sessionID] = struct{}{}
	c.mu.Unlock()
	a.running.Go(func() {
		a.commit(ctx, r)
		c.mu.Lock()
		delete(c.alone, r.sessionID)
		c.mu.Unlock()
		c.signal()
	})
}

// commit tries until the append is decided or its caller leaves. Each attempt
// waits for the row as long as lock_timeout allows.
func (a *aside) commit(ctx context.Context, r *request) {
	select {
	case a.slots <- struct{}{}:
	case <-r.ctx.Done():
		return
	case <-ctx.Done():
		r.fail(errNotRunning)
		return
	}
	defer func() { <-a.slots }()
	backoff := firstBackoff
	for r.ctx.Err() == nil {
		if ctx.Err() != nil {
			r.fail(errNotRunning)
			return
		}
		over, err := a.attempt(ctx, r)
		switch {
		case over:
			return
		case err == nil || hasCode(err, codeLockNotAvailable):
			continue
		case transient(err):
			if r.failures++; r.failures < maxFailures {
				pause(ctx, backoff)
				backoff *= 2
				continue
			}
		}
		r.fail(err)
		return
	}
}

// attempt reports whether it answered the request.
func (a *aside) attempt(ctx context.Context, r *request) (over bool, err error) {
	c := a.committer
	outcomes, err := c.write(ctx, []*request{r}, true)
	if err != nil {
		return false, err
	}
	if outcomes[r.sessionID] == outcomeWritten {
		c.finish(r)
		return true, nil
	}
	fates, err := c.store.fates(ctx, []*request{r})
	if err != nil {
		return false, &connectionError{err}
	}
	switch fates[0] {
	case fateMine:
		c.finish(r)
	case fateConflict, fateLeaseLost, fateNotFound:
		r.fail(fates[0].err())
	case fateOpen:
		return false, nil
	}
	return true, nil
}
