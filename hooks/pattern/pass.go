package pattern

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// MaxFound is how often one rule may be found in one text of a [Pass].
const MaxFound = 100_000

// maxAdded is what the replacements in all texts of a pass may come to.
const maxAdded = 16 << 20

var (
	// ErrFound is of a text in which a rule is found more than [MaxFound] times.
	ErrFound = fmt.Errorf("a pattern is found more than %d times in one text", MaxFound)
	// ErrLong is of replacements that make texts too long.
	ErrLong = errors.New("what would stand in the place of what was found makes the text too long")
)

// Pass redacts texts that are there as a whole, one after the other. It is not
// safe for concurrent use.
type Pass struct {
	r     *Redactor
	alive func() error
	text  *TextStream
	found map[string]int
	// added is how much the replacements come to.
	added int
	err   error
}

// Begin begins a pass. Once ctx is done it fails.
func (r *Redactor) Begin(ctx context.Context) *Pass { return &Pass{r: r, alive: ctx.Err} }

// Text is s, redacted; once something has failed it is "".
func (p *Pass) Text(s string) string {
	if p.text == nil {
		p.text = p.r.text(unlimited, plainUnit)
	}
	p.text.reset()
	return p.run(p.text, s)
}

// JSON is s, redacted as a [JSONStream] does it; once something has failed it
// is "".
func (p *Pass) JSON(s string) string { return p.run(p.r.json(unlimited, unlimited), s) }

// Found says how often each rule was found, by its name; nil if nothing was
// changed.
func (p *Pass) Found() map[string]int { return p.found }

// Err is what went wrong first: [ErrFound], [ErrLong], or that of the context.
func (p *Pass) Err() error { return p.err }

// pieceOfPass is how much of a text is read before the time and the size are
// looked at. Where a text is split makes no difference.
const pieceOfPass = 16 << 10

// stream is a [TextStream] or a [JSONStream].
type stream interface {
	Push(dst []byte, piece string) ([]byte, error)
	End(dst []byte) ([]byte, error)
	// counts says how often each rule was found.
	counts() []int
}

var _, _ stream = (*TextStream)(nil), (*JSONStream)(nil)

func (p *Pass) run(to stream, s string) string {
	var out []byte
	for rest := s; rest != ""; {
		n := min(len(rest), pieceOfPass)
		if p.err = cmp.Or(p.err, p.alive()); p.err != nil {
			return ""
		}
		out, p.err = to.Push(out, rest[:n])
		if p.err = cmp.Or(p.err, p.exceeded(to.counts())); p.err != nil {
			return ""
		}
		rest = rest[n:]
	}
	if p.err != nil {
		return ""
	}
	out, p.err = to.End(out)
	counts := to.counts()
	if p.err = cmp.Or(p.err, p.exceeded(counts)); p.err != nil {
		return ""
	}
	if string(out) == s {
		return s
	}
	for i, n := range counts {
		if n == 0 {
			continue
		}
		if p.found == nil {
			p.found = map[string]int{}
		}
		p.found[p.r.rules[i].Name] += n
		p.added += n * len(p.r.with[i])
	}
	return string(out)
}

// exceeded says which limit is exceeded if rules were found so often.
func (p *Pass) exceeded(counts []int) error {
	added := p.added
	for i, n := range counts {
		if n > MaxFound {
			return ErrFound
		}
		added += n * len(p.r.with[i])
	}
	if added > maxAdded {
		return ErrLong
	}
	return nil
}
