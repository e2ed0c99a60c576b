package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/seed-2ca4966b/agentd/loop"
)

// worker is one incarnation of a worker: its id is never used again.
type worker struct {
	*process
	// declared says that the others took it for dead: its lease has run out.
	declared  bool
	leaving   chan struct{}
	interrupt chan struct{}
	left, cut bool
	skew      atomic.Int64
	jobs      int
}

func (w *world) startWorker() *worker {
	wk := &worker{
		process: newProcess(fmt.Sprintf("w%d", len(w.workers)+1)),
		leaving: make(chan struct{}), interrupt: make(chan struct{}),
	}
	w.workers = append(w.workers, wk)
	w.say("worker %s starts", wk.name)
	return wk
}

func (w *world) pick(list []*worker) *worker { return list[w.src.draw(len(list))] }

func (w *world) those(is func(*worker) bool) []*worker {
	var out []*worker
	for _, wk := range w.workers {
		if is(wk) {
			out = append(out, wk)
		}
	}
	return out
}

// live are those that nobody takes for dead, ready those that take jobs.
func (w *world) live() []*worker {
	return w.those(func(wk *worker) bool { return !wk.dead && !wk.declared })
}

func (w *world) ready() []*worker {
	return w.those(func(wk *worker) bool { return !wk.dead && !wk.declared && !wk.left })
}

// atWork are the live ones that advance a run.
func (w *world) atWork() []*worker {
	return w.those(func(wk *worker) bool { return !wk.dead && !wk.declared && w.works(wk) })
}

func (w *world) crashed() []*worker {
	return w.those(func(wk *worker) bool { return wk.dead && !wk.declared })
}

// quietWorkers are the live ones of which no goroutine is in a call of the log.
func (w *world) quietWorkers() []*worker {
	return w.those(func(wk *worker) bool { return !wk.dead && !wk.declared && !wk.left && w.still(wk) })
}

func (w *world) quietLeavers() []*worker {
	return w.those(func(wk *worker) bool { return !wk.dead && wk.left && !wk.cut && w.still(wk) })
}

// quietZombies are those that work on though they are taken for dead.
func (w *world) quietZombies() []*worker {
	return w.those(func(wk *worker) bool { return !wk.dead && wk.declared && w.works(wk) && w.still(wk) })
}

func (w *world) works(wk *worker) bool {
	return slices.ContainsFunc(w.actors, func(a *actor) bool { return a.process == wk.process && !a.over.Load() && a.ctx.Err() == nil })
}

func (w *world) still(wk *worker) bool {
	return !slices.ContainsFunc(w.deaf(), func(a *actor) bool { return a.process == wk.process })
}

// take lets a worker have the ith job.
func (w *world) take(i int, wk *worker) {
	j := w.jobs[i]
	w.jobs = slices.Delete(w.jobs, i, i+1)
	wk.jobs++
	a := w.newActor(fmt.Sprintf("%s.%d", wk.name, wk.jobs), wk.process, &wk.skew)
	a.worker, a.job, a.wake = wk.name, j, make(chan int64)
	w.actors = append(w.actors, a)
	w.say("%s takes the job of %s, ticket %d", a.name, j.RunID, j.Ticket)
	e := &loop.Engine{
		Log: &proxy{w: w, a: a}, Agents: w.agents, Hooks: w.hooks, Asker: w.asker, Observers: w.observers,
		NewID: a.newID, Now: a.now, Logger: w.logger, Random: a.random,
	}
	h := loop.Holder{WorkerID: wk.name, Leaving: wk.leaving, Interrupt: wk.interrupt, Paused: func(string, string) bool { return w.paused.Load() }}
	go w.advance(a, e, h)
}

func (w *world) advance(a *actor, e *loop.Engine, h loop.Holder) {
	defer a.stop()
	err := w.guarded(a, func() error { return e.Advance(a.ctx, a.job, h) })
	w.mu.Lock()
	a.over.Store(true)
	if !a.process.dead {
		w.note("%s is through: %v", a.name, err)
	}
	w.mu.Unlock()
	allowed := []error{nil, loop.ErrLeaseLost, loop.ErrPaused, context.Canceled}
	if !a.process.dead && !slices.ContainsFunc(allowed, func(want error) bool { return errors.Is(err, want) }) {
		w.violated("error", "the engine says: %v", err)
	}
}

// guarded makes a violation of a panic.
func (w *world) guarded(a *actor, do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			w.violated("panic", "%s: %v", a.name, v)
		}
	}()
	return do()
}

// crash kills a process: what it was writing at that moment may have gone
// through, and nothing else of it happens.
func (w *world) crash(wk *worker) {
	w.stats.Faults++
	w.stats.Crashes++
	w.say("worker %s dies", wk.name)
	for _, p := range w.waiting() {
		if p.actor.process == wk.process && p.append != nil && w.src.draw(2) == 1 {
			w.say("%s: %s — goes through all the same", p.actor.name, p.what)
			_, _ = w.append(p.actor, *p.append)
		}
	}
	w.bury(wk.process)
	for _, a := range w.actors {
		if a.process == wk.process {
			a.stop()
		}
	}
}

// declareDead is the end of a lease. The worker may be alive.
func (w *world) declareDead(wk *worker) {
	wk.declared = true
	if !wk.dead {
		w.stats.Faults++
		w.stats.Zombies++
	}
	w.say("worker %s is taken for dead; it is: %t", wk.name, wk.dead)
}

// learns is the moment at which a worker hears that it was taken for dead.
func (w *world) learns(wk *worker) {
	w.say("worker %s learns that it was taken for dead", wk.name)
	for _, a := range w.actors {
		if a.process == wk.process {
			a.stop()
		}
	}
}

func (w *world) leave(wk *worker) {
	w.stats.Faults++
	wk.left = true
	close(wk.leaving)
	w.say("worker %s is asked to leave", wk.name)
}

func (w *world) interrupt(wk *worker) {
	wk.cut = true
	close(wk.interrupt)
	w.say("worker %s must leave at once", wk.name)
}

// commands are the commands of a.
func (w *world) commands(a *actor) *loop.Commands {
	return &loop.Commands{
		Log: &proxy{w: w, a: a}, Agents: []string{"demo"}, Tools: map[string][]loop.Tool{"demo": w.agents["demo"].Tools}, Hooks: w.hooks, Asker: w.asker,
		NewID: a.newID, Now: a.now, Logger: w.logger, Random: a.random,
	}
}

// command runs do in a goroutine of a's.
func (w *world) command(a *actor, do func(context.Context) error) {
	w.actors = append(w.actors, a)
	go func() {
		defer a.stop()
		err := w.guarded(a, func() error { return do(a.ctx) })
		w.mu.Lock()
		a.over.Store(true)
		if !a.process.dead {
			w.note("%s is through: %v", a.name, err)
		}
		w.mu.Unlock()
		if !a.process.dead && !errors.Is(err, loop.ErrUnavailable) && !errors.Is(err, context.Canceled) && (errors.Is(err, loop.ErrNotAllowed) || errors.Is(err, loop.ErrLeaseLost)) {
			w.violated("error", "%s: %v", a.name, err)
		}
	}()
}
