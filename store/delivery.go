package store

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// defaultPollEvery is the floor under the notifications.
const defaultPollEvery = time.Second

// delivery is everything between a commit and those who wait for it: in this
// process from memory, in others by one notification per group of commits, and
// a poll under both.
type delivery struct {
	hub      *hub
	notifier *notifier
	listener *listener

	cancel context.CancelFunc
	done   sync.WaitGroup
}

var _ edge = (*delivery)(nil)

// newDelivery takes 0 for the default of every.
func newDelivery(pool *pgxpool.Pool, every time.Duration, logger *slog.Logger) *delivery {
	if every <= 0 {
		every = defaultPollEvery
	}
	// Its own announcements, a process does not need to hear.
	self := uuid.NewString()
	h := newHub(poolReader{pool}, every, logger)
	return &delivery{
		hub:      h,
		notifier: newNotifier(pool, self, logger),
		listener: newListener(pool.Config().ConnConfig, self, h, logger),
	}
}

// start begins to listen, to poll and to notify. Call it once.
func (d *delivery) start() {
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	d.done.Go(func() { d.hub.run(ctx) })
	d.done.Go(func() { d.listener.run(ctx) })
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
