package pattern

// Spans are the parts of a text that are taken out.
func Spans(r *Redactor, text string) [][2]int {
	s := r.text(unlimited, plainUnit)
	s.buf = []byte(text)
	s.feed(nil, true)
	s.views[0].finish(&s.cover)
	var out [][2]int
	for _, sp := range s.cover.spans {
		out = append(out, [2]int{sp.start, sp.end})
	}
	return out
}

// TookForJSON reports whether what has ended was JSON.
func TookForJSON(s *JSONStream) bool { return s.text == nil }
