package wire

import (
	"bytes"
	"slices"
)

// maxHead is how much of an answer's beginning is kept, in bytes, for the
// case that it turns out to be no stream.
const maxHead = 4 << 10

// Head keeps the beginning of what is written to it, without the white space
// in front: some gateways send blank lines while they wait. The zero value is
// empty.
type Head struct {
	text []byte
}

// Write keeps what there is room for, and never fails.
func (h *Head) Write(p []byte) (int, error) {
	rest := p
	if len(h.text) == 0 {
		rest = bytes.TrimLeft(p, " \t\r\n")
	}
	h.text = append(h.text, rest[:min(len(rest), maxHead-len(h.text))]...)
	return len(p), nil
}

// Foreign returns the text from the first line on that no event stream has,
// nil if there is none. A stream that was cut before its first data has none.
func (h *Head) Foreign() []byte {
	rest := bytes.TrimPrefix(h.text, []byte("\xEF\xBB\xBF"))
	for len(rest) > 0 {
		end := bytes.IndexAny(rest, "\r\n")
		if end < 0 {
			if field(rest) || begunField(rest) {
				return nil
			}
			return rest
		}
		if !field(rest[:end]) {
			return rest
		}
		rest = rest[end+1:]
	}
	return nil
}

var fields = []string{"data", "event", "id", "retry"}

// field reports whether a line is one of an event stream; blank lines and
// comments are.
func field(line []byte) bool {
	name, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
	return len(name) == 0 || slices.Contains(fields, string(name))
}

// begunField reports whether a line that ends too early might have become a
// field.
func begunField(line []byte) bool {
	return slices.ContainsFunc(fields, func(name string) bool { return bytes.HasPrefix([]byte(name), line) })
}
