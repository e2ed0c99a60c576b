package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/seed-2ca4966b/agentd/loop"
)

const (
	// settle is how long runs that were interrupted may take to be handed back.
	settle = 3 * time.Second
	// hardStop is how long runs whose context has ended may take to return.
	hardStop = 3 * time.Second
)

// incarnation is a worker under one id, from its row in the table of workers
// to its end. When it is lost, another one takes its place.
type incarnation struct {
	cfg Config
	id  string
	log *slog.Logger

	leaving   chan struct{} // see loop.Holder
	interrupt chan struct{}
	// cancel ends the context of all runs, whose Done channel is over: from
	// then on the engine writes nothing more.
	cancel context.CancelFunc
	over   <-chan struct{}
	runs   running
	river  *river.Client[pgx.Tx]

	// paused is what may not be claimed now.
	paused *paused
	// drain is closed when somebody asked for that; draining says that it is,
	// and belongs to the heartbeat.
	drain    chan struct{}
	draining bool
	// lost is closed when the lease is gone.
	lost chan struct{}
	// background is the heartbeat and the sweeper.
	background sync.WaitGroup
	halt       context.CancelFunc // of background
}

// begin registers a fresh worker, in place of the former one of this process if
// there was one, and begins to take jobs. Once it has returned, ctx means
// nothing.
func begin(ctx context.Context, cfg Config, former string) (_ *incarnation, err error) {
	inc := &incarnation{
		cfg: cfg, id: cfg.NewID(), paused: newPaused(), drain: make(chan struct{}),
		leaving: make(chan struct{}), interrupt: make(chan struct{}), lost: make(chan struct{}),
	}
	inc.log = cfg.Logger.With("worker", inc.id)
	lasting := context.WithoutCancel(ctx)
	runs, cancel := context.WithCancel(lasting)
	inc.cancel, inc.over = cancel, runs.Done()
	defer func() {
		if err != nil {
			inc.cancel()
		}
	}()
	if inc.river, err = newRiver(cfg, inc); err != nil {
		return nil, fmt.Errorf("make queue client: %w", err)
	}
	sent := time.Now()
	orders, err := cfg.Leases.Join(ctx, loop.Joining{ID: inc.id, Version: cfg.Version, Host: cfg.Host, Former: former}, cfg.Lease)
	if err != nil {
		return nil, err
	}
	inc.obey(ctx, orders)
	background, halt := context.WithCancel(lasting)
	inc.halt = halt
	inc.background.Go(func() { inc.beat(background, sent) })
	inc.background.Go(func() { newSweeper(inc).run(background) })
	giveUp := context.AfterFunc(ctx, inc.cancel)
	err = inc.river.Start(runs)
	if !giveUp() {
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		inc.stop(lasting)
		inc.retire(lasting)
		return nil, fmt.Errorf("start queue client: %w", err)
	}
	inc.log.InfoContext(ctx, "worker takes jobs")
	return inc, nil
}

// isOver reports whether the runs were stopped.
func (inc *incarnation) isOver() bool {
	select {
	case <-inc.over:
		return true
	default:
		return false
	}
}

// leave hands back what this worker holds: each run finishes its step or, after
// the grace, is interrupted in it. It skips what is left of that when hurry is
// closed or the lease is lost.
func (inc *incarnation) leave(ctx context.Context, hurry <-chan struct{}) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		inc.stopRiver(ctx)
	}()
	close(inc.leaving)
	done := inc.waitFor(stopped, inc.cfg.Grace, hurry)
	if !done {
		inc.log.WarnContext(ctx, "runs do not finish their step in time and are interrupted", "count", len(inc.runs.ids()))
		close(inc.interrupt)
		done = inc.waitFor(stopped, settle, hurry)
	}
	if !done {
		inc.log.ErrorContext(ctx, "runs are cut off", "count", len(inc.runs.ids()))
	}
	if inc.stop(ctx) {
		inc.retire(ctx)
	}
	<-stopped
}

// waitFor reports whether stopped was closed in time.
func (inc *incarnation) waitFor(stopped <-chan struct{}, limit time.Duration, hurry <-chan struct{}) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-stopped:
		return true
	case <-t.C:
	case <-hurry:
	case <-inc.lost:
	}
	return false
}

// stop stops every run at once, if there still are any, and then the heartbeat.
// It reports whether all runs have returned.
func (inc *incarnation) stop(ctx context.Context) bool {
	inc.cancel()
	t := time.NewTimer(hardStop)
	defer t.Stop()
	returned := true
	select {
	case <-inc.runs.drained():
	case <-t.C:
		returned = false
		inc.log.ErrorContext(ctx, "runs do not return: their lease has to run out", "count", len(inc.runs.ids()))
	}
	inc.halt()
	inc.background.Wait()
	inc.cfg.Leases.Close()
	return returned
}

// stopRiver returns when River has nothing left running. While the database is
// away that takes as long as River tries to finish its jobs.
func (inc *incarnation) stopRiver(ctx context.Context) {
	_ = inc.river.Stop(context.WithoutCancel(ctx)) // it errs only when its context ends
}

// retire says that this worker is no more and all its runs have returned, so
// that others need not wait for its lease to run out.
func (inc *incarnation) retire(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, inc.cfg.Lease)
	defer cancel()
	if err := inc.cfg.Leases.Leave(ctx, inc.id); err != nil {
		inc.log.WarnContext(ctx, "worker is not signed off: its lease has to run out", "error", err)
	}
}
