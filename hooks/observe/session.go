package observe

import (
	"sync/atomic"
	"time"
)

const (
	// Timeout is how long a plugin may take each time that it is asked.
	Timeout = 50 * time.Millisecond
	// Budget is how long it may take in one request, all in all: without it one
	// that is always a little slow would hold up every event of a long answer.
	Budget = 250 * time.Millisecond
)

// Session asks the plugins about one request. It comes from [Registry.Begin] and
// belongs to one goroutine; only Status may be called from another. A nil Session
// asks nobody and allocates nothing.
type Session struct {
	registry *Registry
	plugins  []*plugin

	begun  time.Time
	method MethodClass
	status atomic.Int64
	events uint64
	bytes  uint64
	first  time.Duration
	ended  bool

	// What the worker is to ask, from which plugin on, and what comes of it: off are
	// the plugins that are left out, spent is how long each has taken. Once it was
	// told to, this is the worker's, until it has answered or was left behind.
	question
	from    int
	off     []bool
	spent   []time.Duration
	reports []Report

	worker *worker
	timer  *time.Timer
}

// question is what plugins are asked: the hook, and its payload.
type question struct {
	hook       Hook
	request    Request
	event      Event
	completion Completion
	failure    Failure
}

// Begin asks the plugins about a request that is about to be sent. It returns nil,
// and allocates nothing, if there are none. Whoever began a session ends it, with
// Complete or Fail.
func (r *Registry) Begin(method MethodClass, bodyBytes int) *Session {
	plugins := r.seal()
	if len(plugins) == 0 {
		return nil
	}
	s := &Session{
		registry: r, plugins: plugins, off: make([]bool, len(plugins)), spent: make([]time.Duration, len(plugins)),
		begun: time.Now(), method: closed(method, methods, MethodOther),
	}
	s.request = Request{Method: s.method, BodyBytes: length(bodyBytes)}
	s.ask(HookBeforeRequest)
	return s
}

// Event says that an event of the answer was there at a time, and what it is; a
// type without a word here is [EventOther].
func (s *Session) Event(t EventType, bytes int, at time.Time) {
	if s == nil || s.ended {
		return
	}
	elapsed := max(at.Sub(s.begun), 0)
	if s.events == 0 {
		s.first = elapsed
	}
	s.events++
	s.bytes += length(bytes)
	s.event = Event{Number: s.events, Type: closed(t, eventTypes, EventOther), Bytes: length(bytes), Elapsed: elapsed}
	s.ask(HookAfterEvent)
}

// Status says what the HTTP status of the response is. It is safe for concurrent
// use.
func (s *Session) Status(code int) {
	if s != nil {
		s.status.Store(int64(code))
	}
}

// Complete says that the answer was whole, and ends the session; on one that has
// ended it does nothing.
func (s *Session) Complete(c CompletionClass, u RawUsage) {
	if s == nil || s.ended {
		return
	}
	s.completion = Completion{Exchange: s.exchange(u), Class: closed(c, completions, CompletionUnknown)}
	s.end(HookOnComplete)
}

// Fail says that there is no whole answer, and ends the session; on one that has
// ended it does nothing.
func (s *Session) Fail(e ErrorClass, u RawUsage) {
	if s == nil || s.ended {
		return
	}
	s.failure = Failure{Exchange: s.exchange(u), Class: closed(e, errorKinds, ErrorOther)}
	s.end(HookOnError)
}

func (s *Session) exchange(u RawUsage) Exchange {
	e := Exchange{
		Method: s.method, Events: s.events, Bytes: s.bytes, Usage: u.Usage(),
		Elapsed: time.Since(s.begun), FirstEvent: s.first,
	}
	e.Status, e.StatusClass = statusOf(int(s.status.Load()))
	return e
}

func (s *Session) end(h Hook) {
	s.ended = true
	s.ask(h)
	if s.worker != nil {
		s.worker.stop()
		s.worker = nil
	}
}

// ask asks the plugins that have the hook, one after the other, and returns when
// each has answered or was given up.
func (s *Session) ask(h Hook) {
	s.hook, s.from = h, 0
	for s.wanted() {
		if s.worker == nil {
			s.worker = startWorker(s)
		}
		s.worker.in <- struct{}{}
		if s.await() {
			break
		}
		s.worker = nil // and another one asks those behind
	}
	if len(s.reports) > 0 {
		s.registry.tell(s.reports)
		s.reports = s.reports[:0]
	}
}

// wanted reports whether there is somebody to ask.
func (s *Session) wanted() bool {
	for i := s.from; i < len(s.plugins); i++ {
		if !s.off[i] && s.plugins[i].has(s.hook) {
			return true
		}
	}
	return false
}

// await waits for the worker. It returns false if the worker does not come back,
// because the plugin that it was asking does not, or has ended its goroutine.
func (s *Session) await() bool {
	w := s.worker
	if s.timer == nil {
		s.timer = time.NewTimer(Timeout)
	} else {
		s.timer.Reset(Timeout)
	}
	defer s.timer.Stop()
	for {
		select {
		case alive := <-w.out:
			return alive
		case <-s.timer.C:
		}
		// The time of a worker that was not scheduled is no plugin's.
		left := Timeout
		if i := w.asking.Load(); i >= 0 {
			if left = Timeout - s.took(w); left <= 0 && s.abandon(w, int(i)) {
				return false
			}
		}
		s.timer.Reset(max(left, time.Millisecond))
	}
}

// took is how long the plugin that is being asked has taken.
func (s *Session) took(w *worker) time.Duration {
	return time.Since(s.begun) - time.Duration(w.since.Load())
}

// abandon leaves the worker behind that asks plugin i, unless the plugin has
// answered just now.
func (s *Session) abandon(w *worker, i int) bool {
	p := s.plugins[i]
	p.hung.Add(1)
	if !w.asking.CompareAndSwap(int64(i), abandoned) {
		p.hung.Add(-1)
		return false
	}
	s.fail(i, ReasonTimeout)
	s.from = i + 1
	return true
}

// fail leaves plugin i out of the rest of the request.
func (s *Session) fail(i int, why Reason) {
	s.off[i] = true
	s.reports = append(s.reports, Report{Plugin: s.plugins[i].id, Hook: s.hook, Reason: why})
}

func length(n int) uint64 { return uint64(max(n, 0)) }
