package pattern

import "unicode/utf8"

// engine runs the programs of all rules along one text.
type engine struct {
	// auto says where things stand without the machines, at being the state; nil
	// while these run. A nil auto has them run always.
	auto *automaton
	at   *state
	// pos is the offset of the character that comes next.
	pos int

	// prev and live are of the machines: the class of the last character, and
	// whether there is a thread. They are made when they first run.
	prev     class
	live     bool
	machines []machine
	programs []*program
	// keyed is the memory of [engine.key].
	keyed []byte
}

func newEngine(auto *automaton, programs []*program) engine {
	e := engine{auto: auto, programs: programs}
	e.reset(0)
	return e
}

// reset lets a text begin at pos.
func (e *engine) reset(pos int) {
	e.pos = pos
	if e.auto != nil {
		e.at = e.auto.root(classNone)
		return
	}
	e.begin()
	e.prev, e.live = classNone, false
}

// begin has the machines begin.
func (e *engine) begin() {
	if e.machines == nil {
		e.machines = make([]machine, 0, len(e.programs))
		for _, p := range e.programs {
			e.machines = append(e.machines, machine{p: p})
		}
	}
	for i := range e.machines {
		e.machines[i].reset()
	}
}

// run goes on in b as far as the automaton knows what comes of that, but for
// characters that are no ASCII, and returns by how much.
func (e *engine) run(b []byte) int {
	if e.at == nil {
		return 0
	}
	return e.through(&e.auto.alphabet.plain, b)
}

// runQuoted is run inside of the quotes of JSON, and stops at what has a meaning
// there.
func (e *engine) runQuoted(b []byte) int {
	if e.at == nil {
		return 0
	}
	return e.through(&e.auto.alphabet.quoted, b)
}

// through goes on by the classes of bytes.
func (e *engine) through(classes *[256]uint8, b []byte) int {
	at, i := e.at, 0
	for i < len(b) {
		to := at.next[classes[b[i]]].Load()
		if to == nil || to == &away {
			break
		}
		at = to
		i++
	}
	e.at = at
	e.pos += i
	return i
}

// step takes the next character, which is width bytes of the text. before is the
// text before it, at least as far as it may still be given out.
func (e *engine) step(found *cover, before []byte, r rune, width int) {
	if e.at != nil {
		if to := e.auto.follow(e.at, r, width); to != nil {
			e.at = to
			e.pos += width
			return
		}
		e.leave(before)
	}
	e.each(found, r, width)
	if !e.live && e.auto != nil {
		e.at = e.auto.root(e.prev)
	}
}

// leave has the machines go on from where the automaton is. What is going on there
// has begun behind everything that was found, so before has all of it.
func (e *engine) leave(before []byte) {
	e.enter(e.at, before, e.pos)
	e.at = nil
}

// each has the machines take a character.
func (e *engine) each(found *cover, r rune, width int) {
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

// finish ends the text, of which before is what step would be told.
func (e *engine) finish(found *cover, before []byte) {
	if e.at != nil {
		if e.auto.ends(e.at) {
			e.at = e.auto.root(e.at.prev)
			return
		}
		e.leave(before)
	}
	e.last(found)
	e.live = false
}

// last has the machines take the end of the text.
func (e *engine) last(found *cover) {
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
}

// frontier is where the earliest match that is going on may have begun.
func (e *engine) frontier() int {
	if e.at != nil {
		return e.pos - e.at.oldest
	}
	return e.earliest()
}

// earliest is where the first thread of the machines has begun.
func (e *engine) earliest() int {
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
