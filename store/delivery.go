package store

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// defaultPollEvery is the floor under the notifications.
	defaultPollEvery = time.Second
	// deafPollEvery is for where there are none.
	deafPollEvery = 250 * time.Millisecond
)

// delivery is everything between a commit and those who wait for it: in this
// process from memory, in others by one notification per group of commits, and
// a poll under both.
type delivery struct {
	hub      *hub
	notifier *notifier
	listener *listener // nil where nobody listens

	cancel context.CancelFunc
	done   sync.WaitGroup
}

var _ edge = (*delivery)(nil)

func newDelivery(pool *pgxpool.Pool, opts Options) *delivery {
	session, every := opts.session(pool), opts.PollEvery
	switch {
	case every > 0:
	case session == nil:
		every = deafPollEvery
	default:
		every = defaultPollEvery
	}
	// Its own announcements, a process does not need to hear.
	self := uuid.NewString()
	d := &delivery{
		hub:      newHub(poolReader{pool}, every, opts.Logger),
		notifier: newNotifier(pool, self, opts.Logger),
	}
	if session != nil {
		d.listener = newListener(session, self, d.hub, opts.Logger)
	}
	return d
}

// start begins to listen, to poll and to notify. Call it once.
func (d *delivery) start() {
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	d.done.Go(func() { d.hub.run(ctx) })
	if d.listener != nil {
		d.done.Go(func() { d.listener.run(ctx) })
	}
	d.done.Go(func() { d.notifier.run(ctx) })
}

// stop ends all waits, sends the announcements that are still to be sent and
// returns when nothing is left running. The committer has stopped before, the
// pool is closed after. It may be called again, and without a start.
func (d *delivery) stop() {
	if d.cancel != nil {
		d.cancel()
	}
	d.done.Wait()
}

// handOn implements [edge].
func (d *delivery) handOn(group []committed) {
	d.hub.handOn(group)
	d.notifier.add(group)
}
