package pattern

import "unicode/utf8"

// engine runs the programs of all rules along one text.
type engine struct {
	machines []machine
	// first are the characters with which a match may begin.
	first *firsts
	// pos is the offset of the character that comes next.
	pos  int
	prev class
	// live says that there is a thread.
	live bool
}

func newEngine(r *Redactor) *engine {
	e := &engine{machines: make([]machine, 0, len(r.programs)), first: &r.first}
	for _, p := range r.programs {
		e.machines = append(e.machines, machine{p: p})
	}
	return e
}

// reset lets a text begin at pos.
func (e *engine) reset(pos int) {
	e.pos, e.prev, e.live = pos, classNone, false
	for i := range e.machines {
		e.machines[i].reset()
	}
}

// idle reports whether r neither begins a match nor goes on with one: then
// [engine.skip] is as good as step.
func (e *engine) idle(r rune) bool { return !e.live && !e.first[min(r, utf8.RuneSelf)] }

func (e *engine) skip(r rune, width int) {
	e.pos += width
	e.prev = classOf[min(r, utf8.RuneSelf)]
}

// skipIdle goes on to the first character of b that may begin a match or is no
// ASCII. It does nothing while a match is going on.
func (e *engine) skipIdle(b []byte) {
	if e.live {
		return
	}
	i := 0
	for i < len(b) && b[i] < utf8.RuneSelf && !e.first[b[i]] {
		i++
	}
	if i > 0 {
		e.pos += i
		e.prev = classOf[b[i-1]]
	}
}

// skipPlain is skipIdle inside of the quotes of JSON, and stops at what has a
// meaning there. It returns by how much it went on.
func (e *engine) skipPlain(b []byte) int {
	if e.live {
		return 0
	}
	i := 0
	for i < len(b) && b[i] < utf8.RuneSelf && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' && !e.first[b[i]] {
		i++
	}
	if i > 0 {
		e.pos += i
		e.prev = classOf[b[i-1]]
	}
	return i
}

// step takes the next character, which is width bytes of the text.
func (e *engine) step(found *cover, r rune, width int) {
	k := min(r, utf8.RuneSelf)
	next := classOf[k]
	context := e.prev*classes + next
	e.live = false
	for i := range e.machines {
		m := &e.machines[i]
		c := m.p.contexts[context]
		begins := m.p.first[c][k]
		if len(m.threads) == 0 && !begins {
			continue
		}
		if m.p.check == nil {
			m.step(found, c, r, e.pos, begins)
		} else {
			m.stepChecked(found, c, r, e.pos, begins)
		}
		e.live = e.live || len(m.threads) > 0
	}
	e.pos += width
	e.prev = next
}

// finish ends the text.
func (e *engine) finish(found *cover) {
	context := e.prev*classes + classNone
	for i := range e.machines {
		m := &e.machines[i]
		c := m.p.contexts[context]
		switch {
		case len(m.threads) == 0:
		case m.p.check == nil:
			m.step(found, c, atEnd, e.pos, false)
		default:
			m.stepChecked(found, c, atEnd, e.pos, false)
		}
	}
	e.live = false
}

// frontier is where the earliest match that is going on may have begun.
func (e *engine) frontier() int {
	f := e.pos
	if e.live {
		for i := range e.machines {
			if t := e.machines[i].threads; len(t) > 0 {
				f = min(f, t[0].start)
			}
		}
	}
	return f
}
