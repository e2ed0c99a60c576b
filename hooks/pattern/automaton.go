package pattern

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// What an automaton remembers.
const (
	// maxStates is how many states there are at most, each of some hundred bytes.
	maxStates = 2_048
	// patience is how many times that states are missing that have no place any more
	// before all are forgotten: what is common in texts by then is found out again.
	patience = 16
	// maxAge is how many bytes ago a match may have begun in a state, maxThreads how
	// many threads it may have. What is longer goes on without the automaton.
	maxAge     = 128
	maxThreads = 32
)

// automaton remembers what the machines of a Redactor do, so that they need not do
// it again: where they stand, but for the offset in the text, is a state, and a
// character leads from one to the next. A state is found out, by the machines
// themselves, when a text first comes to it. All streams of the Redactor share it;
// it is safe for concurrent use.
//
// It knows only what leads to no match. Where something is found, where a match
// gets long, and where a character does not have its usual width, as escapes have
// not, the machines take over, until no match is going on any more.
type automaton struct {
	alphabet *alphabet
	known    atomic.Pointer[states]
	// most is how many states there are at most.
	most int32

	// mu is for finding out more, with these.
	mu     sync.Mutex
	engine engine
	found  cover
}

// states are those that are known.
type states struct {
	byKey map[string]*state // under the lock of the automaton
	n     atomic.Int32
	// missed counts what was not there once there was no place.
	missed atomic.Int32
	// roots are those without a thread, by the class of the last character.
	roots [classes]*state
}

// state is where machines stand between two characters. But for next and ending,
// it is never changed.
type state struct {
	// next is by the class of the character that comes. nil is not known yet.
	next []atomic.Pointer[state]
	// ending says whether something is found if the text ends here.
	ending atomic.Pointer[state]
	prev   class
	// live says that there is a thread, and oldest how many bytes ago the first
	// of them began.
	live    bool
	oldest  int
	threads []threadOf
}

// threadOf is a thread of one of the machines. They are in the order of these, and
// of the machine's threads.
type threadOf struct {
	machine uint16
	family  uint16
	age     uint16
	inst    int32
}

// Where a character leads that the automaton cannot follow, and where the end of a
// text leads if nothing is found.
var away, quiet state

func newAutomaton(programs []*program) *automaton {
	a := &automaton{alphabet: newAlphabet(programs), most: maxStates, found: cover{counts: make([]int, len(programs))}}
	for _, p := range programs {
		if p.check != nil {
			all := *p // that there is something to check is as much as can be known
			all.check = func([]byte) bool { return true }
			p = &all
		}
		a.engine.programs = append(a.engine.programs, p)
	}
	a.known.Store(a.forgotten())
	return a
}

// forgotten are states that begin anew.
func (a *automaton) forgotten() *states {
	s := &states{byKey: map[string]*state{}}
	for prev := range classes {
		a.engine.begin()
		a.engine.prev, a.engine.live = prev, false
		s.roots[prev] = a.keep(s, a.engine.key(nil))
	}
	return s
}

// keep adds where the machines stand.
func (a *automaton) keep(s *states, key []byte) *state {
	to := a.engine.state(a.alphabet.classes)
	s.byKey[string(key)] = to
	s.n.Add(1)
	return to
}

// root is where nothing is going on behind a character of that class.
func (a *automaton) root(prev class) *state { return a.known.Load().roots[prev] }

// follow is where r leads, which is width bytes of the text; nil if the machines
// have to say that.
func (a *automaton) follow(from *state, r rune, width int) *state {
	c, usual := a.alphabet.classOf(r)
	if c == strange {
		return nil
	}
	to := from.next[c].Load()
	if to == nil {
		to = a.explore(from, c)
	}
	if to == nil || to == &away || to.live && width != usual {
		return nil
	}
	return to
}

// explore finds out where a character of class c leads, nil if there is no place.
func (a *automaton) explore(from *state, c uint8) *state {
	if s := a.known.Load(); s.n.Load() >= a.most && s.missed.Add(1) < patience*a.most {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.known.Load()
	if s.n.Load() >= a.most {
		s = a.forgotten()
		a.known.Store(s)
	}
	r := a.alphabet.examples[c]
	a.engine.enter(from, blank[:from.oldest], maxAge)
	a.engine.each(&a.found, r, utf8.RuneLen(r))
	to := &away
	if key := a.engine.key(&a.found); key != nil {
		if to = s.byKey[string(key)]; to == nil {
			to = a.keep(s, key)
		}
	}
	a.found.reset()
	from.next[c].Store(to)
	return to
}

// ends reports whether nothing is found if the text ends in a state.
func (a *automaton) ends(in *state) bool {
	if !in.live {
		return true
	}
	if in.ending.Load() == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.engine.enter(in, blank[:in.oldest], maxAge)
		a.engine.last(&a.found)
		to := &quiet
		if len(a.found.spans) > 0 {
			to = &away
		}
		a.found.reset()
		in.ending.Store(to)
	}
	return in.ending.Load() == &quiet
}

// blank stands for a text that nobody looks at.
var blank [maxAge]byte

// key is what a state is known by; nil if the machines have found something or it
// is too large.
func (e *engine) key(found *cover) []byte {
	if found != nil && len(found.spans) > 0 {
		return nil
	}
	key, n := e.keyed[:0], 0
	key = append(key, byte(e.prev))
	for i := range e.machines {
		m := &e.machines[i]
		if n += len(m.threads); n > maxThreads {
			return nil
		}
		m.renumber()
		for _, t := range m.threads {
			if e.pos-t.start > maxAge {
				return nil
			}
			key = binary.LittleEndian.AppendUint16(key, uint16(i))
			key = binary.LittleEndian.AppendUint16(key, uint16(t.family))
			key = binary.LittleEndian.AppendUint16(key, uint16(e.pos-t.start))
			key = binary.LittleEndian.AppendUint32(key, uint32(t.inst))
		}
	}
	e.keyed = key
	return key
}

// state is where the engine stands.
func (e *engine) state(n int) *state {
	s := &state{next: make([]atomic.Pointer[state], n), prev: e.prev, live: e.live, oldest: e.pos - e.earliest()}
	for i := range e.machines {
		for _, t := range e.machines[i].threads {
			s.threads = append(s.threads, threadOf{uint16(i), uint16(t.family), uint16(e.pos - t.start), t.inst})
		}
	}
	return s
}

// enter puts the machines at pos where s says. before is the text before that, at
// least as far as threads have begun.
func (e *engine) enter(s *state, before []byte, pos int) {
	e.begin()
	e.pos, e.prev, e.live = pos, s.prev, s.live
	for _, t := range s.threads {
		m, age := &e.machines[t.machine], int(t.age)
		if len(m.threads) == 0 && m.p.check != nil {
			m.tail = append(m.tail, before[len(before)-age:]...)
		}
		m.last = max(m.last, int(t.family))
		m.threads = append(m.threads, thread{inst: t.inst, start: pos - age, family: int(t.family), tail: len(m.tail) - age})
	}
}
