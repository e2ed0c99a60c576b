package pattern

import (
	"slices"
	"unicode/utf8"
)

// thread is one way in which a match may be going on.
type thread struct {
	// inst took the last character.
	inst int32
	// start is the smallest offset at which the match may have begun.
	start int
	// family are the starts that the thread stands for. Threads of the same
	// family began as one, so what is less preferred ends with a match of theirs
	// whichever start it was for. A thread that two families have come to has a
	// new one.
	family int
	// tail is where the text of the match begins; only for a program with a check.
	tail int
}

// machine runs one program along a text. Threads are in the order of their
// starts, and for one start in the order of preference, as in Pike's machine;
// where two stand at the same instruction they become one with the smaller start.
type machine struct {
	p       *program
	threads []thread
	spare   []thread
	// marks say which thread of this step stands at an instruction. They are made
	// with the first thread: of most texts, most patterns never have one.
	marks []mark
	stamp int
	// last is the newest family.
	last int
	// ended are the families of which a thread has matched in this step.
	ended []int
	// tail is the text from where the first thread began, for the check, and
	// cut is how much was taken away in front of it.
	tail []byte
	cut  int
}

type mark struct{ stamp, at int }

func (m *machine) reset() {
	m.threads, m.last = m.threads[:0], 0
	m.tail, m.cut = m.tail[:0], 0
}

// renumber gives families the numbers from 1 on in the order of their threads, of
// which nothing else depends.
func (m *machine) renumber() {
	m.last = 0
	var numbers []int
	for i := range m.threads {
		f := &m.threads[i].family
		n := slices.Index(numbers, *f)
		if n < 0 {
			n = len(numbers)
			numbers = append(numbers, *f)
		}
		*f = n + 1
		m.last = len(numbers)
	}
}

// begin is called before the first thread.
func (m *machine) begin() {
	if m.marks == nil {
		m.marks = make([]mark, len(m.p.insts))
	}
}

// step takes the character r, which stands at pos, and adds to found what ends
// before it. c is the context at pos. begins says that a match may begin here.
func (m *machine) step(found *cover, c uint8, r rune, pos int, begins bool) {
	m.begin()
	m.stamp++
	m.ended = m.ended[:0]
	next := m.spare[:0]
	after := m.p.after[c]
	for _, t := range m.threads {
		if len(m.ended) == 0 || !slices.Contains(m.ended, t.family) {
			next = m.follow(next, t, after[t.inst], found, r, pos)
		}
	}
	if begins {
		m.last++
		next = m.follow(next, thread{start: pos, family: m.last}, m.p.begin[c], found, r, pos)
	}
	m.threads, m.spare = next, m.threads
	if len(next) == 0 {
		m.last = 0
	}
}

// atEnd is the character at the end of a text, which nothing takes.
const atEnd rune = -1

// follow appends what a thread becomes by the character r.
func (m *machine) follow(next []thread, t thread, list []int32, found *cover, r rune, pos int) []thread {
	var joined struct{ old, new, at int }
	for _, i := range list {
		if i == matched {
			if pos > t.start {
				found.add(t.start, pos, m.p.rule)
			}
			m.ended = append(m.ended, t.family)
			break
		}
		if r == atEnd || !m.p.insts[i].takes(r) {
			continue
		}
		k := &m.marks[i]
		if k.stamp != m.stamp {
			*k = mark{m.stamp, len(next)}
			next = append(next, thread{inst: i, start: t.start, family: t.family})
			continue
		}
		switch other := &next[k.at]; {
		case other.family == t.family:
		case joined.new > 0 && other.family == joined.old && k.at > joined.at:
			// The same two families, in the same order.
			other.family, joined.at = joined.new, k.at
		default:
			m.last++
			joined.old, joined.new, joined.at = other.family, m.last, k.at
			other.family = m.last
		}
	}
	return next
}

// stepChecked is step for a program with a check: each start is by itself, and
// each match is looked at. Such a program has only matches of a bounded length,
// so there are few.
func (m *machine) stepChecked(found *cover, c uint8, r rune, pos int, begins bool) {
	m.begin()
	next := m.spare[:0]
	for i, t := range m.threads {
		if i == 0 || t.start != m.threads[i-1].start {
			m.stamp++
		}
		next = m.followChecked(next, t, m.p.after[c][t.inst], found, r, pos)
	}
	if begins {
		m.stamp++
		next = m.followChecked(next, thread{start: pos, tail: m.cut + len(m.tail)}, m.p.begin[c], found, r, pos)
	}
	m.threads, m.spare = next, m.threads
	switch {
	case len(next) == 0:
		m.tail, m.cut = m.tail[:0], 0
		return
	case next[0].tail-m.cut > keptTail:
		n := next[0].tail - m.cut
		m.tail, m.cut = slices.Delete(m.tail, 0, n), m.cut+n
	}
	m.tail = utf8.AppendRune(m.tail, r)
}

// keptTail is how much of what is needed no more is kept, so that the rest is
// not moved all the time.
const keptTail = 1 << 10

func (m *machine) followChecked(next []thread, t thread, list []int32, found *cover, r rune, pos int) []thread {
	for _, i := range list {
		switch {
		case i == matched:
			if pos > t.start && m.p.check(m.tail[t.tail-m.cut:]) {
				found.add(t.start, pos, m.p.rule)
			}
		case r == atEnd || !m.p.insts[i].takes(r) || m.marks[i].stamp == m.stamp:
		default:
			m.marks[i].stamp = m.stamp
			next = append(next, thread{inst: i, start: t.start, tail: t.tail})
		}
	}
	return next
}
