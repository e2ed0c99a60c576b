package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"

	"connectrpc.com/connect"
)

// edge gives the errors that connect raises by itself, before any service is
// asked, what all others have: a reason and a sentence. It also bounds what is
// read of a request. Unary calls over Connect only: over gRPC and in streams an
// error is no response of its own, and there is nothing to hold back.
func (s *server) edge(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, rpcPrefix) || isFramed(r) {
			next.ServeHTTP(w, r)
			return
		}
		bounded := *r
		// connect reads the rest of a body that is too large, to whatever end.
		bounded.Body = http.MaxBytesReader(w, r.Body, maxBody)
		held := &heldWriter{ResponseWriter: w}
		next.ServeHTTP(held, &bounded)
		if held.status != 0 {
			w.Header().Del("Content-Length")
			s.answer(w, r, connectsOwn(held.status, held.body.Bytes()))
		}
	})
}

// isFramed reports whether the body is a sequence of messages: gRPC, gRPC-Web,
// and the streams of Connect.
func isFramed(r *http.Request) bool {
	contentType := strings.ToLower(r.Header.Get("Content-Type"))
	return strings.HasPrefix(contentType, "application/grpc") || strings.HasPrefix(contentType, "application/connect+")
}

// heldWriter keeps an error without a reason back.
type heldWriter struct {
	http.ResponseWriter
	// status is that of the error, 0 while there is none.
	status int
	body   bytes.Buffer
}

// WriteHeader implements [http.ResponseWriter].
func (w *heldWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest && w.Header().Get(reasonHeader) == "" {
		w.status = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *heldWriter) Write(b []byte) (int, error) {
	if w.status != 0 {
		return w.body.Write(b)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets [http.ResponseController] through.
func (w *heldWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// connectsOwn says what a client is told instead of connect's answer.
func connectsOwn(status int, body []byte) failure {
	switch status {
	case http.StatusNotFound:
		return newFailure(connect.CodeUnimplemented, "no_route", errNoProcedure.Error())
	case http.StatusUnsupportedMediaType:
		f := newFailure(connect.CodeInvalidArgument, "unsupported_media_type", "the call does not take this Content-Type: send application/json or application/proto")
		f.status, f.plain = status, true
		return f
	case http.StatusMethodNotAllowed:
		f := newFailure(connect.CodeUnimplemented, "method_not_allowed", "the call does not take this HTTP method: send a POST")
		f.status, f.plain = status, true
		return f
	}
	var said struct {
		Code    connect.Code `json:"code"`
		Message string       `json:"message"`
	}
	_ = json.Unmarshal(body, &said) // connect wrote it
	switch said.Code {
	case connect.CodeResourceExhausted:
		return tooLarge()
	case connect.CodeDeadlineExceeded:
		return tooSlow()
	case connect.CodeUnimplemented:
		return newFailure(said.Code, "unsupported_encoding", said.Message)
	default:
		return newFailure(said.Code, said.Code.String(), said.Message)
	}
}

// tooLarge and tooSlow have statuses of their own: clients and proxies send again
// what was answered with 429 or 504.
func tooLarge() failure {
	f := newFailure(connect.CodeResourceExhausted, "too_large", "the request has more than 1 MiB: send less")
	f.status = http.StatusRequestEntityTooLarge
	return f
}

func tooSlow() failure {
	f := newFailure(connect.CodeDeadlineExceeded, "too_slow", "the request did not arrive in time: send it faster")
	f.status = http.StatusRequestTimeout
	return f
}

// statusWriter answers with a status in place of that of the code.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements [http.ResponseWriter].
func (w statusWriter) WriteHeader(int) { w.ResponseWriter.WriteHeader(w.status) }

// receivingConn is a streaming call that is told what is wrong with its request.
type receivingConn struct {
	connect.StreamingHandlerConn
	// check acts on what the codec noted.
	check func(message any) error
}

// Receive implements [connect.StreamingHandlerConn].
func (c receivingConn) Receive(message any) error {
	err := c.StreamingHandlerConn.Receive(message)
	switch {
	case connect.CodeOf(err) == connect.CodeResourceExhausted:
		return tooLarge().connectError()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return tooSlow().connectError()
	case err != nil:
		return err // io.EOF among them, which ends a request
	}
	return c.check(message)
}
