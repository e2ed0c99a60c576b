package worker

import (
	"context"
	"time"
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
	alive, cancelled, err := inc.cfg.Leases.Beat(ctx, inc.id, inc.cfg.Lease)
	if len(cancelled) > 0 {
		inc.cfg.Leases.Wake(cancelled...)
	}
	return alive, err
}

// lose says that the lease is gone. Whoever waits for that stops every run.
func (inc *incarnation) lose(ctx context.Context, why string) {
	inc.log.ErrorContext(ctx, "worker has lost its lease", "reason", why, "runs", len(inc.runs.ids()))
	close(inc.lost)
}
