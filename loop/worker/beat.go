package worker

import (
	"context"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
)

// beat keeps the lease until ctx ends or the lease is lost. sent is when the
// last successful heartbeat was sent: the database has counted the lease from
// then on, or later.
func (inc *incarnation) beat(ctx context.Context, sent time.Time) {
	t := time.NewTimer(inc.cfg.Heartbeat)
	defer t.Stop()
	failing := false
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		alive, err := inc.beatOnce(ctx, sent)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && alive:
			if failing {
				inc.log.InfoContext(ctx, "heartbeats arrive again", "after", now.Sub(sent))
			}
			sent, failing = now, false
			t.Reset(inc.cfg.Heartbeat)
		case err == nil:
			inc.lose(ctx, "it was declared dead")
			return
		case time.Since(sent) >= inc.cfg.Outage:
			inc.lose(ctx, "the database cannot be reached")
			return
		default:
			if !failing {
				inc.log.WarnContext(ctx, "heartbeat does not arrive", "error", err)
			}
			failing = true
			t.Reset(inc.cfg.Heartbeat / 4)
		}
	}
}

// beatOnce sends one heartbeat. It does not wait beyond the moment at which the
// worker has to give up.
func (inc *incarnation) beatOnce(ctx context.Context, sent time.Time) (alive bool, err error) {
	limit := min(inc.cfg.Lease/2, max(inc.cfg.Outage-time.Since(sent), inc.cfg.Heartbeat/4))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	alive, orders, err := inc.cfg.Leases.Beat(ctx, inc.id, inc.cfg.Lease)
	if err == nil && alive {
		inc.obey(ctx, orders)
	}
	return alive, err
}

// obey does what the answer to a heartbeat says.
func (inc *incarnation) obey(ctx context.Context, orders loop.Orders) {
	if len(orders.Cancelled) > 0 {
		inc.cfg.Leases.Wake(orders.Cancelled...)
	}
	inc.paused.set(orders.Pauses)
	if orders.Drain && !inc.draining {
		inc.draining = true
		inc.log.InfoContext(ctx, "worker is drained: it hands back its runs and takes no more until the process is started anew")
		close(inc.drain)
	}
}

// lose says that the lease is gone. Whoever waits for that stops every run.
func (inc *incarnation) lose(ctx context.Context, why string) {
	inc.log.ErrorContext(ctx, "worker has lost its lease", "reason", why, "runs", len(inc.runs.ids()))
	close(inc.lost)
}
