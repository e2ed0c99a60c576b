package sim

import (
	"cmp"
	"context"
	"slices"

	"github.com/seed-2ca4966b/agentd/loop"
)

// process is something that can die: an incarnation of a worker, or what a
// client has asked a server for.
type process struct {
	name string
	// gone is closed when it dies: nothing of it happens any more.
	gone chan struct{}
	dead bool
}

func newProcess(name string) *process { return &process{name: name, gone: make(chan struct{})} }

// point is a place where a goroutine waits to be let go.
type point struct {
	// actor and what name it: no two that wait have the same.
	actor *actor
	what  string
	born  int // the step at which it began to wait
	// log says that it is a call of the log, by the goroutine that advances the
	// run or does the command. No signal reaches that one meanwhile.
	log bool
	// hook says that it is an answer of a hook, or that a tool is about to say how far
	// it is.
	hook bool
	// obeys says that it ends with its context.
	obeys bool
	// append is what is to be written, fault what comes of it.
	append *loop.Append
	fault  fault
	grant  chan struct{}
}

// fault is what goes wrong with a call of the log.
type fault int

const (
	works fault = iota
	// lost: it does not go through, and fails.
	lost
	// unacknowledged: it goes through, and fails.
	unacknowledged
)

// pause waits until p is let go. It returns false if its process died, or if
// its context ended and it obeys.
func (w *world) pause(ctx context.Context, p *point) bool {
	w.mu.Lock()
	if p.actor.process.dead {
		w.mu.Unlock()
		return false
	}
	p.born, p.grant = w.step, make(chan struct{})
	w.points = append(w.points, p)
	w.mu.Unlock()
	select {
	case w.arrived <- struct{}{}:
	default:
	}
	var ended <-chan struct{}
	if p.obeys {
		ended = ctx.Done()
	}
	select {
	case <-p.grant:
		return true
	case <-p.actor.process.gone:
		return false
	case <-ended:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.points = slices.DeleteFunc(w.points, func(q *point) bool { return q == p })
		return false
	}
}

// waiting are the points in an order that does not depend on who was faster. Not
// among them is what a worker would hear of besides something else once its call
// of the log is over: it would have to choose, and Go's choice is nobody's seed.
func (w *world) waiting() []*point {
	deaf := w.inLog()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.points, func(a, b *point) int {
		return cmp.Or(cmp.Compare(a.born, b.born), cmp.Compare(a.actor.name, b.actor.name), cmp.Compare(a.what, b.what))
	})
	return slices.DeleteFunc(slices.Clone(w.points), func(p *point) bool {
		return !p.log && (p.actor.retrying.Load() || p.hook && slices.Contains(deaf, p.actor))
	})
}

// letGo lets p go on.
func (w *world) letGo(p *point) {
	w.mu.Lock()
	w.points = slices.DeleteFunc(w.points, func(q *point) bool { return q == p })
	w.mu.Unlock()
	close(p.grant)
}
