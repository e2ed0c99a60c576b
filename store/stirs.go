package store

import (
	"sync"
	"sync/atomic"
)

// stirs tells those who want to know that something was committed, whatever it was.
// Without them it costs the look at a number.
type stirs struct {
	count atomic.Int32

	mu    sync.Mutex
	wants map[chan struct{}]struct{}
}

// watch returns a channel with room for one, and what ends the watch. Signals are only
// hints: of what other processes commit they may be missing.
func (s *stirs) watch() (signals <-chan struct{}, stop func()) {
	w := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wants == nil {
		s.wants = map[chan struct{}]struct{}{}
	}
	s.wants[w] = struct{}{}
	s.count.Add(1)
	var once sync.Once
	return w, func() {
		once.Do(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.wants, w)
			s.count.Add(-1)
		})
	}
}

// stir does not block.
func (s *stirs) stir() {
	if s.count.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.wants {
		nudge(w)
	}
}
