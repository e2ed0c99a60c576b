package wire

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Text is a text of the answer. What of it is no text stays in it: bytes
// that are not UTF-8 as they are, and half of a surrogate pair in the three
// bytes that UTF-8 would have for it. So the other half can still be found in
// the next delta, and who stores the text sees that something was wrong.
// encoding/json would have put U+FFFD in the place of both.
type Text string

// UnmarshalJSON takes a string, or nothing if the provider sent something
// else.
func (t *Text) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		*t = Text(Unquote(data))
	}
	return nil
}

// Unquote returns the text of a JSON string that is known to be well-formed.
func Unquote(data []byte) string {
	data = data[1 : len(data)-1]
	if bytes.IndexByte(data, '\\') < 0 {
		return string(data)
	}
	out := make([]byte, 0, len(data))
	for {
		at := bytes.IndexByte(data, '\\')
		if at < 0 {
			return string(append(out, data...))
		}
		out = append(out, data[:at]...)
		kind := data[at+1]
		data = data[at+2:]
		if kind != 'u' {
			out = append(out, escaped(kind))
			continue
		}
		unit := hexUnit(data)
		data = data[4:]
		if bytes.HasPrefix(data, []byte(`\u`)) {
			if r := utf16.DecodeRune(unit, hexUnit(data[2:])); r != utf8.RuneError {
				out = utf8.AppendRune(out, r)
				data = data[6:]
				continue
			}
		}
		out = appendUnit(out, unit)
	}
}

// escaped is the byte that a backslash and kind stand for.
func escaped(kind byte) byte {
	if at := strings.IndexByte("bfnrt", kind); at >= 0 {
		return "\b\f\n\r\t"[at]
	}
	return kind
}

func hexUnit(digits []byte) rune {
	unit, _ := strconv.ParseUint(string(digits[:4]), 16, 16) // four hexadecimal digits always are one
	return rune(unit)
}

// appendUnit appends a UTF-16 unit, half of a pair too.
func appendUnit(out []byte, unit rune) []byte {
	if !utf16.IsSurrogate(unit) {
		return utf8.AppendRune(out, unit)
	}
	return append(out, byte(0xE0|unit>>12), byte(0x80|unit>>6&0x3F), byte(0x80|unit&0x3F))
}

// surrogate returns the half of a pair that a text begins with, 0 if it begins
// with none.
func surrogate(text string) rune {
	if len(text) < 3 || text[0] != 0xED || text[1]&0xE0 != 0xA0 || text[2]&0xC0 != 0x80 {
		return 0
	}
	return 0xD000 | rune(text[1]&0x3F)<<6 | rune(text[2]&0x3F)
}

// Seam joins the pieces of a text whose characters were cut. The zero value
// has seen nothing.
type Seam struct {
	// held is the beginning of a character.
	held string
}

// Join returns what is whole of the text so far, and was not returned before.
func (s *Seam) Join(piece string) string {
	if r := utf16.DecodeRune(surrogate(s.held), surrogate(piece)); r != utf8.RuneError {
		s.held, piece = "", string(r)+piece[3:]
	}
	text := s.held + piece
	cut := begun(text)
	s.held = text[cut:]
	return text[:cut]
}

// Rest returns what is still held, once nothing will follow.
func (s *Seam) Rest() string {
	text := s.held
	s.held = ""
	return text
}

// begun is where the character begins that the end of a text cuts, the length
// of the text if it cuts none.
func begun(text string) int {
	if at := len(text) - 3; at >= 0 && utf16.IsSurrogate(surrogate(text[at:])) && surrogate(text[at:]) < 0xDC00 {
		return at
	}
	for at := len(text) - 1; at >= max(len(text)-3, 0); at-- {
		if utf8.RuneStart(text[at]) {
			if !utf8.FullRuneInString(text[at:]) {
				return at
			}
			break
		}
	}
	return len(text)
}
