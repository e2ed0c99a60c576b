package stream

import (
	"errors"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// Set is the observers of a process, in the order in which they are asked. It is
// never changed and safe for concurrent use. A nil Set has none.
type Set struct {
	regs []Registration
	now  func() time.Time // nil is time.Now
}

// NewSet checks the registrations and joins them in their order. Its errors are
// of type [*RegistrationError], joined if there are several.
func NewSet(regs ...Registration) (*Set, error) {
	s := &Set{}
	var bad []error
	at := map[string]int{}
	for i, given := range regs {
		r, err := given.settled()
		if first := at[r.ID]; err == nil && first > 0 {
			err = &RegistrationError{ID: r.ID, Field: "ID", Problem: "is also that of another observer"}
		}
		if err != nil {
			err.Index = i + 1
			bad = append(bad, err)
			continue
		}
		at[r.ID] = i + 1
		s.regs = append(s.regs, r)
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	return s, nil
}

// WithClock returns s with another clock for the time that observers may take,
// instead of [time.Now]. It is called from several goroutines at once.
func (s *Set) WithClock(now func() time.Time) *Set {
	if s == nil {
		return nil
	}
	return &Set{regs: s.regs, now: now}
}

// Hooks lists the observers for [hooks.HookSet.With]: all at OnChunk, and then
// all at OnEnd, in their order. Of a nil Set, and of an empty one, it is nil.
func (s *Set) Hooks() []hooks.Registration {
	if s == nil {
		return nil
	}
	var list []hooks.Registration
	for _, g := range []hooks.Gate{hooks.GateOnChunk, hooks.GateOnEnd} {
		for _, r := range s.regs {
			list = append(list, r.At(g))
		}
	}
	return list
}

// Begin makes the observers of one attempt. It returns nil, and allocates
// nothing, if nobody observes such calls.
func (s *Set) Begin(c Call) *Attempt {
	if s == nil {
		return nil
	}
	n := 0
	for i := range s.regs {
		if s.regs[i].observes(c) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	a := &Attempt{now: s.now, began: time.Now(), watchers: make([]watcher, 0, n)}
	if s.now != nil {
		a.began = s.now()
	}
	for i := range s.regs {
		if r := &s.regs[i]; r.observes(c) {
			a.watchers = append(a.watchers, begin(r, c, len(a.watchers)+1, n))
		}
	}
	return a
}
