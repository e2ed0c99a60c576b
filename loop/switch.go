package loop

import (
	"slices"
	"sync"

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
	// Tools are tools of every agent, behind its own; nil is none. It is asked for
	// each step, so that they may come and go while a lease lasts. A tool that an
	// agent has itself is not replaced by one of the same name.
	Tools func() []Tool
	// Unused, unless it is nil, is called once, when something else was put and the
	// last lease and the last command that are asked by this have ended.
	Unused func()
}

// tools are an agent's own and those behind them.
func (f InForce) tools(own []Tool) []Tool {
	if f.Tools == nil {
		return own
	}
	more := f.Tools()
	if len(more) == 0 {
		return own
	}
	all := slices.Clip(own)
	for _, t := range more {
		if !hasTool(all, t.Spec().Name) {
			all = append(all, t)
		}
	}
	return all
}

// Switch holds the hooks that are in force in a process, where they may change
// while it runs. An [Engine] looks at it once per lease and [Commands] once per
// command, so that each is asked about by one set from beginning to end: what is
// put is for those that begin afterwards. It is safe for concurrent use. The zero
// value has no hooks.
//
// A set has to be stored before it is put: a run that names one which nobody can
// read explains nothing.
type Switch struct {
	mu  sync.Mutex
	now *inUse
}

// inUse is what is or was in force. The switch's mutex guards the counts.
type inUse struct {
	InForce
	users    int
	replaced bool
}

// NewSwitch returns one with f in force.
func NewSwitch(f InForce) *Switch {
	var s Switch
	s.Put(f)
	return &s
}

// Put has f asked from now on. It does not wait for who is asking what was in
// force before, which is told when the last has ended: see [InForce].
func (s *Switch) Put(f InForce) {
	s.mu.Lock()
	before := s.now
	s.now = &inUse{InForce: f}
	unused := false
	if before != nil {
		before.replaced = true
		unused = before.users == 0
	}
	s.mu.Unlock()
	if unused && before.Unused != nil {
		before.Unused()
	}
}

// Now returns what is in force, and does not keep it from becoming unused.
func (s *Switch) Now() InForce {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil {
		return InForce{}
	}
	return s.now.InForce
}

// take returns what is in force, which is not unused before done is called, once.
func (s *Switch) take() (f InForce, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.now
	if u == nil {
		return InForce{}, noDone
	}
	u.users++
	return u.InForce, func() { s.leave(u) }
}

func (s *Switch) leave(u *inUse) {
	s.mu.Lock()
	u.users--
	unused := u.replaced && u.users == 0
	s.mu.Unlock()
	if unused && u.Unused != nil {
		u.Unused()
	}
}

func noDone() {}

// inForce is what a lease that begins now is asked by, until done is called.
func (e *Engine) inForce() (f InForce, done func()) {
	if e.Switch != nil {
		return e.Switch.take()
	}
	return InForce{Hooks: e.Hooks, Asker: e.Asker, Observers: e.Observers}, noDone
}

// inForce is what a command that begins now is asked by, until done is called.
func (c *Commands) inForce() (f InForce, done func()) {
	if c.Switch != nil {
		return c.Switch.take()
	}
	return InForce{Hooks: c.Hooks, Asker: c.Asker}, noDone
}
