package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	// sweepLimit bounds what one look returns; the next one goes on.
	sweepLimit = 1000
	// sweepWidth is how many runs are queued again at the same time. They share
	// commits.
	sweepWidth = 16
	// sweepTimeout ends a look at a database that does not answer.
	sweepTimeout = 10 * time.Second
	// Looks that read the queue are made at every lookAgain-th sweep, and when a
	// worker was found dead.
	lookAgain = 4
	// jobSettles is how long after the end of a job its run counts as lost. A
	// run whose job ends again and again without a claim must not fill its log.
	jobSettles = 5 * time.Second

	forgetEvery = time.Hour
	keepGone    = 24 * time.Hour
)

// The causes of run.queued.
const (
	causeDue     = "due"
	causeJobLost = "job_lost"
	causeResumed = "resumed"
	causeCrowded = "crowded"
)

// sweeper finds workers that are dead and runs that nobody advances. Every
// worker has one, and any number may do the same work at once: what they append
// holds only if the run is still as they found it. It is used by one goroutine.
type sweeper struct {
	inc   *incarnation
	actor event.Actor

	sweeps int
	// resumed says that a pause has ended since the last look for lost jobs.
	resumed bool
	// left and fetched are runs that this worker seems to have, while no engine
	// works on them, with the time of the first look that found them so.
	left       map[string]time.Time
	fetched    map[string]time.Time
	forgetting time.Time // when rows were last deleted
	failing    bool
}

func newSweeper(inc *incarnation) *sweeper {
	return &sweeper{inc: inc, actor: event.System("worker:" + inc.id)}
}

func (s *sweeper) run(ctx context.Context) {
	every := s.inc.cfg.Sweep
	t := time.NewTimer(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-s.inc.paused.over:
			s.resumed = true
		case <-ctx.Done():
			return
		}
		err := s.sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !s.failing:
			s.inc.log.WarnContext(ctx, "sweep for dead workers", "error", err)
		case err == nil && s.failing:
			s.inc.log.InfoContext(ctx, "sweeps for dead workers succeed again")
		}
		s.failing = err != nil
		t.Reset(every*3/4 + rand.N(every/2))
	}
}

func (s *sweeper) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	cfg := s.inc.cfg
	// A worker whose connection is lost has made another one before stale.
	stale := cfg.Heartbeat * 3 / 2
	dead, err := cfg.Leases.DeclareDead(ctx, s.inc.id, cfg.Lease, stale)
	for _, id := range dead {
		s.inc.log.WarnContext(ctx, "worker declared dead", "dead", id)
	}
	if err != nil {
		return err
	}
	// A worker that is well has sent a heartbeat by then, and its answer said
	// which runs are to stop.
	orphans, err := cfg.Leases.Orphans(ctx, cfg.Heartbeat*5/4, sweepLimit)
	// What fails for one run, or one look, keeps nobody else from the rest.
	failed := errors.Join(err, s.release(ctx, orphans))
	due, err := cfg.Leases.Due(ctx, s.inc.paused.known(), sweepLimit)
	failed = errors.Join(failed, err, s.requeue(ctx, due, causeDue), s.resume(ctx))
	expired, err := cfg.Leases.Expired(ctx, sweepLimit)
	failed = errors.Join(failed, err, s.expire(ctx, expired))
	s.sweeps++
	if s.sweeps%lookAgain != 0 && len(dead) == 0 && len(orphans) == 0 {
		return failed
	}
	return errors.Join(failed, s.lookAgain(ctx))
}

// resume queues again what was held back by a pause that is over: here, and
// elsewhere by a worker that may be gone.
func (s *sweeper) resume(ctx context.Context) error {
	failed := each(ctx, s.inc.paused.free(), func(ctx context.Context, j loop.Job) error {
		err := s.requeue(ctx, []loop.Job{j}, causeResumed)
		if err == nil {
			s.inc.paused.forget(j)
		}
		return err
	})
	if !s.resumed {
		return failed
	}
	lost, err := s.inc.cfg.Leases.Lost(ctx, 0, s.inc.paused.known(), sweepLimit)
	if err = errors.Join(err, s.requeue(ctx, lost, causeResumed)); err == nil {
		s.resumed = len(lost) == sweepLimit
	}
	return errors.Join(failed, err)
}

