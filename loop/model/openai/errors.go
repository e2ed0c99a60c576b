package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

const (
	// maxErrorBody is how much of an error answer is read.
	maxErrorBody = 64 << 10
)

// wireError is the error object of a frame or of an error answer.
type wireError struct {
	Message wire.LenientText `json:"message"`
	Type    wire.LenientText `json:"type"`
	Code    json.RawMessage  `json:"code"`
	Status  wire.LenientText `json:"status"`
}

// parseError reads an error value: an object or a text. ok is false for one
// that says nothing, such as the null that some providers put in every chunk.
func parseError(raw json.RawMessage) (e wireError, ok bool) {
	switch {
	case len(raw) == 0:
		return e, false
	case raw[0] == '{':
		return e, json.Unmarshal(raw, &e) == nil && saysSomething(raw)
	}
	return e, json.Unmarshal(raw, &e.Message) == nil && e.Message != ""
}

// saysSomething reports whether an object has a member with a value.
func saysSomething(raw json.RawMessage) bool {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members) // what is no object has no members
	for _, v := range members {
		switch string(v) {
		case "null", `""`, "0", "false":
		default:
			return true
		}
	}
	return false
}

// words are the provider's type and code, joined if it gave both: the type
// says whose fault it is, the code what to do.
func (e wireError) words() string {
	kind, code := string(cmp.Or(e.Type, e.Status)), e.code()
	switch {
	case code == "" || code == kind:
		return kind
	case kind == "":
		return code
	}
	return kind + "/" + code
}

func (e wireError) code() string {
	if code := strings.Trim(string(e.Code), `"`); code != "null" {
		return code
	}
	return ""
}

// modelError makes what the loop stores. status is the HTTP status, 200 for
// an error inside a stream.
func (m *Model) modelError(e wireError, status int) *loop.ModelError {
	message := m.endpoint.Redact.Clean(string(e.Message))
	if message == "" {
		message = "the provider reported an error"
		if status != http.StatusOK {
			message = fmt.Sprintf("the provider answered %d %s", status, http.StatusText(status))
		}
		if status >= 300 && status < 400 {
			message += ": redirects are not followed, check that OPENAI_BASE_URL is right"
		}
	}
	return &loop.ModelError{Status: status, Code: m.endpoint.Redact.Clean(e.words()), Message: message, Retryable: e.retryable(status)}
}

var (
	// unpaid are words for a limit that waiting does not lift. They come with
	// the statuses of limits that it does.
	unpaid = []string{"quota", "billing", "balance", "payment"}
	// passing are words for what an error inside a stream says without a
	// status.
	passing = []string{
		"overload", "rate_limit", "too_many_requests", "exhausted", "server_error", "internal", "timeout", "unavailable", "capacity", "busy",
	}
)

// retryable reports whether waiting might help.
func (e wireError) retryable(status int) bool {
	words := strings.ToLower(e.words())
	if words == "" {
		words = strings.ToLower(string(e.Message))
	}
	if contains(words, unpaid) {
		return false
	}
	if code, err := strconv.Atoi(e.code()); err == nil && status == http.StatusOK {
		status = code // a gateway that had begun to answer tells it that way
	}
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusConflict,
		status == http.StatusTooManyRequests, status >= 500 && status < 600:
		return true
	case status >= 300 && status < 500:
		return false
	}
	return contains(words, passing)
}

func contains(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// failure returns the error that a frame carries, nil if it carries none. It
// is in a field of that name, or it is the frame itself, which says so.
func (m *Model) failure(ch wireChunk) *loop.ModelError {
	e, ok := parseError(ch.Error)
	if !ok && len(ch.Choices) == 0 && (ch.Object == "error" || ch.Type == "error") {
		e, ok = wireError{Message: ch.Message, Code: ch.Code}, true
		if ch.Type != "error" {
			e.Type = ch.Type
		}
	}
	if !ok {
		return nil
	}
	return m.modelError(e, http.StatusOK)
}

// errorBody reads the error in an answer that is no stream. ok is false if
// there is none, as in a proxy's page: its text says nothing that the status
// does not.
func errorBody(body []byte) (e wireError, ok bool) {
	body = bytes.TrimSpace(body)
	var list []json.RawMessage // some gateways put the one object into one
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	var answer struct {
		Error   json.RawMessage  `json:"error"`
		Message wire.LenientText `json:"message"`
		Detail  wire.LenientText `json:"detail"`
		Type    wire.LenientText `json:"type"`
		Code    json.RawMessage  `json:"code"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return e, false
	}
	if e, ok = parseError(answer.Error); ok {
		return e, true
	}
	e = wireError{Message: cmp.Or(answer.Message, answer.Detail), Type: answer.Type, Code: answer.Code}
	return e, e.Message != ""
}

// refused judges an answer that is no stream. What of its body does not come
// in time is done without: the status has said enough.
func (c *call) Refused(resp *http.Response, body io.Reader) error {
	var e wireError
	if resp.StatusCode < 300 || resp.StatusCode >= 400 { // who points elsewhere is no provider, and may say anything
		data, _ := io.ReadAll(io.LimitReader(body, maxErrorBody)) // what broke it off changes nothing
		e, _ = errorBody(data)
	}
	me := c.model.modelError(e, resp.StatusCode)
	me.RetryAfter = wire.RetryAfter(resp.StatusCode, resp.Header, time.Now())
	return me
}
