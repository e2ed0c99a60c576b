package observe

import (
	"sync/atomic"
	"time"
)

// What a worker is at, beside asking the plugin of that number.
const (
	idle int64 = -1
	// abandoned: nobody waits for it any more, and nothing of the session is its own.
	abandoned int64 = -2
)

// worker is the goroutine in which a session asks: only a goroutine of its own can
// be left behind. One asks all plugins and lives as long as the session, so that an
// event costs one hand-over however many plugins there are.
type worker struct {
	in chan struct{}
	// out says that all were asked, or, with false, that the worker is no more. It
	// is closed at the end.
	out    chan bool
	asking atomic.Int64
	// since is when it began to ask, from the beginning of the session.
	since atomic.Int64
	// last is the plugin that was asked last; it is the worker's.
	last *plugin
}

func startWorker(s *Session) *worker {
	w := &worker{in: make(chan struct{}, 1), out: make(chan bool, 1)}
	w.asking.Store(idle)
	go w.run(s)
	return w
}

// stop ends a worker that is idle, and waits for it.
func (w *worker) stop() {
	close(w.in)
	<-w.out
}

func (w *worker) run(s *Session) {
	defer w.leave(s)
	for range w.in {
		if !w.askAll(s) {
			return
		}
		w.out <- true
	}
}

// leave is also for a plugin that ends its goroutine in the place of returning.
func (w *worker) leave(s *Session) {
	defer close(w.out)
	i := w.asking.Load()
	switch {
	case i >= 0 && w.asking.CompareAndSwap(i, idle):
		s.fail(int(i), ReasonPanic)
		s.from = int(i) + 1
		w.out <- false
	case w.asking.Load() == abandoned:
		w.last.hung.Add(-1)
	}
}

// askAll returns false if the session has not waited for it.
func (w *worker) askAll(s *Session) bool {
	began := time.Since(s.begun)
	q := s.question // who is left behind must not read what others are asked later
	for i := s.from; i < len(s.plugins); i++ {
		p := s.plugins[i]
		if s.off[i] || !p.has(q.hook) {
			continue
		}
		if p.hung.Load() >= maxHung {
			s.fail(i, ReasonTimeout)
			continue
		}
		w.last = p
		w.since.Store(int64(began))
		w.asking.Store(int64(i))
		why := ask(p, &q)
		if !w.asking.CompareAndSwap(int64(i), idle) {
			return false
		}
		now := time.Since(s.begun)
		s.spent[i] += now - began
		switch {
		case why != "":
			s.fail(i, why)
		case now-began > Timeout, s.spent[i] > Budget:
			s.fail(i, ReasonTimeout)
		}
		began = now
	}
	return true
}

// ask returns why the plugin failed, "" if it did not. What it says or panics with
// is dropped here: it may hold anything.
func ask(p *plugin, q *question) (why Reason) {
	returned := false
	defer func() {
		if !returned {
			_ = recover()
			why = ReasonPanic
		}
	}()
	var err error
	switch q.hook {
	case HookBeforeRequest:
		err = p.request.BeforeRequest(q.request)
	case HookAfterEvent:
		err = p.event.AfterEvent(q.event)
	case HookOnComplete:
		err = p.completion.OnComplete(q.completion)
	case HookOnError:
		err = p.failure.OnError(q.failure)
	}
	returned = true
	if err != nil {
		why = ReasonError
	}
	return why
}
