package plugin

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// calls counts the functions of the plugin that are under way. The zero value is
// ready.
type calls struct {
	mu       sync.Mutex
	n        int
	draining bool
	// idle is closed when n is 0 and no more begin.
	idle chan struct{}
}

// begin is false when no more calls are taken.
func (c *calls) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return false
	}
	c.n++
	return true
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	if c.n == 0 && c.draining {
		close(c.idle)
	}
}

func (c *calls) state() (n int, draining bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n, c.draining
}

// drain lets no more calls begin, and waits for those under way until ctx ends. It
// returns how many still are.
func (c *calls) drain(ctx context.Context) int {
	c.mu.Lock()
	if !c.draining {
		c.draining, c.idle = true, make(chan struct{})
		if c.n == 0 {
			close(c.idle)
		}
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	n, _ := c.state()
	return n
}

type returned[T any] struct {
	value T
	err   error
}

// errDraining: the plugin takes no more calls.
var errDraining = status.Error(codes.Unavailable, "the plugin is about to be ended")

// guarded calls f, see [recovered], as one of the calls that a drain waits for. When
// no more are taken the error is errDraining.
func guarded[T any](ctx context.Context, s *service, name string, f func(context.Context) (T, error)) (T, error) {
	if !s.calls.begin() {
		var none T
		return none, errDraining
	}
	return recovered(ctx, name, f, s.calls.end)
}

// recovered calls f in a goroutine of its own, which calls end, and waits no longer
// than ctx. That f panics, ends its goroutine or takes too long is a [hooks.Failure].
func recovered[T any](ctx context.Context, name string, f func(context.Context) (T, error), end func()) (T, error) {
	results := make(chan returned[T], 1)
	go func() {
		defer end()
		// It stays so if f ends its goroutine.
		r := returned[T]{err: &hooks.Failure{Outcome: hooks.OutcomePanic, Err: fmt.Errorf("%s ended its goroutine", name)}}
		defer func() {
			if v := recover(); v != nil {
				r.err = &hooks.Failure{Outcome: hooks.OutcomePanic, Err: fmt.Errorf("%v", v)}
				// Without the value: it may hold what the plugin was asked about.
				fmt.Fprintf(os.Stderr, "panic in %s\n%s\n", name, debug.Stack())
			}
			results <- r
		}()
		value, err := f(ctx)
		r = returned[T]{value: value, err: err}
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, &hooks.Failure{Outcome: hooks.OutcomeTimeout, Err: fmt.Errorf("%s: %w", name, ctx.Err())}
	}
}
