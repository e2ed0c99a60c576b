package event

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// CleanText makes s storable: each run of bytes that is not UTF-8 (half of a
// surrogate pair included) and each U+0000 becomes U+FFFD. It reports whether
// it changed anything; whoever stores the text says so on the event. Text
// that merely spells an escape, such as the six characters \u0000, is left
// alone.
func CleanText(s string) (string, bool) {
	if clean(s) {
		return s, false
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD"), true
}

// clean says of a text that it is stored as it is.
func clean(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// Shorten cuts s to at most limit bytes without cutting inside a character,
// and ends a cut text with an ellipsis when there is room for one.
func Shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const ellipsis = "…"
	end := limit - len(ellipsis)
	tail := ellipsis
	if end <= 0 {
		end, tail = limit, ""
	}
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + tail
}

// CleanJSON is CleanText for a JSON document of somebody else: escapes that Postgres
// cannot read, which are that of U+0000 and those of half a surrogate pair, become
// U+FFFD. Everything else keeps its bytes.
func CleanJSON(s string) (string, bool) {
	s, changed := CleanText(s)
	out, more := cleanEscapes([]byte(s))
	if !more {
		return s, changed
	}
	return string(out), true
}

// cleanWritten is the last wall before storage: raw is what encoding/json wrote of a
// payload.
func cleanWritten(raw []byte) []byte {
	out, changed := cleanEscapes(raw)
	if changed && !bytes.Contains(out, []byte(`"sanitized":true`)) {
		out = append(bytes.TrimSuffix(out, []byte("}")), `,"sanitized":true}`...)
	}
	return out
}

// escapeLength is how long an escape such as \u0000 is.
const escapeLength = len(`\u0000`)

// cleanEscapes replaces the escapes in a JSON document that cannot be stored. It
// returns raw itself where there are none.
func cleanEscapes(raw []byte) (out []byte, changed bool) {
	if !bytes.Contains(raw, []byte(`\u0000`)) && !bytes.Contains(raw, []byte(`\ud`)) && !bytes.Contains(raw, []byte(`\uD`)) {
		return raw, false
	}
	for i := 0; i < len(raw); {
		if raw[i] != '\\' || i+1 >= len(raw) {
			out = append(out, raw[i])
			i++
			continue
		}
		r, width := escaped(raw[i:]), 2
		if r >= 0 {
			width = escapeLength
		}
		if utf16.IsSurrogate(r) && utf16.DecodeRune(r, escaped(raw[i+escapeLength:])) != utf8.RuneError {
			r, width = ' ', 2*escapeLength // a whole pair stands for a character
		}
		if r == 0 || utf16.IsSurrogate(r) {
			out, changed = append(out, "\uFFFD"...), true
		} else {
			out = append(out, raw[i:i+width]...)
		}
		i += width
	}
	if !changed {
		return raw, false
	}
	return out, true
}

// escaped is what an escape with four digits at the beginning of b stands for, -1 if
// there is none.
func escaped(b []byte) rune {
	if len(b) < escapeLength || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(b[2:escapeLength]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
