package builtin

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
)

// needle is what is looked for: patterns, joined to one program. It is not changed
// once it is made.
type needle struct {
	prog   *syntax.Prog
	window int
	// begins are the instructions that may take the first character of a match, by
	// the conditions that are met before it.
	begins [allConditions + 1][]int
	// ascii says of each instruction which characters below utf8.RuneSelf it takes.
	ascii [][2]uint64
	// first says of each byte whether a match may begin with it, or with a character
	// that is no ASCII, by what stands before it.
	first [kinds][256]bool
	// second says of each character of ASCII with which of ASCII a match may go on
	// that has begun with it.
	second [utf8.RuneSelf][2]uint64
}

// kind is what conditions can tell of a character.
type kind uint8

const (
	kindNone kind = iota // there is none
	kindLine
	kindWord
	kindOther
	kinds
)

func kindOf(r rune) kind {
	switch {
	case r < 0:
		return kindNone
	case r == '\n':
		return kindLine
	case syntax.IsWordChar(r):
		return kindWord
	}
	return kindOther
}

// asciiKinds are those of ASCII.
var asciiKinds = func() (k [utf8.RuneSelf]kind) {
	for i := range k {
		k[i] = kindOf(rune(i))
	}
	return k
}()

// allConditions are the conditions of patterns, such as \b.
const allConditions = syntax.EmptyBeginLine | syntax.EmptyEndLine | syntax.EmptyBeginText | syntax.EmptyEndText |
	syntax.EmptyWordBoundary | syntax.EmptyNoWordBoundary

// maxNeedle is how many instructions all patterns may come to together.
const maxNeedle = 4_000

var errFoundEverywhere = errors.New("the pattern is found where there is nothing, so every answer would be stopped")

// parsePattern reads a pattern that package pattern takes.
func parsePattern(text string) (*syntax.Regexp, error) {
	if text == "" {
		return nil, errFoundEverywhere
	}
	if _, err := pattern.Compile(text); err != nil {
		return nil, err
	}
	return syntax.Parse(text, syntax.Perl)
}

// newNeedle joins patterns. Its error is about one of them, or all if that is -1.
func newNeedle(parsed []*syntax.Regexp, window int) (n *needle, about int, err error) {
	for i, p := range parsed {
		if compiled(p, window).empty() {
			return nil, i, errFoundEverywhere
		}
	}
	n = compiled(&syntax.Regexp{Op: syntax.OpAlternate, Sub: parsed}, window)
	if len(n.prog.Inst) > maxNeedle {
		return nil, -1, fmt.Errorf("the patterns come to %d instructions; at most %d are taken", len(n.prog.Inst), maxNeedle)
	}
	return n, 0, nil
}

// compiled makes the program of one pattern.
func compiled(p *syntax.Regexp, window int) *needle {
	prog, _ := syntax.Compile(p.Simplify()) // it never fails
	n := &needle{prog: prog, window: window, ascii: make([][2]uint64, len(prog.Inst))}
	s := n.search()
	for met := range n.begins {
		s.clear()
		s.reach(thread{pc: prog.Start}, syntax.EmptyOp(met))
		for _, t := range s.list {
			n.begins[met] = append(n.begins[met], t.pc)
		}
	}
	for pc := range prog.Inst {
		switch in := &prog.Inst[pc]; in.Op {
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			for r := range rune(utf8.RuneSelf) {
				if in.MatchRune(r) {
					n.ascii[pc][r>>6] |= 1 << (r & 63)
				}
			}
		default: // it takes none
		}
	}
	for k, before := range [kinds]rune{-1, '\n', 'a', ' '} {
		for c := range n.first[k] {
			n.first[k][c] = c >= utf8.RuneSelf || n.begun(before, rune(c))
		}
	}
	for c := range n.second {
		n.second[c] = n.behind(s, rune(c))
	}
	return n
}

// behind are the characters of ASCII with which a match may go on that has begun with
// c; all, if it may end there.
func (n *needle) behind(s *search, c rune) (next [2]uint64) {
	s.clear()
	for _, pc := range n.begins[allConditions] {
		if n.takes(pc, c) && s.reach(thread{pc: int(n.prog.Inst[pc].Out)}, allConditions) {
			return [2]uint64{^uint64(0), ^uint64(0)}
		}
	}
	for _, t := range s.list {
		next[0] |= n.ascii[t.pc][0]
		next[1] |= n.ascii[t.pc][1]
	}
	return next
}

// begun reports whether a match may begin with r, which is ASCII, behind before.
func (n *needle) begun(before, r rune) bool {
	return slices.ContainsFunc(n.begins[syntax.EmptyOpContext(before, r)], func(pc int) bool { return n.takes(pc, r) })
}

// takes reports whether an instruction takes r.
func (n *needle) takes(pc int, r rune) bool {
	if r < utf8.RuneSelf {
		return n.ascii[pc][r>>6]&(1<<(r&63)) != 0
	}
	return n.prog.Inst[pc].MatchRune(r)
}

// empty reports whether it may be found without a character.
func (n *needle) empty() bool {
	return n.search().reach(thread{pc: n.prog.Start}, allConditions)
}

