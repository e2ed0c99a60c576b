package main

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// runUnlessBroken is run for a node that may lose its database for good. Then
// nothing can be saved, and what still waits for the database is left to the
// end of the process, which the caller has to bring about.
func (n node) runUnlessBroken(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-n.broken:
	}
	limit := time.NewTimer(brokenLimit)
	defer limit.Stop()
	select {
	case err := <-ended:
		return err
	case <-limit.C:
		return errors.New("the database is gone")
	}
}

// mutedOnce is a handler that drops everything once a channel is closed: parts
// that cannot go on would fill the screen with what all of them see.
type mutedOnce struct {
	slog.Handler
	closed <-chan struct{}
}

// Enabled implements [slog.Handler].
func (h mutedOnce) Enabled(ctx context.Context, level slog.Level) bool {
	select {
	case <-h.closed:
		return false
	default:
		return h.Handler.Enabled(ctx, level)
	}
}

// WithAttrs implements [slog.Handler].
func (h mutedOnce) WithAttrs(attrs []slog.Attr) slog.Handler {
	return mutedOnce{h.Handler.WithAttrs(attrs), h.closed}
}

// WithGroup implements [slog.Handler].
func (h mutedOnce) WithGroup(name string) slog.Handler {
	return mutedOnce{h.Handler.WithGroup(name), h.closed}
}
