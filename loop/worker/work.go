package worker

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	// runTimeout ends a run's job. It must be finite: River never rescues a
	// job that has none.
	runTimeout = 6 * time.Hour
	// What has ended is of no interest to anybody but a person who looks.
	keepEnded     = 2 * time.Minute
	keepDiscarded = 10 * time.Minute

	fetchCooldown = 5 * time.Millisecond
)

// newRiver returns the client that fetches jobs for inc.
func newRiver(cfg Config, inc *incarnation) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &advance{inc: inc})
	return river.NewClient(riverpgxv5.New(cfg.Pool), &river.Config{
		ID:      inc.id,
		Schema:  schema,
		Logger:  slog.New(newRiverLog(cfg.Logger.Handler())),
		Workers: workers,
		Queues: map[string]river.QueueConfig{queueName: {
			MaxWorkers: cfg.MaxWorkers, FetchCooldown: fetchCooldown, FetchPollInterval: cfg.Poll,
		}},
		// Here as well: the limiter of wake-ups reads the client's, and with
		// the default a job would wait for the next insert.
		FetchCooldown:               fetchCooldown,
		FetchPollInterval:           cfg.Poll,
		PollOnly:                    cfg.PollOnly,
		MaxAttempts:                 1,
		JobTimeout:                  runTimeout,
		CompletedJobRetentionPeriod: keepEnded,
		CancelledJobRetentionPeriod: keepEnded,
		DiscardedJobRetentionPeriod: keepDiscarded,
	})
}

// advance is River's worker for the jobs of one incarnation.
type advance struct {
	river.WorkerDefaults[Args]
	inc *incarnation
}

// Timeout implements river.Worker.
func (a *advance) Timeout(*river.Job[Args]) time.Duration { return runTimeout }

// Work implements river.Worker. It always returns nil: the job is done when the
// engine is, whatever came of the run, and River must not try again. A run that
// was left behind is found by the sweeper.
func (a *advance) Work(ctx context.Context, job *river.Job[Args]) error {
	inc, j := a.inc, job.Args.job()
	inc.runs.enter(j.RunID)
	defer inc.runs.leave(j.RunID)
	if inc.isOver() {
		return nil // this worker holds nothing any more
	}
	log := inc.log.With("run", j.RunID, "session", j.SessionID, "ticket", j.Ticket)
	defer func() {
		if v := recover(); v != nil {
			log.ErrorContext(ctx, "engine panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	err := inc.cfg.Engine.Advance(ctx, j, loop.Holder{
		WorkerID: inc.id, Leaving: inc.leaving, Interrupt: inc.interrupt, Paused: inc.paused.covers, Alone: inc.alone,
	})
	var held *loop.PausedError
	switch {
	case err == nil:
	case errors.As(err, &held):
		inc.paused.hold(j, held.Agent)
		log.InfoContext(ctx, "run is paused and stays queued", "agent", held.Agent)
	case errors.Is(err, loop.ErrCrowded):
		log.InfoContext(ctx, "run is not claimed beside another one over which workers have died", "error", a.again(ctx, j))
	case errors.Is(err, loop.ErrLeaseLost):
		log.WarnContext(ctx, "run was taken away")
	case inc.isOver():
		log.WarnContext(ctx, "run was stopped", "error", err)
	default:
		log.ErrorContext(ctx, "run was not advanced", "error", err)
	}
	return nil
}

// again queues a run that was not claimed. If that fails, its job counts as lost.
func (a *advance) again(ctx context.Context, j loop.Job) error {
	_, err := a.inc.cfg.Commands.Requeue(ctx, j, causeCrowded, event.System("worker:"+a.inc.id))
	return err
}

// running counts the runs that the engine has in its hands. The zero value is
// ready.
type running struct {
	mu    sync.Mutex
	count map[string]int
	idle  chan struct{} // closed when count is empty; nil if nobody waits
}

func (r *running) enter(runID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == nil {
		r.count = map[string]int{}
	}
	r.count[runID]++
}

func (r *running) leave(runID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[runID]--
	if r.count[runID] == 0 {
		delete(r.count, runID)
	}
	if len(r.count) == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

func (r *running) has(runID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[runID] > 0
}

// ids are never nil.
func (r *running) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]string, 0, len(r.count))
	for id := range r.count {
		ids = append(ids, id)
	}
	return ids
}

// drained returns a channel that is closed as soon as there are none.
func (r *running) drained() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	idle := r.idle
	if len(r.count) == 0 {
		close(r.idle)
		r.idle = nil
	}
	return idle
}
