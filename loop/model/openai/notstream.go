package openai

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	// maxHead is how much of an answer's beginning is kept, in bytes, for the
	// case that it turns out to be no stream.
	maxHead = 4 << 10
	// maxContentType is the length of a shown content type, in bytes.
	maxContentType = 100
)

// head keeps the beginning of what is written to it, without the white space
// in front: some gateways send blank lines while they wait. The zero value is
// empty.
type head struct {
	text []byte
}

// Write keeps what there is room for, and never fails.
func (h *head) Write(p []byte) (int, error) {
	rest := p
	if len(h.text) == 0 {
		rest = bytes.TrimLeft(p, " \t\r\n")
	}
	h.text = append(h.text, rest[:min(len(rest), maxHead-len(h.text))]...)
	return len(p), nil
}

// foreign returns the text from the first line on that no event stream has,
// nil if there is none. A stream that was cut before its first data has none.
func (h *head) foreign() []byte {
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

// notStream says what came in place of a stream: the provider's own error if
// it is one.
func (c *call) notStream(body []byte) *loop.ModelError {
	if e, ok := errorBody(body); ok {
		return c.model.modelError(e, http.StatusOK)
	}
	contentType := cmp.Or(event.Shorten(c.model.clean(c.contentType), maxContentType), "none")
	return &loop.ModelError{
		Status: http.StatusOK, Code: "not_a_stream",
		Message: "the provider's answer is not an event stream (content type: " + contentType + "): check that OPENAI_BASE_URL is right " +
			"(it usually ends in /v1), that what is there can stream, and that no proxy or login page answers in its place",
	}
}
