package main

import (
	"io"
	"unicode/utf8"
)

// typed is what a person types or pastes, as text only. Whatever is none, and
// U+FFFD, becomes a question mark: [golang.org/x/term.Terminal] waits for ever
// behind it. It is used by one goroutine.
type typed struct {
	in io.Reader
	// begun is the beginning of a character, ready what may be read.
	begun, ready []byte
}

// Read implements [io.Reader].
func (t *typed) Read(p []byte) (int, error) {
	for len(t.ready) == 0 {
		var buf [256]byte
		n, err := t.in.Read(buf[:])
		t.take(buf[:n])
		if err != nil && len(t.ready) == 0 {
			return 0, err
		}
	}
	n := copy(p, t.ready)
	t.ready = t.ready[n:]
	return n, nil
}

func (t *typed) take(b []byte) {
	b = append(t.begun, b...)
	for utf8.FullRune(b) {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError {
			r = '?'
		}
		t.ready = utf8.AppendRune(t.ready, r)
		b = b[n:]
	}
	t.begun = b
}
