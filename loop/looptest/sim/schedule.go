package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
)

// choice is something that can happen next.
type choice struct {
	weight int
	do     func()
}

// actAtRandom lets one thing happen. The first choice is that what is under way
// goes on.
func (w *world) actAtRandom() {
	points := w.waiting()
	wakes, pushes := w.wakes(), w.pushes()
	var all []choice
	add := func(possible bool, weight int, do func()) {
		if possible && weight > 0 {
			all = append(all, choice{weight, do})
		}
	}
	f := 0 // what goes wrong is spread over the schedule, more or less
	if w.stats.Faults < w.script.faults {
		f = w.script.pace
	}
	add(len(points) > 0, 240, func() { w.grant(points[w.src.draw(len(points))]) })
	add(len(w.jobs) > 0 && len(w.ready()) > 0, 60, func() { w.take(w.src.draw(len(w.jobs)), w.pick(w.ready())) })
	add(w.client.left > 0, 30, w.clientActs)
	add(len(w.client.again) > 0, 24, w.clientAsksAgain)
	add(len(wakes) > 0, 32, func() { w.deliver(wakes[w.src.draw(len(wakes))]) })
	add(len(pushes) > 0, 12, func() { w.follow(pushes[w.src.draw(len(pushes))]) })
	add(w.sweepable() && len(w.live()) > 0, 32, func() { w.sweep(w.pick(w.live())) })
	add(len(w.inLog()) == 0, 20, func() { w.pass(durations[w.src.draw(len(durations))]) })
	add(len(w.live()) < w.script.workers, 24, func() { w.startWorker() })
	add(len(w.crashed()) > 0, 24, func() { w.declareDead(w.pick(w.crashed())) })
	add(len(w.quietZombies()) > 0, 10, func() { w.learns(w.pick(w.quietZombies())) })
	add(len(w.quietLeavers()) > 0, 8, func() { w.interrupt(w.pick(w.quietLeavers())) })
	add(len(w.atWork()) > 0, 8*f, func() { w.crash(w.pick(w.atWork())) })
	add(len(w.atWork()) > 0, 6*f, func() { w.declareDead(w.pick(w.atWork())) })
	add(len(w.quietWorkers()) > 0, 2*f, func() { w.leave(w.pick(w.quietWorkers())) })
	add(true, f, w.jump)
	add(true, f, w.togglePause)
	add(len(w.jobs) > 0, f, func() { w.doubleJob(w.src.draw(len(w.jobs))) })
	add(len(w.jobs) > 0, f, func() { w.loseJob(w.src.draw(len(w.jobs))) })
	weights := make([]int, len(all))
	for i, c := range all {
		weights[i] = c.weight
	}
	all[w.src.oneOf(weights...)].do()
}

var durations = []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 600 * time.Millisecond, 2500 * time.Millisecond, 12 * time.Second, 70 * time.Second}

// actInOrder does what has waited longest, as long as there is something to do.
func (w *world) actInOrder() bool {
	points := w.waiting()
	wakes, pushes := w.wakes(), w.pushes()
	switch {
	case len(points) > 0:
		w.grant(points[0])
	case w.paused.Load():
		w.togglePause()
	case len(w.ready()) == 0:
		w.startWorker()
	case len(w.jobs) > 0:
		w.take(0, w.ready()[0])
	case len(wakes) > 0:
		w.deliver(wakes[0])
	case len(pushes) > 0:
		w.follow(pushes[0])
	case len(w.client.again) > 0:
		w.clientAsksAgain()
	case len(w.quietZombies()) > 0:
		w.learns(w.quietZombies()[0])
	case len(w.crashed()) > 0:
		w.declareDead(w.crashed()[0])
	case w.sweepable():
		w.sweep(w.ready()[0])
	case w.personAnswers():
	case w.flush():
	case w.busy():
		w.pass(70 * time.Second)
	case !w.ended():
		w.pass(time.Minute)
	default:
		return false
	}
	return true
}

