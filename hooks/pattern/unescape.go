package pattern

import (
	"bytes"
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"
)

// quote writes a text as JSON, without HTML escapes.
func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // texts always encode
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// escapedUnit reads a text with the escapes of JSON. A backslash that begins none
// stands for itself.
func escapedUnit(b []byte, final bool) (rune, int) {
	if len(b) == 0 || b[0] != '\\' {
		return plainUnit(b, final)
	}
	r, width, ok := unescape(b, final)
	if !ok {
		return '\\', 1
	}
	return r, width
}

// unescape reads the escape at the beginning of b as package encoding/json does.
// ok is false if it is none. The width is 0 if more has to be known, which is
// never so if b is final.
func unescape(b []byte, final bool) (r rune, width int, ok bool) {
	if len(b) == 1 {
		return 0, 0, !final
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2, true
	case 'b':
		return '\b', 2, true
	case 'f':
		return '\f', 2, true
	case 'n':
		return '\n', 2, true
	case 'r':
		return '\r', 2, true
	case 't':
		return '\t', 2, true
	case 'u':
	default:
		return 0, 0, false
	}
	r, width, ok = hexEscape(b, final)
	if width == 0 || !utf16.IsSurrogate(r) {
		return r, width, ok
	}
	if r < 0xDC00 { // the first of two, if the other one follows
		low, more, ok := hexEscape(b[width:], final)
		switch both := utf16.DecodeRune(r, low); {
		case !ok:
		case more == 0:
			return 0, 0, true
		case both != utf8.RuneError:
			return both, width + more, true
		}
	}
	return utf8.RuneError, width, true
}

// hexEscape reads \uXXXX. What is only the beginning of one has the width 0.
func hexEscape(b []byte, final bool) (r rune, width int, ok bool) {
	const length = len(`\u0000`)
	for i, c := range b[:min(len(b), length)] {
		switch {
		case i == 0 && c != '\\', i == 1 && c != 'u':
			return 0, 0, false
		case i < 2:
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, 0, false
		}
	}
	if len(b) < length {
		return 0, 0, !final
	}
	return r, length, true
}
