package pattern

import (
	"fmt"
	"regexp/syntax"
	"unicode"
	"unicode/utf8"
)

// class is what the conditions of a pattern (^, $, \b) can tell of a character.
type class uint8

const (
	classNone class = iota // there is none: the text begins or ends here
	classLine              // the end of a line
	classWord
	classOther
	classes
)

// classOf is the class of every byte; one of a longer character is classOther.
var classOf = func() (t [256]class) {
	for i := range t {
		switch r := rune(i); {
		case r == '\n':
			t[i] = classLine
		case r < utf8.RuneSelf && syntax.IsWordChar(r):
			t[i] = classWord
		default:
			t[i] = classOther
		}
	}
	return t
}()

// flags are the conditions that hold between two characters.
func flags(prev, next class) syntax.EmptyOp {
	example := [classes]rune{-1, '\n', 'a', ' '}
	return syntax.EmptyOpContext(example[prev], example[next])
}

// matched stands in a list of steps for the end of the pattern.
const matched = -1

// program is a compiled pattern: the instructions that take a character, and for
// each of them which ones may take the next. It is not changed once it is made.
type program struct {
	rule  int
	check func([]byte) bool
	insts []inst
	// contexts are for each pair of classes the index in begin and after. There
	// is one for each set of conditions that makes a difference to the pattern.
	contexts [classes * classes]uint8
	// begin are the instructions that may take the first character, by context,
	// and after those that may come after each instruction, with the most
	// preferred first. matched may stand among them. Unless there is a check,
	// nothing follows it: a match is preferred to that.
	begin [][]int32
	after [][][]int32
	// first are the characters that may be the first one, by context.
	first []firsts
}

// firsts says of each character below utf8.RuneSelf, and of all others at that
// place, whether a match may begin with it.
type firsts [utf8.RuneSelf + 1]bool

// inst takes one character.
type inst struct {
	ascii [2]uint64
	rest  *syntax.Inst
}

func (i *inst) takes(r rune) bool {
	if r < utf8.RuneSelf {
		return i.ascii[r>>6]&(1<<(r&63)) != 0
	}
	return i.rest.MatchRune(r)
}

// compile makes the program of a pattern.
func compile(text string, check func([]byte) bool) (*program, error) {
	parsed, err := parse(text)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	b := builder{prog: prog, p: &program{check: check}, dense: make([]int32, len(prog.Inst)), seen: make([]int, len(prog.Inst))}
	var used syntax.EmptyOp
	for pc := range prog.Inst {
		switch in := &prog.Inst[pc]; in.Op {
		case syntax.InstEmptyWidth:
			used |= syntax.EmptyOp(in.Arg)
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			b.dense[pc] = int32(len(b.p.insts))
			b.p.insts = append(b.p.insts, newInst(in))
		default:
		}
	}
	index := map[syntax.EmptyOp]uint8{}
	for prev := range classes {
		for next := range classes {
			holds := flags(prev, next) & used
			n, ok := index[holds]
			if !ok {
				n = uint8(len(index))
				index[holds] = n
				if err := b.context(holds); err != nil {
					return nil, err
				}
			}
			b.p.contexts[prev*classes+next] = n
		}
	}
	return b.p, nil
}

func newInst(in *syntax.Inst) inst {
	out := inst{rest: in}
	for r := range rune(utf8.RuneSelf) {
		if in.MatchRune(r) {
			out.ascii[r>>6] |= 1 << (r & 63)
		}
	}
	return out
}

// builder makes a program.
type builder struct {
	prog  *syntax.Prog
	p     *program
	dense []int32
	// seen has the list in which an instruction was last met.
	seen  []int
	lists int
	ways  int
}

// context makes the lists for the conditions that hold.
func (b *builder) context(holds syntax.EmptyOp) error {
	begin := b.list(b.prog.Start, holds)
	b.p.begin = append(b.p.begin, begin)
	b.p.first = append(b.p.first, b.p.firsts(begin))
	after := make([][]int32, 0, len(b.p.insts))
	for i := range b.p.insts {
		after = append(after, b.list(int(b.p.insts[i].rest.Out), holds))
		if b.ways > maxWays {
			return fmt.Errorf("the pattern has more than %d ways from one character to the next: leave out less", maxWays)
		}
	}
	b.p.after = append(b.p.after, after)
	return nil
}

func (b *builder) list(pc int, holds syntax.EmptyOp) []int32 {
	b.lists++
	var out []int32
	b.walk(pc, holds, &out)
	b.ways += len(out)
	return out
}

// walk appends what is reached from pc without taking a character, in the order
// of preference. It reports whether nothing that is less preferred counts.
func (b *builder) walk(pc int, holds syntax.EmptyOp, out *[]int32) (done bool) {
	if b.seen[pc] == b.lists {
		return false
	}
	b.seen[pc] = b.lists
	in := &b.prog.Inst[pc]
	switch in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		return b.walk(int(in.Out), holds, out) || b.walk(int(in.Arg), holds, out)
	case syntax.InstCapture, syntax.InstNop:
		return b.walk(int(in.Out), holds, out)
	case syntax.InstEmptyWidth:
		return syntax.EmptyOp(in.Arg)&^holds == 0 && b.walk(int(in.Out), holds, out)
	case syntax.InstMatch:
		*out = append(*out, matched)
		return b.p.check == nil
	case syntax.InstFail:
		return false
	default:
		*out = append(*out, b.dense[pc])
		return false
	}
}

// firsts are the characters that one of a list of instructions takes.
func (p *program) firsts(list []int32) (f firsts) {
	for _, i := range list {
		if i == matched {
			continue
		}
		in := &p.insts[i]
		for r := range rune(utf8.RuneSelf) {
			f[r] = f[r] || in.takes(r)
		}
		f[utf8.RuneSelf] = f[utf8.RuneSelf] || takesMore(in.rest)
	}
	return f
}

// takesMore reports whether an instruction may take a character that is no ASCII.
func takesMore(in *syntax.Inst) bool {
	if in.Op == syntax.InstRuneAny || in.Op == syntax.InstRuneAnyNotNL {
		return true
	}
	if syntax.Flags(in.Arg)&syntax.FoldCase != 0 && len(in.Rune) == 1 {
		// The long s is an s, and the sign for kelvin a k.
		for r := unicode.SimpleFold(in.Rune[0]); r != in.Rune[0]; r = unicode.SimpleFold(r) {
			if r >= utf8.RuneSelf {
				return true
			}
		}
	}
	for _, r := range in.Rune {
		if r >= utf8.RuneSelf {
			return true
		}
	}
	return false
}
