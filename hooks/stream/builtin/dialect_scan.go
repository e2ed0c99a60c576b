package builtin

import (
	"strings"
	"unicode/utf8"
)

// The ways in which calls are written in a text.
var (
	// <tool name="…">{…}</tool>
	taggedForm = []step{
		{text: "<tool"}, {is: stepBlanks}, {text: "name"}, {is: stepBlank}, {text: "="}, {is: stepBlank}, {is: stepName}, {is: stepBlank}, {text: ">"},
		{is: stepBlank}, {is: stepObject}, {is: stepBlank}, {text: closingTag}, {is: stepBlank}, {text: ">"},
	}
	// {0:"name",1:{…}}
	tupleForm = []step{
		{text: "{"}, {is: stepBlank}, {text: "0"}, {is: stepBlank}, {text: ":"}, {is: stepBlank}, {is: stepName}, {is: stepBlank}, {text: ","},
		{is: stepBlank}, {text: "1"}, {is: stepBlank}, {text: ":"}, {is: stepBlank}, {is: stepObject}, {is: stepBlank}, {text: "}"},
	}
)

const closingTag = "</tool"

// step is a part of a form.
type step struct {
	is   stepKind
	text string
}

type stepKind uint8

const (
	stepText   stepKind = iota
	stepBlank           // any white space
	stepBlanks          // some of it
	stepName            // the name of a tool in quotes
	stepObject          // arguments
)

// maxToolName is how long the name of a tool may be.
const maxToolName = 128

// attempt is what may turn out as a call: a form that has fitted so far.
type attempt struct {
	form []step // nil is none
	step int
	// at is how many bytes the step has had.
	at     int
	quote  byte
	name   []byte
	object object
	// from and to are where the arguments are in the text.
	from, to int
}

type fit uint8

const (
	fitsNot fit = iota
	fits
	fitsWhole
)

// next takes in byte number n of the text.
func (a *attempt) next(b byte, n int, named func(string) bool) fit {
	for {
		on := false // whether the step is done, and b is of it
		switch s := a.form[a.step]; s.is {
		case stepText:
			if b != s.text[a.at] {
				return fitsNot
			}
			a.at++
			on = a.at == len(s.text)
		case stepBlank, stepBlanks:
			if blank(b) {
				a.at++
				return fits
			}
			if s.is == stepBlanks && a.at == 0 {
				return fitsNot
			}
			a.step, a.at = a.step+1, 0
			continue
		case stepName:
			end, ok := a.letter(b)
			if !ok || end && !named(string(a.name)) {
				return fitsNot
			}
			on = end
		case stepObject:
			if a.object.at == atStart {
				a.from = n
			}
			done, ok := a.object.next(b)
			if !ok {
				return fitsNot
			}
			a.to, on = n+1, done
		}
		switch {
		case !on:
			return fits
		case a.step == len(a.form)-1:
			return fitsWhole
		}
		a.step, a.at = a.step+1, 0
		return fits
	}
}

// letter takes in a byte of the name, its quotes included.
func (a *attempt) letter(b byte) (end, ok bool) {
	switch {
	case a.quote == 0:
		a.quote = b
		return false, b == '"' || b == '\''
	case b == a.quote:
		return true, len(a.name) > 0
	case len(a.name) == maxToolName || !nameByte(b):
		return false, false
	}
	a.name = append(a.name, b)
	return false, true
}

func nameByte(b byte) bool {
	return digit(b) || 'a' <= b|0x20 && b|0x20 <= 'z' || strings.IndexByte("_-.:/", b) >= 0
}

// opensTag says that b stands behind a < that was taken for that of the closing
// tag and may be that of another call.
func (a *attempt) opensTag() bool { return a.form[a.step].text == closingTag && a.at == 1 }

// scanner finds the calls in the text of one block. What it finds does not depend
// on the pieces in which the text comes: each byte is looked at once, in order.
// A text that did not become a call is not searched for others: the next may
// begin at the byte that did not fit.
type scanner struct {
	in *dialect
	// block is where text goes; "" is one that is yet to be made.
	source, block string
	// begun says that there was text.
	begun bool
	fence fence
	try   attempt
	// held is what has fitted.
	held []byte
}

// write takes in a piece of the text.
func (s *scanner) write(text string) {
	for text != "" {
		if s.try.form == nil {
			n := s.plain(text)
			s.in.text(s, text[:n])
			if text = text[n:]; text != "" {
				s.begin(text[0])
				text = text[1:]
			}
			continue
		}
		text = s.match(text)
	}
}

// plain is how many bytes come before the first with which a call may begin.
func (s *scanner) plain(text string) int {
	for i := 0; i < len(text); i++ {
		if s.fence.at == linePlain {
			from := i
			for i < len(text) && text[i] != '\n' && (s.fence.mark != 0 || text[i] != '<' && text[i] != '{') {
				i++
			}
			if i > from {
				s.fence.last = text[i-1]
			}
			if i == len(text) {
				return i
			}
		}
		if b := text[i]; (b == '<' || b == '{') && !s.fence.quotes() && s.in.mayCall() {
			return i
		}
		s.fence.next(text[i])
	}
	return len(text)
}

// begin begins with what may be a call.
func (s *scanner) begin(b byte) {
	form := taggedForm
	if b == '{' {
		form = tupleForm
	}
	s.try = attempt{form: form, name: s.try.name[:0], object: object{open: s.try.object.open[:0]}}
	s.match(string(b))
}

// match goes on with it, and returns what is left of text once that has ended.
func (s *scanner) match(text string) (rest string) {
	for i := range len(text) {
		b := text[i]
		how := s.try.next(b, len(s.held), s.in.named)
		if how == fitsNot {
			again := s.try.opensTag()
			if again {
				s.held = s.held[:len(s.held)-1]
				s.in.held--
			}
			s.giveUp()
			if again {
				s.begin('<')
			}
			return text[i:]
		}
		s.fence.next(b)
		s.held = append(s.held, b)
		s.in.held++
		args := s.held[s.try.from:s.try.to]
		switch {
		case how == fitsWhole && utf8.Valid(args):
			s.in.call(s, string(s.try.name), string(args))
			s.drop()
			return text[i+1:]
		case how == fitsWhole || s.in.held >= maxCallBytes:
			s.giveUp()
			return text[i+1:]
		}
	}
	return ""
}

// giveUp makes text of what was held.
func (s *scanner) giveUp() {
	s.in.text(s, string(s.held))
	s.drop()
}

func (s *scanner) drop() {
	s.in.held -= len(s.held)
	s.held, s.try.form = s.held[:0], nil
	if cap(s.held) > maxKept {
		s.held = nil
	}
}

// maxKept is how much of a buffer is kept for the next call.
const maxKept = 4 << 10
