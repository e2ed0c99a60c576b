package pattern

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// MaxHold is how many bytes a stream holds back at most, and what 0 means.
const MaxHold = 64 << 10

// ErrHold is of a text in which a match may be going on that is longer than what
// a stream may hold back. Nothing of it can be given out.
var ErrHold = errors.New("what may have to be redacted is longer than what may be held back")

// HoldError is [ErrHold] with the limit in bytes.
type HoldError struct{ Limit int }

// Error says how much may be held back.
func (e *HoldError) Error() string { return fmt.Sprintf("%v: %d bytes", ErrHold, e.Limit) }

// Unwrap returns [ErrHold].
func (e *HoldError) Unwrap() error { return ErrHold }

// unlimited is the limit of what is there as a whole.
const unlimited = math.MaxInt

// limit is what a limit of a stream comes to.
func limit(hold int) int {
	if hold <= 0 || hold > MaxHold {
		return MaxHold
	}
	return hold
}

// TextStream redacts one text that arrives in pieces. What it has given out at
// any time is the beginning of what the text comes to, and the pieces make no
// difference. It is not safe for concurrent use. Behind an error it gives out
// nothing more.
type TextStream struct {
	r     *Redactor
	hold  int
	cover cover
	views []view
	one   [1]view // is where they stand if there is one
	// buf is what came from base on.
	buf  []byte
	base int
	err  error
}

// view is one way to read a text.
type view struct {
	engine
	// unit is the character at the beginning of a text and its width; 0 if more
	// has to be known.
	unit func(b []byte, final bool) (rune, int)
}

// Text begins a text. hold is how many bytes are held back at most; 0, and more
// than [MaxHold], are MaxHold.
func (r *Redactor) Text(hold int) *TextStream {
	return r.text(limit(hold), plainUnit)
}

func (r *Redactor) text(hold int, units ...func([]byte, bool) (rune, int)) *TextStream {
	s := &TextStream{r: r, hold: hold, cover: r.newCover()}
	s.views = s.one[:0]
	auto := r.auto
	if len(units) > 1 {
		auto = nil // what one finds may be given out while a match of another goes on in it
	}
	for _, u := range units {
		s.views = append(s.views, view{newEngine(auto, r.programs), u})
	}
	return s
}

func (s *TextStream) reset() {
	s.cover.reset()
	for i := range s.views {
		s.views[i].reset(0)
	}
	s.buf, s.base, s.err = s.buf[:0], 0, nil
}

// Push takes the next piece and appends to dst what can be given out. The error
// is a [*HoldError].
func (s *TextStream) Push(dst []byte, piece string) ([]byte, error) {
	return s.push(dst, piece, false)
}

// End ends the text and appends the rest of it.
func (s *TextStream) End(dst []byte) ([]byte, error) { return s.push(dst, "", true) }

// Held is how many bytes are held back.
func (s *TextStream) Held() int { return s.base + len(s.buf) - max(s.cover.out, s.cover.open, s.base) }

// Owes reports whether something is held back for which something will be given
// out, whatever comes. What belongs to a match that went out already may come to
// nothing, as what is replaced by an empty text does.
func (s *TextStream) Owes() bool {
	return s.Held() > 0 && s.frontier() >= s.cover.open
}

func (s *TextStream) counts() []int { return s.cover.counts }

func (s *TextStream) push(dst []byte, piece string, final bool) ([]byte, error) {
	if s.err != nil {
		return dst, s.err
	}
	s.buf = append(s.buf, piece...)
	dst = s.feed(dst, final)
	if final && s.err == nil {
		for i := range s.views {
			v := &s.views[i]
			v.finish(&s.cover, s.buf[:v.pos-s.base])
		}
	}
	if s.err != nil {
		s.buf = nil
		return dst, s.err
	}
	dst = s.release(dst)
	if s.cover.out > s.base {
		n := copy(s.buf, s.buf[s.cover.out-s.base:])
		s.buf, s.base = s.buf[:n], s.cover.out
	}
	return dst, nil
}

// feed reads as far as that is possible. Each character is read by the view that
// is behind, so that the order does not depend on the pieces. Nothing is read over
// the place at which too much may be held.
func (s *TextStream) feed(dst []byte, final bool) []byte {
	for {
		v := s.behind()
		if len(s.views) == 1 {
			rest := s.buf[v.pos-s.base:]
			v.run(rest[:min(len(rest), s.hold-(v.pos-max(s.cover.out, s.cover.open)))])
		}
		r, width := v.unit(s.buf[v.pos-s.base:], final)
		if width == 0 {
			return dst
		}
		v.step(&s.cover, s.buf[:v.pos-s.base], r, width)
		if v.pos-max(s.cover.out, s.cover.open) > s.hold {
			dst = s.release(dst)
			if v.pos-s.cover.out > s.hold {
				s.err = &HoldError{s.hold}
				return dst
			}
		}
	}
}

func (s *TextStream) behind() *view {
	v := &s.views[0]
	for i := range s.views[1:] {
		if other := &s.views[1+i]; other.pos < v.pos {
			v = other
		}
	}
	return v
}

func (s *TextStream) frontier() int {
	f := s.views[0].frontier()
	for i := range s.views[1:] {
		f = min(f, s.views[1+i].frontier())
	}
	return f
}

func (s *TextStream) release(dst []byte) []byte {
	return s.cover.release(dst, s.buf, s.base, s.frontier(), s.r.with)
}

// plainUnit reads a text as it is. A byte that is no part of a character is
// [utf8.RuneError], as it is for package regexp.
func plainUnit(b []byte, final bool) (rune, int) {
	switch {
	case len(b) == 0:
		return 0, 0
	case b[0] < utf8.RuneSelf:
		return rune(b[0]), 1
	case !final && !utf8.FullRune(b):
		return 0, 0
	}
	return utf8.DecodeRune(b)
}
