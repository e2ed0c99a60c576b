package webhook

import (
	"context"
	"sync/atomic"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// slots let only so many through at once, and only so many wait.
type slots struct {
	taken   chan struct{}
	waiting atomic.Int64
	queue   int
}

func newSlots(concurrency, queue int) *slots {
	return &slots{taken: make(chan struct{}, concurrency), queue: queue}
}

// take waits for a slot, and tells the decision so. It reports false if too many
// wait already, and ctx's error if that ends first. A slot is given back once.
func (s *slots) take(ctx context.Context) (ok bool, err error) {
	select {
	case s.taken <- struct{}{}:
		return true, nil
	default:
	}
	defer s.waiting.Add(-1)
	if s.waiting.Add(1) > int64(s.queue) {
		return false, nil
	}
	defer hooks.Queued(ctx)()
	select {
	case s.taken <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (s *slots) give() { <-s.taken }
