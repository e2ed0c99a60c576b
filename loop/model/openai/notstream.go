package openai

import (
	"cmp"
	"net/http"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	// maxContentType is the length of a shown content type, in bytes.
	maxContentType = 100
)

// notStream says what came in place of a stream: the provider's own error if
// it is one.
func (c *call) notStream(body []byte) *loop.ModelError {
	if e, ok := errorBody(body); ok {
		return c.model.modelError(e, http.StatusOK)
	}
	contentType := cmp.Or(event.Shorten(c.model.endpoint.Redact.Clean(c.ContentType), maxContentType), "none")
	return &loop.ModelError{
		Status: http.StatusOK, Code: "not_a_stream",
		Message: "the provider's answer is not an event stream (content type: " + contentType + "): check that OPENAI_BASE_URL is right " +
			"(it usually ends in /v1), that what is there can stream, and that no proxy or login page answers in its place",
	}
}
