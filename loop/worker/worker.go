package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// beginTimeout ends an attempt to begin anew that gets no answer.
const beginTimeout = 10 * time.Second

// Worker advances runs in this process. It is made by [New] and safe for
// concurrent use.
type Worker struct {
	cfg Config

	mu      sync.Mutex
	phase   phase
	current string // id of the incarnation that takes jobs, "" if none does

	draining atomic.Bool
	drained  chan struct{} // closed when it has nothing left, and takes nothing more
	stopping chan struct{} // closed by the first Stop
	hurry    chan struct{} // closed when a Stop has no more time
	rushed   sync.Once
	done     chan struct{} // closed when nothing is left running
}

type phase int

const (
	phaseNew phase = iota
	phaseRunning
	phaseStopped
)

// New returns a worker that is not started. It does not ask the database for
// anything.
func New(cfg Config) (*Worker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Worker{
		cfg: cfg, drained: make(chan struct{}), stopping: make(chan struct{}), hurry: make(chan struct{}), done: make(chan struct{}),
	}, nil
}

// ID returns the id under which the worker takes jobs now, and "" while it
// takes none: before Start, after Stop or a drain has begun, and from the loss of its lease
// until the database has answered. It changes with every loss.
func (w *Worker) ID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

// Draining reports whether somebody asked, in the table of workers, for the
// worker to hand back its runs and take no more. That holds until the process
// ends.
func (w *Worker) Draining() bool { return w.draining.Load() }

// Drained returns a channel that is closed when a drained worker has nothing
// left.
func (w *Worker) Drained() <-chan struct{} { return w.drained }

// Start registers the worker and begins to take jobs. It returns an error if
// the database does not answer; from then on the worker survives that. It may
// be called once. Ending ctx after Start has returned does not stop the worker.
func (w *Worker) Start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase != phaseNew {
		return errors.New("start worker: it was started or stopped before")
	}
	inc, err := begin(ctx, w.cfg, "")
	if err != nil {
		return err
	}
	w.phase = phaseRunning
	w.current = inc.id
	go w.supervise(context.WithoutCancel(ctx), inc)
	return nil
}

// Stop stops taking jobs, lets each run finish its current step or interrupts
// it after the grace, and hands the runs back to other workers; it returns when
// nothing is left running. When ctx ends first the runs are cut off, which
// others see at once if the database can be told, and else when the lease has
// run out; Stop then returns the error of ctx. It may be called again, and
// before Start. Stop the worker before the store that its engine appends to.
func (w *Worker) Stop(ctx context.Context) error {
	w.mu.Lock()
	was := w.phase
	w.phase = phaseStopped
	if was == phaseRunning {
		w.current = ""
		close(w.stopping)
	}
	if was == phaseNew {
		close(w.done)
	}
	w.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
	}
	w.rushed.Do(func() { close(w.hurry) })
	t := time.NewTimer(2 * hardStop)
	defer t.Stop()
	select {
	case <-w.done:
	case <-t.C:
	}
	return ctx.Err()
}

// supervise replaces an incarnation that is lost.
func (w *Worker) supervise(ctx context.Context, inc *incarnation) {
	defer close(w.done)
	var former sync.WaitGroup
	defer former.Wait()
	for inc != nil {
		select {
		case <-w.stopping:
			inc.leave(ctx, w.hurry)
			return
		case <-inc.drain:
			w.handOver(ctx, inc)
			<-w.stopping
			return
		case <-inc.lost:
		}
		w.set("")
		lost := inc
		returned := lost.stop(ctx)
		former.Go(func() { lost.stopRiver(ctx) })
		if inc = w.again(ctx, lost.id); inc == nil {
			return
		}
		w.set(inc.id)
		if returned {
			lost.retire(ctx)
		}
	}
}

// handOver is the drain: what Stop does, but for the end.
func (w *Worker) handOver(ctx context.Context, inc *incarnation) {
	w.draining.Store(true)
	w.set("")
	inc.leave(ctx, w.hurry)
	inc.log.InfoContext(ctx, "worker is drained")
	close(w.drained)
}

// again begins a new incarnation in place of the former, as soon as the database
// lets it. It returns nil when the worker is stopped.
func (w *Worker) again(ctx context.Context, former string) *incarnation {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		select {
		case <-w.stopping:
			cancel()
		case <-ctx.Done():
		}
	})
	for {
		inc, err := w.attempt(ctx, former)
		if err == nil {
			return inc
		}
		if ctx.Err() == nil {
			w.cfg.Logger.WarnContext(ctx, "worker cannot begin anew yet", "error", err)
		}
		select {
		case <-time.After(w.cfg.Heartbeat/2 + rand.N(w.cfg.Heartbeat)):
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *Worker) attempt(ctx context.Context, former string) (*incarnation, error) {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	return begin(ctx, w.cfg, former)
}

func (w *Worker) set(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase == phaseRunning {
		w.current = id
	}
}
