package openai

import (
	"context"
	"errors"
	"io"
	"time"
)

var (
	errFirstByte = errors.New("no first byte in time")
	errIdle      = errors.New("no further byte in time")
	errNoData    = errors.New("no data in time")
	// errTail is no failure: the answer was whole before.
	errTail = errors.New("no end in time")
)

// silence cancels a call when a limit passes. It is armed only while the
// provider is waited for, so a slow consumer never looks like a silent
// provider.
type silence struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func newSilence(cancel context.CancelCauseFunc) *silence { return &silence{cancel: cancel} }

// limit arms s; 0 arms nothing.
func (s *silence) limit(d time.Duration, cause error) {
	s.end()
	if d > 0 {
		s.timer = time.AfterFunc(d, func() { s.cancel(cause) })
	}
}

func (s *silence) end() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// watchedReader reads a response body. The limit for the first byte is armed
// before it is made, and it arms the one for every further read.
type watchedReader struct {
	r       io.Reader
	silence *silence
	idle    time.Duration
	begun   bool
}

func (w *watchedReader) Read(p []byte) (int, error) {
	if w.begun {
		w.silence.limit(w.idle, errIdle)
	}
	n, err := w.r.Read(p)
	if n > 0 || err != nil {
		w.begun = true
		w.silence.end()
	}
	return n, err
}