// lookAgain finds what went wrong without anybody's death, or before a claim.
func (s *sweeper) lookAgain(ctx context.Context) error {
	leases := s.inc.cfg.Leases
	lost, err := leases.Lost(ctx, jobSettles, s.inc.paused.known(), sweepLimit)
	failed := errors.Join(err, s.requeue(ctx, lost, causeJobLost))
	passed, err := leases.Passed(ctx, sweepLimit)
	failed = errors.Join(failed, err, s.beginNext(ctx, passed))
	held, err := leases.Held(ctx, s.inc.id, s.inc.runs.ids())
	if err != nil {
		return errors.Join(failed, err) // nothing is known of what was found before
	}
	s.left, held = aged(s, s.left, held, func(r loop.Release) (key, runID string) { return r.RunID, r.RunID })
	failed = errors.Join(failed, s.release(ctx, held))
	fetched, err := leases.Fetched(ctx, s.inc.id, s.inc.runs.ids())
	if err != nil {
		return errors.Join(failed, err)
	}
	s.fetched, fetched = aged(s, s.fetched, fetched, func(j loop.Job) (key, runID string) {
		return fmt.Sprintf("%s/%d", j.RunID, j.Ticket), j.RunID
	})
	failed = errors.Join(failed, s.requeue(ctx, fetched, causeJobLost))
	if time.Since(s.forgetting) < forgetEvery {
		return failed
	}
	s.forgetting = time.Now()
	return errors.Join(failed, leases.Forget(ctx, keepGone))
}

// aged returns what was found now, with the time at which it was first found,
// and of that what has been so for a whole lease.
func aged[T any](s *sweeper, first map[string]time.Time, found []T, name func(T) (key, runID string)) (map[string]time.Time, []T) {
	now := time.Now()
	next := make(map[string]time.Time, len(found))
	var old []T
	for _, x := range found {
		key, runID := name(x)
		if s.inc.runs.has(runID) {
			continue
		}
		since, ok := first[key]
		if !ok {
			since = now
		}
		next[key] = since
		if now.Sub(since) >= s.inc.cfg.Lease {
			old = append(old, x)
		}
	}
	return next, old
}

func (s *sweeper) release(ctx context.Context, runs []loop.Release) error {
	return each(ctx, runs, func(ctx context.Context, r loop.Release) error {
		r.Actor = s.actor
		done, err := s.inc.cfg.Commands.ReleaseDead(ctx, r)
		if err != nil {
			return fmt.Errorf("release run %s: %w", r.RunID, err)
		}
		if done {
			s.inc.log.WarnContext(ctx, "run taken away from a worker that is gone or does not hear", "run", r.RunID, "session", r.SessionID, "dead", r.WorkerID)
		}
		return nil
	})
}

// expire makes visible that the time to answer is over. An answer that comes now
// is refused in any case.
func (s *sweeper) expire(ctx context.Context, approvals []loop.ApprovalRef) error {
	return each(ctx, approvals, func(ctx context.Context, a loop.ApprovalRef) error {
		done, err := s.inc.cfg.Commands.ExpireApproval(ctx, a.TenantID, a.ApprovalID)
		if err != nil && !errors.Is(err, loop.ErrNotFound) {
			return fmt.Errorf("expire approval %s: %w", a.ApprovalID, err)
		}
		if done {
			s.inc.log.InfoContext(ctx, "nobody answered an approval in time", "approval", a.ApprovalID)
		}
		return nil
	})
}

func (s *sweeper) requeue(ctx context.Context, jobs []loop.Job, cause string) error {
	return each(ctx, jobs, func(ctx context.Context, j loop.Job) error {
		done, err := s.inc.cfg.Commands.Requeue(ctx, j, cause, s.actor)
		if err != nil {
			return fmt.Errorf("queue run %s again: %w", j.RunID, err)
		}
		if done {
			s.inc.log.InfoContext(ctx, "run queued again", "run", j.RunID, "session", j.SessionID, "cause", cause)
		}
		return nil
	})
}

func (s *sweeper) beginNext(ctx context.Context, passed []loop.Job) error {
	return each(ctx, passed, func(ctx context.Context, j loop.Job) error {
		done, err := s.inc.cfg.Commands.BeginNext(ctx, j, s.actor)
		if err != nil {
			return fmt.Errorf("begin the next run of session %s: %w", j.SessionID, err)
		}
		if done {
			s.inc.log.WarnContext(ctx, "the next run is begun: whoever ended the last one did not", "session", j.SessionID)
		}
		return nil
	})
}

// each calls f for every item, in an order that differs from that of other
// sweepers, so that they share the work. One that fails does not keep the
// others from their turn.
func each[T any](ctx context.Context, items []T, f func(context.Context, T) error) error {
	rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	for _, x := range items {
		g.Go(func() error { return f(ctx, x) })
	}
	return g.Wait()
}
