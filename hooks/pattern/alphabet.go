package pattern

import (
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// alphabet sorts characters into classes of which no program tells one from
// another. The characters of a class have as many bytes.
type alphabet struct {
	// plain and quoted are by byte; of what is no ASCII, and in quoted also of what
	// has a meaning in the texts of JSON, they are strange.
	plain, quoted [256]uint8
	// cuts are where one class of characters that are no ASCII may end and another
	// begin, and after the classes of those from there on.
	cuts  []rune
	after []uint8
	// examples has a character of each class.
	examples []rune
	classes  int
}

// strange is the class of characters of which nothing is known.
const strange = 0

// maxCuts is how many cuts there may be: with more, what is no ASCII is strange.
const maxCuts = 64

// taking says of characters whether an instruction takes each of them: of ASCII,
// and of the cuts.
type taking [3]uint64

func newAlphabet(programs []*program) *alphabet {
	distinct := distinctOf(programs)
	a := &alphabet{classes: 1, examples: []rune{0}, cuts: cutsOf(distinct)}
	tell := map[taking]bool{}
	for _, in := range distinct {
		t := taking{in.ascii[0], in.ascii[1]}
		for j, r := range a.cuts {
			if in.rest.MatchRune(r) {
				t[2] |= 1 << j
			}
		}
		tell[t] = true
	}
	by := map[string]uint8{}
	order := make([]taking, 0, len(tell))
	for t := range tell {
		order = append(order, t)
	}
	sort := func(n int, r rune) uint8 {
		key := []byte{byte(classOf[min(r, utf8.RuneSelf)]), byte(utf8.RuneLen(r))}
		for _, t := range order {
			key = append(key, byte(t[n>>6]>>(n&63)&1))
		}
		c, ok := by[string(key)]
		if !ok {
			c = uint8(a.classes)
			by[string(key)] = c
			a.classes++
			a.examples = append(a.examples, r)
		}
		return c
	}
	for r := range rune(utf8.RuneSelf) {
		a.plain[r] = sort(int(r), r)
		if r >= ' ' && r != '"' && r != '\\' {
			a.quoted[r] = a.plain[r]
		}
	}
	for i, r := range a.cuts {
		a.after = append(a.after, sort(utf8.RuneSelf+i, r))
	}
	return a
}

// distinctOf are the instructions without those that a repetition has made of one.
func distinctOf(programs []*program) (list []*inst) {
	type shape struct {
		runes *rune
		n     int
		flags uint32
	}
	seen := map[shape]bool{}
	for _, p := range programs {
		for i := range p.insts {
			in := &p.insts[i]
			s := shape{n: len(in.rest.Rune), flags: in.rest.Arg}
			if s.n > 0 {
				s.runes = &in.rest.Rune[0]
			}
			if !seen[s] {
				seen[s] = true
				list = append(list, in)
			}
		}
	}
	return list
}

// cutsOf are the characters that are no ASCII at which something begins or ends
// that an instruction takes, or a width; nil if they are too many.
func cutsOf(distinct []*inst) []rune {
	cuts := []rune{utf8.RuneSelf, 0x800, 0x10000}
	for _, in := range distinct {
		cuts = append(cuts, ends(in.rest)...)
	}
	slices.Sort(cuts)
	if cuts = slices.Compact(cuts); len(cuts) > maxCuts {
		return nil
	}
	return cuts
}

// ends are the cuts of one instruction.
func ends(in *syntax.Inst) (cuts []rune) {
	add := func(from, to rune) {
		for _, r := range []rune{from, to + 1} {
			if r >= utf8.RuneSelf && r <= unicode.MaxRune {
				cuts = append(cuts, r)
			}
		}
	}
	if len(in.Rune) == 1 {
		r := in.Rune[0]
		add(r, r)
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			add(f, f)
		}
		return cuts
	}
	for i := 0; i+1 < len(in.Rune); i += 2 {
		add(in.Rune[i], in.Rune[i+1])
	}
	return cuts
}

// classOf is the class of r, and how many bytes it usually has.
func (a *alphabet) classOf(r rune) (c uint8, width int) {
	if r < utf8.RuneSelf {
		return a.plain[r], 1
	}
	i, found := slices.BinarySearch(a.cuts, r)
	if !found {
		i--
	}
	if i < 0 {
		return strange, 0
	}
	return a.after[i], utf8.RuneLen(r)
}
