package plugin

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/stats"
)

const (
	// abandonedTime is how long a plugin waits for a host that has no connection to it
	// before it takes the host for gone. It is longer than a host's start limit.
	abandonedTime = 15 * time.Second
	// watchTime is how often is looked.
	watchTime = 250 * time.Millisecond
)

// conns counts the connections of a server.
type conns struct {
	mu sync.Mutex
	n  int
	// alone is since when there is none.
	alone time.Time
}

var _ stats.Handler = (*conns)(nil)

func newConns(now time.Time) *conns { return &conns{alone: now} }

// aloneFor is how long there has been no connection, 0 if there is one.
func (c *conns) aloneFor(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n > 0 {
		return 0
	}
	return now.Sub(c.alone)
}

// HandleConn implements stats.Handler.
func (c *conns) HandleConn(_ context.Context, s stats.ConnStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s.(type) {
	case *stats.ConnBegin:
		c.n++
	case *stats.ConnEnd:
		c.n--
		c.alone = time.Now()
	}
}

// TagConn implements stats.Handler.
func (c *conns) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// TagRPC implements stats.Handler.
func (c *conns) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (c *conns) HandleRPC(context.Context, stats.RPCStats) {}

// left returns a channel that is closed when the host is gone: the process has
// another parent, or for that long there has been no connection. Nothing is closed
// once ctx has ended.
func left(ctx context.Context, conns *conns, parent func() int, after time.Duration) <-chan struct{} {
	gone, first := make(chan struct{}), parent()
	go func() { // ends with ctx
		tick := time.NewTicker(watchTime)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				if parent() != first || conns.aloneFor(now) > after {
					close(gone)
					return
				}
			}
		}
	}()
	return gone
}
