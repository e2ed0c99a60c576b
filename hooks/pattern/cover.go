package pattern

// span is a part of a text that is taken out, and for which rule.
type span struct{ start, end, rule int }

// cover is what was found in a text and has not been given out. Offsets are of
// bytes, as the text came.
type cover struct {
	// spans are sorted, and do not overlap.
	spans []span
	// out is what was given out or taken out.
	out int
	// open is the end of the last span that was given out, from which on it may
	// still grow.
	open int
	// counts says how often each rule was found.
	counts []int
}

func (c *cover) reset() {
	c.spans, c.out, c.open = c.spans[:0], 0, 0
	clear(c.counts)
}

// add takes start to end out, which is not empty. Where it overlaps with another
// span, the two are one, of the rule of that which starts first, and of two that
// start together of that which was there first.
func (c *cover) add(start, end, rule int) {
	if start < c.open {
		c.open = max(c.open, end)
		n := 0
		for n < len(c.spans) && c.spans[n].start < c.open {
			c.open = max(c.open, c.spans[n].end)
			n++
		}
		c.drop(0, n)
		return
	}
	i := len(c.spans)
	for i > 0 && c.spans[i-1].end > start {
		i--
	}
	j := i
	for j < len(c.spans) && c.spans[j].start < end {
		j++
	}
	if i == j {
		c.spans = append(c.spans, span{})
		copy(c.spans[i+1:], c.spans[i:])
		c.spans[i] = span{start, end, rule}
		return
	}
	if start < c.spans[i].start {
		c.spans[i].start, c.spans[i].rule = start, rule
	}
	c.spans[i].end = max(end, c.spans[j-1].end)
	c.drop(i+1, j)
}

// drop forgets the spans from i up to j.
func (c *cover) drop(i, j int) {
	if i == j {
		return
	}
	c.spans = append(c.spans[:i], c.spans[j:]...)
}

// release appends what is settled if no span that starts before upto can come:
// what stands before it, and the replacements of what starts at or before it. buf
// is the text from base on.
func (c *cover) release(dst, buf []byte, base, upto int, with []string) []byte {
	c.out = max(c.out, c.open)
	n := 0
	for n < len(c.spans) && c.spans[n].start <= upto {
		s := c.spans[n]
		dst = append(dst, buf[c.out-base:s.start-base]...)
		dst = append(dst, with[s.rule]...)
		c.counts[s.rule]++
		c.out, c.open = s.end, s.end
		n++
	}
	c.drop(0, n)
	if upto > c.out {
		dst = append(dst, buf[c.out-base:upto-base]...)
		c.out = upto
	}
	return dst
}
