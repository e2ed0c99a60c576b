package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/wire"
)

// maxErrorBody is how much of an error answer is read.
const maxErrorBody = 64 << 10

// statusOverloaded is the API's own status.
const statusOverloaded = 529

// statuses are what the API answers with for its types of errors. Inside a
// stream there is only the type.
var statuses = map[string]int{
	"invalid_request_error": http.StatusBadRequest,
	"authentication_error":  http.StatusUnauthorized,
	"billing_error":         http.StatusPaymentRequired,
	"permission_error":      http.StatusForbidden,
	"not_found_error":       http.StatusNotFound,
	"request_too_large":     http.StatusRequestEntityTooLarge,
	"rate_limit_error":      http.StatusTooManyRequests,
	"api_error":             http.StatusInternalServerError,
	"timeout_error":         http.StatusGatewayTimeout,
	"overloaded_error":      statusOverloaded,
}

// wireError is the API's error object.
type wireError struct {
	Type    wire.LenientText `json:"type"`
	Message wire.LenientText `json:"message"`
}

// parseError reads an error, an object or a text; ok is false for one that says
// nothing.
func parseError(raw json.RawMessage) (e wireError, ok bool) {
	if len(raw) > 0 && raw[0] == '"' {
		_ = json.Unmarshal(raw, &e.Message) // a text always is one
	} else {
		_ = json.Unmarshal(raw, &e) // what is no object says nothing
	}
	return e, e.Type != "" || e.Message != ""
}

// modelError makes what the loop stores of an answer with this status.
func (m *Model) modelError(e wireError, status int) *loop.ModelError {
	clean := m.endpoint.Redact.Clean
	message := clean(string(e.Message))
	if message == "" {
		message = fmt.Sprintf("the provider answered %d %s", status, http.StatusText(status))
		if status < 300 {
			message = "the provider reported an error"
		}
		if status >= 300 && status < 400 {
			message += ": redirects are not followed, check that ANTHROPIC_BASE_URL is right"
		}
	}
	return &loop.ModelError{Status: status, Code: clean(string(e.Type)), Message: message, Retryable: e.retryable(status)}
}

// retryable reports whether waiting might help.
func (e wireError) retryable(status int) bool {
	if e.Type == "billing_error" || strings.Contains(strings.ToLower(string(e.Message)), "credit balance") {
		return false
	}
	if status == http.StatusOK {
		status = statuses[string(e.Type)]
	}
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return status >= 500 && status < 600
}

// failed returns the error that an event carries, nil if it carries none. As
// long as nothing was said, it has the status that it would have had before
// the stream.
func (c *call) failed(e wireEvent) *loop.ModelError {
	if e.Type != eventError && (e.Type != "" || len(e.Error) == 0) {
		return nil
	}
	said, ok := parseError(e.Error)
	if !ok {
		if e.Type != eventError {
			return nil // the null that some gateways put everywhere
		}
		said, _ = parseError(e.Message)
	}
	status := http.StatusOK
	if known := statuses[string(said.Type)]; known != 0 && !c.answer.said {
		status = known
	}
	return c.model.modelError(said, status)
}

// errorBody reads the error in an answer that is no stream. ok is false if there
// is none, as in a proxy's page.
func errorBody(body []byte) (e wireError, ok bool) {
	var answer struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(bytes.TrimSpace(body), &answer) != nil {
		return e, false
	}
	return parseError(answer.Error)
}

// refused judges an answer that is no stream. What of its body does not come in
// time is done without: the status has said enough.
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
