package wire

import (
	"context"
	"errors"
	"io"
	"time"
)

// The causes that a [Silence] cancels with.
var (
	ErrFirstByte = errors.New("no first byte in time")
	ErrIdle      = errors.New("no further byte in time")
	ErrNoData    = errors.New("no data in time")
	// ErrTail is no failure: the answer was whole before.
	ErrTail = errors.New("no end in time")
)

// Silence cancels a call when a limit passes. It is armed only while the
// provider is waited for, so a slow consumer never looks like a silent
// provider. It is not safe for concurrent use.
type Silence struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// NewSilence returns one that is not armed and ends a call with cancel.
func NewSilence(cancel context.CancelCauseFunc) *Silence { return &Silence{cancel: cancel} }

// Limit arms s; 0 arms nothing.
func (s *Silence) Limit(d time.Duration, cause error) {
	s.End()
	if d > 0 {
		s.timer = time.AfterFunc(d, func() { s.cancel(cause) })
	}
}

// End disarms s. Whoever armed it ends it.
func (s *Silence) End() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// WatchedReader reads a response body. The limit for the first byte is armed
// before it is made, and it arms the one for every further read.
type WatchedReader struct {
	R       io.Reader
	Silence *Silence
	// Idle is the longest silence between two reads, 0 for no limit. It may be
	// changed between reads.
	Idle time.Duration

	begun bool
}

// Read reads from R, under the limit.
func (w *WatchedReader) Read(p []byte) (int, error) {
	if w.begun {
		w.Silence.Limit(w.Idle, ErrIdle)
	}
	n, err := w.R.Read(p)
	if n > 0 || err != nil {
		w.begun = true
		w.Silence.End()
	}
	return n, err
}