// search looks for a needle in a text that comes in pieces. Of the text it keeps
// nothing but where in the patterns matches may have come to, and the bytes of a
// character that is not whole yet: it finds the same however the text is split.
// It begins with [needle.search].
type search struct {
	n *needle
	// prev is the last character, -1 at the beginning, and at how many bytes there
	// were.
	prev rune
	at   int
	// threads are where matches may have come to behind the last character, those
	// that began last in front.
	threads []thread
	// list are the threads that wait for the next one. seen says of each
	// instruction whether it was met in this step.
	list []thread
	seen []int
	step int
	// part is what of a character has come.
	part []byte
}

// thread is a way in which a match may be going on. Of those that have come to the
// same instruction, the one that began last is enough: it gives the shortest match.
type thread struct {
	pc    int
	start int
}

func (n *needle) search() *search {
	return &search{n: n, prev: -1, step: 1, seen: make([]int, len(n.prog.Inst))}
}

// take takes in more of the text and reports whether the needle is found.
func (s *search) take(text string) bool {
	for len(s.part) > 0 && text != "" {
		s.part = append(s.part, text[0])
		text = text[1:]
		if s.drain(false) {
			return true
		}
	}
	for text = s.skip(text); text != ""; text = s.skip(text) {
		if !utf8.FullRuneInString(text) {
			s.part = append(s.part, text...)
			break
		}
		r, size := utf8.DecodeRuneInString(text)
		if s.next(r, size) {
			return true
		}
		text = text[size:]
	}
	return s.settled()
}

// skip takes in what no match can begin with while none is going on, and returns the
// rest.
func (s *search) skip(text string) string {
	if len(s.threads) > 0 {
		return text
	}
	k, i := kindOf(s.prev), 0
	for i < len(text) {
		if b := text[i]; s.n.first[k][b] && (b >= utf8.RuneSelf || i+1 == len(text) || text[i+1] >= utf8.RuneSelf || s.n.second[b][text[i+1]>>6]>>(text[i+1]&63)&1 != 0) {
			break
		}
		k = asciiKinds[text[i]]
		i++
	}
	if i > 0 {
		s.prev = rune(text[i-1])
		s.at += i
	}
	return text[i:]
}

// end takes in that there is no more text.
func (s *search) end() bool {
	if s.drain(true) {
		return true
	}
	return len(s.threads) > 0 && s.met(syntax.EmptyOpContext(s.prev, -1))
}

// drain takes in the characters that have become whole, or all bytes there are.
func (s *search) drain(all bool) bool {
	for len(s.part) > 0 && (all || utf8.FullRune(s.part)) {
		r, size := utf8.DecodeRune(s.part)
		if s.next(r, size) {
			return true
		}
		s.part = append(s.part[:0], s.part[size:]...)
	}
	return false
}

// next takes in a character. It reports whether the needle was found before it.
func (s *search) next(r rune, size int) bool {
	conditions := syntax.EmptyOpContext(s.prev, r)
	if len(s.threads) > 0 && s.met(conditions) {
		return true
	}
	s.threads = s.threads[:0]
	for _, pc := range s.n.begins[conditions] {
		s.through(thread{pc, s.at}, r)
	}
	for _, t := range s.list {
		s.through(t, r)
	}
	s.list = s.list[:0]
	s.prev = r
	s.at += size
	return false
}

// through goes on with t behind r, if the instruction takes it.
func (s *search) through(t thread, r rune) {
	if s.n.takes(t.pc, r) {
		s.threads = append(s.threads, thread{int(s.n.prog.Inst[t.pc].Out), t.start})
	}
}

// settled reports whether the needle is found whatever comes next.
func (s *search) settled() bool {
	if len(s.threads) == 0 {
		return false
	}
	var conditions syntax.EmptyOp
	if s.prev == '\n' {
		conditions = syntax.EmptyBeginLine
	}
	return s.met(conditions)
}

// clear begins a step.
func (s *search) clear() {
	s.step++
	s.list = s.list[:0]
}

// met reports whether a match has come to its end under conditions.
func (s *search) met(conditions syntax.EmptyOp) bool {
	s.clear()
	for _, t := range s.threads {
		if s.at-t.start <= s.n.window && s.reach(t, conditions) {
			return true
		}
	}
	return false
}

// reach follows t to the instructions that take a character, and reports whether
// it came to the end of a pattern.
func (s *search) reach(t thread, conditions syntax.EmptyOp) bool {
	if s.seen[t.pc] == s.step {
		return false
	}
	s.seen[t.pc] = s.step
	in := &s.n.prog.Inst[t.pc]
	switch in.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		s.list = append(s.list, t)
	case syntax.InstFail:
	case syntax.InstMatch:
		return true
	case syntax.InstAlt, syntax.InstAltMatch:
		return s.reach(thread{int(in.Out), t.start}, conditions) || s.reach(thread{int(in.Arg), t.start}, conditions)
	case syntax.InstCapture, syntax.InstNop:
		return s.reach(thread{int(in.Out), t.start}, conditions)
	case syntax.InstEmptyWidth:
		return syntax.EmptyOp(in.Arg)&^conditions == 0 && s.reach(thread{int(in.Out), t.start}, conditions)
	}
	return false
}
