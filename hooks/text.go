package hooks

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// cleanText makes what a hook says storable, in the same way as the loop does
// with text from elsewhere: what is not UTF-8, and each U+0000, becomes
// U+FFFD.
func cleanText(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// shorten cuts s to at most limit bytes, not inside a character.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// encode is the one form in which values are hashed and shown: encoding/json
// of the struct, fields in the order of their declaration, map keys sorted,
// without HTML escapes. What it is given always encodes.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("hooks: encode: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
