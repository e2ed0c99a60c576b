package store

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
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

func newAside(c *committer) *aside {
	return &aside{committer: c, slots: make(chan struct{}, asideSlots)}
}

// take goes on until ctx ends, which is the committer's own.
func (a *aside) take(ctx context.Context, requests ...*request) {
	c := a.committer
	for _, r := range requests {
		c.mu.Lock()
		c.alone[r.sessionID] = struct{}{}
		c.mu.Unlock()
		a.running.Go(func() {
			a.commit(ctx, r)
			c.mu.Lock()
			delete(c.alone, r.sessionID)
			c.mu.Unlock()
			nudge(c.wake)
		})
	}
}

// commit tries until the append is decided, its caller leaves or the row was
// locked for too long. Each attempt waits for it as long as lock_timeout allows.
func (a *aside) commit(ctx context.Context, r *request) {
	select {
	case a.slots <- struct{}{}:
	case <-r.left:
		return
	case <-ctx.Done():
		r.fail(errNotRunning)
		return
	}
	defer func() { <-a.slots }()
	conn := ownConn{pool: a.committer.store.pool}
	defer conn.release()
	backoff := firstBackoff
	for over := false; !over && !r.abandoned(); {
		err := conn.use(ctx, func(ctx context.Context, conn *pgxpool.Conn) (err error) {
			over, err = a.attempt(ctx, conn, r)
			return err
		})
		switch {
		case err == nil || hasCode(err, codeLockNotAvailable) && time.Since(r.began) < a.committer.tryFor:
			continue
		case ctx.Err() != nil:
			err = errNotRunning
		case transient(err) && !hasCode(err, codeLockNotAvailable):
			if a.committer.triesAgain(r) {
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
func (a *aside) attempt(ctx context.Context, conn *pgxpool.Conn, r *request) (over bool, err error) {
	c := a.committer
	outcomes, err := c.store.write(ctx, conn, []*request{r}, true)
	if err != nil {
		return false, err
	}
	open := c.finishWritten([]*request{r}, outcomes)
	if len(open) == 0 {
		return true, nil
	}
	fates, err := fates(ctx, conn, open)
	if err != nil {
		return false, err
	}
	return c.decided(r, fates[0]), nil
}
