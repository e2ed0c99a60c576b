package api

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	replacement = "\uFFFD"
	// escapeLen is the length of \uXXXX.
	escapeLen = 6
)

// repairJSON makes the text in JSON valid: each run of bytes that is not UTF-8
// and each escape of half a surrogate pair becomes U+FFFD. It reports whether it
// changed anything, and leaves data itself alone. Data that is no JSON stays no
// JSON.
func repairJSON(data []byte) ([]byte, bool) {
	repaired := false
	if !utf8.Valid(data) {
		data, repaired = bytes.ToValidUTF8(data, []byte(replacement)), true
	}
	var out []byte
	done := 0 // what of data is in out
	for i := 0; i < len(data); {
		if data[i] != '\\' {
			i++
			continue
		}
		unit, ok := escapedUnit(data[i:])
		switch low, _ := escapedUnit(data[min(i+escapeLen, len(data)):]); {
		case !ok:
			i += 2 // another escape, such as \\
		case !utf16.IsSurrogate(unit):
			i += escapeLen
		case utf16.DecodeRune(unit, low) != utf8.RuneError:
			i += 2 * escapeLen
		default:
			out = append(append(out, data[done:i]...), replacement...)
			i += escapeLen
			done, repaired = i, true
		}
	}
	if out == nil {
		return data, repaired
	}
	return append(out, data[done:]...), repaired
}

// escapedUnit reads the \uXXXX that data begins with.
func escapedUnit(data []byte) (rune, bool) {
	if len(data) < escapeLen || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(data[2:escapeLen]), 16, 16)
	return rune(n), err == nil
}
