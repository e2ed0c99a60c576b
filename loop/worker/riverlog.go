package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// repeatAfter is how long River's repetitions of a message are left out. While
// the database is away it says so at every look for jobs.
const repeatAfter = 30 * time.Second

// riverLog hands on what River's client logs as a warning or worse, as
// warnings: River tries everything again by itself, and what a person must know
// of the worker, the worker says.
type riverLog struct {
	slog.Handler
	said *said // shared with the handlers that are derived from it
}

type said struct {
	mu   sync.Mutex
	last map[string]time.Time // by message
}

func newRiverLog(h slog.Handler) riverLog {
	return riverLog{h, &said{last: map[string]time.Time{}}}
}

// Enabled implements slog.Handler.
func (h riverLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, slog.LevelWarn)
}

// Handle implements slog.Handler.
func (h riverLog) Handle(ctx context.Context, r slog.Record) error {
	h.said.mu.Lock()
	last, ok := h.said.last[r.Message]
	repeated := ok && r.Time.Sub(last) < repeatAfter
	if !repeated {
		h.said.last[r.Message] = r.Time
	}
	h.said.mu.Unlock()
	if repeated {
		return nil
	}
	r.Level = slog.LevelWarn
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h riverLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return riverLog{h.Handler.WithAttrs(attrs), h.said}
}

// WithGroup implements slog.Handler.
func (h riverLog) WithGroup(name string) slog.Handler {
	return riverLog{h.Handler.WithGroup(name), h.said}
}
