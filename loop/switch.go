package loop

import (
	"sync/atomic"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// InForce is what is asked: the hooks of a set, and who asks them.
type InForce struct {
	Hooks hooks.Hooks
	// Asker may be nil if Hooks has no gates. Its HookSet is pinned on every claim.
	Asker *hooks.Asker
	// Observers see the model's answers. They belong to the set whose digest Asker
	// has. Nil is none.
	Observers *stream.Set
}

// Switch holds the hooks that are in force in a process, where they may change
// while it runs. An [Engine] looks at it once per lease and [Commands] once per
// command, so that each is asked about by one set from beginning to end: what is
// put is for those that begin afterwards. It is safe for concurrent use. The zero
// value has no hooks.
//
// A set has to be stored before it is put: a run that names one which nobody can
// read explains nothing.
type Switch struct{ now atomic.Pointer[InForce] }

// NewSwitch returns one with f in force.
func NewSwitch(f InForce) *Switch {
	var s Switch
	s.Put(f)
	return &s
}

// Put has f asked from now on. It does not wait for who is asking what was in
// force before.
func (s *Switch) Put(f InForce) { s.now.Store(&f) }

// Now returns what is in force.
func (s *Switch) Now() InForce {
	if f := s.now.Load(); f != nil {
		return *f
	}
	return InForce{}
}

// inForce is what a lease that begins now is asked by.
func (e *Engine) inForce() InForce {
	if e.Switch != nil {
		return e.Switch.Now()
	}
	return InForce{Hooks: e.Hooks, Asker: e.Asker, Observers: e.Observers}
}

// inForce is what a command that begins now is asked by.
func (c *Commands) inForce() InForce {
	if c.Switch != nil {
		return c.Switch.Now()
	}
	return InForce{Hooks: c.Hooks, Asker: c.Asker}
}