// grant lets a point go on, in the beginning perhaps into a fault.
func (w *world) grant(p *point) {
	if p.log && !w.calm && w.stats.Faults < w.script.faults {
		percent := 4
		if p.append != nil {
			percent = 16
		}
		if w.src.rarely(percent) {
			p.fault = lost
			w.stats.Faults++
		}
		if p.fault == lost && p.append != nil && w.src.draw(2) == 1 {
			p.fault = unacknowledged
		}
	}
	w.say("%s: %s%s", p.actor.name, p.what, []string{"", " — lost", " — written, and its answer lost"}[p.fault])
	w.letGo(p)
}

// pass lets time go on, until somebody has something to do.
func (w *world) pass(d time.Duration) {
	select {
	case <-w.arrived:
	default:
	}
	from := time.Now()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.arrived:
	}
	w.say("%s pass", time.Since(from))
}

// jump moves a clock.
func (w *world) jump() {
	by := []time.Duration{time.Second, time.Minute, time.Hour, -time.Second, -time.Minute, -time.Hour}[w.src.draw(6)]
	if n := w.src.draw(len(w.workers) + 1); n > 0 {
		wk := w.workers[n-1]
		wk.skew.Add(int64(by))
		w.say("the clock of %s jumps by %s", wk.name, by)
		return
	}
	w.lease = max(0, w.lease+by)
	w.say("the clock of the log jumps by %s", by)
}

func (w *world) togglePause() {
	now := !w.paused.Load()
	w.paused.Store(now)
	w.say("paused: %t", now)
}

func (w *world) doubleJob(i int) {
	w.stats.Faults++
	w.jobs = append(w.jobs, w.jobs[i])
	w.say("the job of %s, ticket %d, is doubled", w.jobs[i].RunID, w.jobs[i].Ticket)
}

func (w *world) loseJob(i int) {
	w.stats.Faults++
	w.say("the job of %s, ticket %d, is lost", w.jobs[i].RunID, w.jobs[i].Ticket)
	w.jobs = slices.Delete(w.jobs, i, i+1)
}

// inLog are the actors that are in a call of the log. While there are any, no
// time passes.
func (w *world) inLog() []*actor {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*actor
	for _, p := range w.points {
		if p.log {
			out = append(out, p.actor)
		}
	}
	return out
}

// deaf are the actors that are in a call of the log, or about to repeat one. No
// signal is given to them, for the reason that [world.waiting] has.
func (w *world) deaf() []*actor {
	out := w.inLog()
	for _, a := range w.actors {
		if a.retrying.Load() && !a.over.Load() {
			out = append(out, a)
		}
	}
	return out
}

// wakes are the actors that have yet to hear of their session.
func (w *world) wakes() []*actor {
	deaf := w.deaf()
	var out []*actor
	for _, a := range w.actors {
		if !a.over.Load() && !a.process.dead && a.pending > 0 && !slices.Contains(deaf, a) {
			out = append(out, a)
		}
	}
	return out
}

// deliver tells a of its session, if it listens.
func (w *world) deliver(a *actor) {
	reached := a.pending
	a.pending = 0
	select {
	case a.wake <- reached:
		w.say("%s hears of seq %d", a.name, reached)
	default:
		w.say("%s does not listen", a.name)
	}
}

// busy says that goroutines are under way that wait for time alone.
func (w *world) busy() bool {
	w.actors = slices.DeleteFunc(w.actors, func(a *actor) bool { return a.over.Load() })
	return slices.ContainsFunc(w.actors, func(a *actor) bool { return !a.process.dead })
}

func (w *world) ended() bool {
	for _, s := range w.sessions {
		for _, r := range s.state.Runs {
			if !r.Status.Terminal() {
				return false
			}
		}
	}
	return true
}

// open tells what has not come to an end.
func (w *world) open() string {
	var out []string
	for _, id := range w.ids {
		for _, r := range w.sessions[id].state.Runs {
			if !r.Status.Terminal() {
				out = append(out, fmt.Sprintf("run %s is %s, ticket %d, worker %q, not before %v", r.ID, r.Status, r.Ticket, r.WorkerID, r.NotBefore))
			}
		}
	}
	for _, a := range w.actors {
		if !a.over.Load() {
			out = append(out, a.name+" goes on")
		}
	}
	return strings.Join(out, "; ")
}

// runOf finds a run in what was appended.
func (w *world) runOf(sessionID, runID string) (r loop.Run) {
	if s, ok := w.sessions[sessionID]; ok {
		r, _ = s.state.Run(runID)
	}
	return r
}
