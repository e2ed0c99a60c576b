package openaitest

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Refusal is a request that a real provider would refuse, and why.
type Refusal struct {
	Request Request
	Status  int
	// Type, Code and Param are the words of the error object, "" for null.
	Type, Code, Param string
	Message           string
}

// Error says what was wrong with the request.
func (r Refusal) Error() string {
	return fmt.Sprintf("refused with %d: %s (param %q, code %q)", r.Status, r.Message, r.Param, r.Code)
}

func (r *Refusal) answer() Answer {
	a := Error(r.Status, r.Type, r.Code, r.Message)
	a.Body = errorBody(r.Message, r.Type, r.Param, r.Code)
	return a
}

// Error is an answer with a status and an error object. An empty code is
// null.
func Error(status int, typ, code, message string) Answer {
	return Answer{Status: status, Body: errorBody(message, typ, "", code)}.With("Content-Type", "application/json")
}

// RateLimited is a 429. retryAfter is the value of Retry-After, seconds or a
// date; "" sends none.
func RateLimited(retryAfter string) Answer {
	a := Error(429, "requests", "rate_limit_exceeded", "too many requests, wait a moment")
	if retryAfter != "" {
		a = a.With("Retry-After", retryAfter)
	}
	return a
}

// Page is an answer of a proxy: a page of HTML with a status.
func Page(status int) Answer {
	return Answer{Status: status, Body: []byte("<html><body><h1>No agent is at home</h1></body></html>\n")}.With("Content-Type", "text/html")
}

// errorBody is the error object as it is sent, line breaks and all.
func errorBody(message, typ, param, code string) []byte {
	return []byte("{\n  \"error\": {\n    \"message\": " + quoted(message) + ",\n    \"type\": " + quoted(typ) +
		",\n    \"param\": " + orNull(param) + ",\n    \"code\": " + orNull(code) + "\n  }\n}\n")
}

func orNull(s string) string {
	if s == "" {
		return "null"
	}
	return quoted(s)
}

// quoted is s as JSON, which providers write without escapes for HTML.
func quoted(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always has a JSON form
	return strings.TrimSuffix(b.String(), "\n")
}
