package worker_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"
)

// listener is a log that a test waits for.
type listener struct {
	slog.Handler
	shared *heard
}

type heard struct {
	mu       sync.Mutex
	messages []string
	more     chan struct{} // closed at the next message
}

func newListener(t *testing.T) *listener {
	t.Helper()
	return &listener{slog.NewTextHandler(t.Output(), nil), &heard{more: make(chan struct{})}}
}

// Handle implements slog.Handler.
func (l *listener) Handle(ctx context.Context, r slog.Record) error {
	l.shared.mu.Lock()
	l.shared.messages = append(l.shared.messages, r.Message)
	close(l.shared.more)
	l.shared.more = make(chan struct{})
	l.shared.mu.Unlock()
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l *listener) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &listener{l.Handler.WithAttrs(attrs), l.shared}
}

// await returns when the message has been logged.
func (l *listener) await(t *testing.T, message string) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		l.shared.mu.Lock()
		found, more := slices.Contains(l.shared.messages, message), l.shared.more
		l.shared.mu.Unlock()
		if found {
			return
		}
		select {
		case <-more:
		case <-deadline.C:
			t.Fatalf("not logged within %s: %q", limit, message)
		}
	}
}
