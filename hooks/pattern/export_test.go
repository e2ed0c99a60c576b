package pattern

// Spans are the parts of a text that are taken out.
func Spans(r *Redactor, text string) [][2]int {
	s := r.text(unlimited, plainUnit)
	s.buf = []byte(text)
	s.feed(nil, true)
	s.views[0].finish(&s.cover, s.buf)
	var out [][2]int
	for _, sp := range s.cover.spans {
		out = append(out, [2]int{sp.start, sp.end})
	}
	return out
}

// TookForJSON reports whether what has ended was JSON.
func TookForJSON(s *JSONStream) bool { return s.text == nil }

// Plainly is r without an automaton: the machines look at every character.
func Plainly(r *Redactor) *Redactor {
	plain := *r
	plain.auto = nil
	return &plain
}

// Forgetful is r with an automaton that forgets more than n states.
func Forgetful(r *Redactor, n int) *Redactor {
	forgetful := *r
	forgetful.auto = newAutomaton(r.programs)
	forgetful.auto.most = int32(n)
	return &forgetful
}

// States is how many states r remembers.
func States(r *Redactor) int { return int(r.auto.known.Load().n.Load()) }
