package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"unicode"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	// maxErrorBody is how much of an error answer is read.
	maxErrorBody = 64 << 10
	// maxErrorText is the length of a shown message, in bytes.
	maxErrorText = 500
)

// wireError is the error object of a frame or of an error answer.
type wireError struct {
	Message lenientText     `json:"message"`
	Type    lenientText     `json:"type"`
	Code    json.RawMessage `json:"code"`
}

// parseError reads an error value: an object or a text. ok is false for
// anything else, such as the null that some providers put in every chunk.
func parseError(raw json.RawMessage) (e wireError, ok bool) {
	if len(raw) == 0 {
		return wireError{}, false
	}
	if raw[0] == '{' {
		return e, json.Unmarshal(raw, &e) == nil
	}
	return e, json.Unmarshal(raw, &e.Message) == nil && e.Message != ""
}

// words are the provider's type and code, joined if it gave both: the type
// says whose fault it is, the code what to do.
func (e wireError) words() string {
	code := strings.Trim(string(e.Code), `"`)
	switch {
	case code == "" || code == "null" || code == string(e.Type):
		return string(e.Type)
	case e.Type == "":
		return code
	}
	return string(e.Type) + "/" + code
}

// modelError makes what the loop stores. status is the HTTP status, 200 for
// an error inside a stream.
func (e wireError) modelError(status int, apiKey string) *loop.ModelError {
	words := clean(e.words(), apiKey)
	message := clean(string(e.Message), apiKey)
	if message == "" {
		message = "the provider reported an error"
		if status != http.StatusOK {
			message = fmt.Sprintf("the provider answered %d %s", status, http.StatusText(status))
		}
	}
	return &loop.ModelError{Status: status, Code: words, Message: message, Retryable: retryable(status, words)}
}

// retryable reports whether waiting might help. An exhausted quota comes as
// 429 too, and waiting does not fill it.
func retryable(status int, words string) bool {
	words = strings.ToLower(words)
	if strings.Contains(words, "quota") || strings.Contains(words, "billing") {
		return false
	}
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusConflict,
		status == http.StatusTooManyRequests, status >= 500:
		return true
	case status != http.StatusOK:
		return false
	}
	for _, w := range []string{"overloaded", "rate_limit", "server_error", "internal", "timeout", "unavailable", "429", "502", "503", "504", "529"} {
		if strings.Contains(words, w) {
			return true
		}
	}
	return false
}

// failure returns the error that a frame carries, nil if it carries none.
func (ch wireChunk) failure(apiKey string) *loop.ModelError {
	if e, ok := parseError(ch.Error); ok {
		return e.modelError(http.StatusOK, apiKey)
	}
	return nil
}

// refused reads an answer that is no stream.
func (c *call) refused(ctx context.Context, resp *http.Response, body io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if err != nil && ctx.Err() != nil {
		return c.failure(ctx, err)
	}
	var answer struct {
		Error   json.RawMessage `json:"error"`
		Message lenientText     `json:"message"`
		Detail  lenientText     `json:"detail"`
	}
	if json.Unmarshal(data, &answer) != nil {
		// A proxy's page. Its text says nothing that the status does not.
		return wireError{}.modelError(resp.StatusCode, c.model.apiKey)
	}
	e, ok := parseError(answer.Error)
	if !ok {
		e.Message = cmp.Or(answer.Message, answer.Detail)
	}
	return e.modelError(resp.StatusCode, c.model.apiKey)
}

// keyShaped is what many providers' keys look like. A provider that calls
// another one tells that one's key, which nobody here knows.
var keyShaped = regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{8,}\b`)

// clean makes a provider's text fit to store and to show: one line of valid
// text, shortened, without the key and without what looks like one.
func clean(text, apiKey string) string {
	if apiKey != "" {
		text = strings.ReplaceAll(text, apiKey, "[API key]")
	}
	text, _ = event.CleanText(text)
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
	text = keyShaped.ReplaceAllLiteralString(text, "sk-…redacted")
	return event.Shorten(text, maxErrorText)
}
