package main

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// columns is how many columns of a terminal a character takes.
func columns(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r < 0x1100: // what is wide begins here
		return 1
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	case width.Neutral, width.EastAsianAmbiguous, width.EastAsianNarrow, width.EastAsianHalfwidth:
	}
	return 1
}

// textColumns is how many columns a text without line breaks takes.
func textColumns(s string) int {
	n := 0
	for _, r := range s {
		n += columns(r)
	}
	return n
}

// printable replaces what would make a terminal do something, in text that
// comes from models, tools and other people. Line breaks and tabs stay.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case r == '\r':
			return -1 // half a line break; its other half may come later
		case unicode.IsControl(r):
			return '\uFFFD'
		}
		return r
	}, s)
}

// oneLine shortens s to what fits into a line of that many columns.
func oneLine(s string, limit int) string {
	s = strings.Join(strings.Fields(printable(s)), " ")
	if textColumns(s) <= limit {
		return s
	}
	n := 0
	for i, r := range s {
		if n += columns(r); n > limit-1 {
			return s[:i] + "…"
		}
	}
	return s
}
