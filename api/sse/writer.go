package sse

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrNotStreamable says that the response cannot carry a stream, because some
// middleware wraps it without Flush, Unwrap or deadlines.
var ErrNotStreamable = errors.New("the response cannot be streamed")

// Writer is a response that stays open. The server's WriteTimeout is absolute
// and would cut it off, so it is lifted; instead each write has to finish within
// a limit of its own, and a reader that takes nothing for that long is given up.
// It is not safe for concurrent use.
type Writer struct {
	http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	// limited says that a time limit is running.
	limited bool
}

// NewWriter lifts the server's deadline. It writes nothing, so that its error,
// [ErrNotStreamable], can still be answered with a status.
func NewWriter(w http.ResponseWriter, timeout time.Duration) (*Writer, error) {
	if !flushable(w) {
		return nil, fmt.Errorf("%w: it has no Flush", ErrNotStreamable)
	}
	rc := http.NewResponseController(w)
	if err := rc.SetWriteDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("%w: lift the write deadline: %w", ErrNotStreamable, err)
	}
	return &Writer{ResponseWriter: w, rc: rc, timeout: timeout}, nil
}

// Write starts the time limit that the following flush ends.
func (w *Writer) Write(b []byte) (int, error) {
	if err := w.limit(); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(b)
}

// FlushError sends what was written. Then it lifts the time limit: HTTP/2
// resets a stream whose deadline passes, even while nothing is being written.
func (w *Writer) FlushError() error {
	if !w.limited { // headers alone are sent
		if err := w.limit(); err != nil {
			return err
		}
	}
	if err := w.rc.Flush(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	if err := w.rc.SetWriteDeadline(time.Time{}); err != nil {
		return fmt.Errorf("lift the write deadline: %w", err)
	}
	w.limited = false
	return nil
}

// limit starts the time limit, or starts it again.
func (w *Writer) limit() error {
	if err := w.rc.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
		return fmt.Errorf("set the write deadline: %w", err)
	}
	w.limited = true
	return nil
}

// Flush is FlushError for callers that know only [http.Flusher]. A failure
// shows at the next write.
func (w *Writer) Flush() { _ = w.FlushError() }

// flushable looks for what ResponseController.Flush would use, without
// flushing, which would send the status.
func flushable(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}
