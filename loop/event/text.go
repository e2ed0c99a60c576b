package event

import (
	"bytes"
	"strings"
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

var nulEscape = []byte(`\u0000`)

// replaceNUL is the last wall before storage: raw is what encoding/json wrote,
// so a U+0000 can only stand as the escape \u0000 behind an even number of
// backslashes.
func replaceNUL(raw []byte) []byte {
	if !bytes.Contains(raw, nulEscape) {
		return raw
	}
	var out []byte
	changed := false
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 >= len(raw) {
			out = append(out, raw[i])
			continue
		}
		if bytes.HasPrefix(raw[i:], nulEscape) {
			out = append(out, "\uFFFD"...)
			i += len(nulEscape) - 1
			changed = true
			continue
		}
		out = append(out, raw[i], raw[i+1])
		i++
	}
	if changed && !bytes.Contains(out, []byte(`"sanitized":true`)) {
		out = append(bytes.TrimSuffix(out, []byte("}")), `,"sanitized":true}`...)
	}
	return out
}
