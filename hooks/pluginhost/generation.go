package pluginhost

import (
	"context"
	"sync"
	"time"
)

// Generation is all plugins of one load. Who has acquired one may call its plugins
// until he releases it, whatever is loaded in the meantime.
type Generation struct {
	number  int
	plugins []*Plugin
	host    *Host
	dir     string

	// drain ends its plugins gently, kill at once; running are they.
	drain, kill context.CancelFunc
	running     sync.WaitGroup

	// These belong to the host's lock. idle is closed when it is retired and nobody
	// has it.
	refs    int
	retired bool
	idle    chan struct{}
}

// Number counts the loads of a host, from 1.
func (g *Generation) Number() int { return g.number }

// Plugins are those of the generation, in the order in which they were discovered.
// The slice is read only.
func (g *Generation) Plugins() []*Plugin { return g.plugins }

// Release gives back what Acquire has returned. It is called once for each Acquire.
func (g *Generation) Release() {
	g.host.mu.Lock()
	defer g.host.mu.Unlock()
	g.refs--
	g.settle()
}

// settle says that it is idle. The caller holds the host's lock.
func (g *Generation) settle() {
	if g.retired && g.refs == 0 {
		close(g.idle)
	}
}

// retire ends the generation once nobody has it, or after as long as one may have it.
func (h *Host) retire(g *Generation) {
	h.mu.Lock()
	g.retired = true
	g.settle()
	h.mu.Unlock()
	h.retiring.Go(func() {
		hold := time.NewTimer(h.config.Limits.Hold)
		defer hold.Stop()
		select {
		case <-g.idle:
		case <-hold.C:
			h.config.Log.Warn("plugins are ended under runs that still have them", "generation", g.number)
		case <-h.killing:
		}
		g.end(h.killing)
	})
}

// end drains the plugins, or kills them when killing is closed, and deletes their
// copies.
func (g *Generation) end(killing <-chan struct{}) {
	g.drain()
	ended := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		g.running.Wait()
		close(ended)
	})
	select {
	case <-ended:
	case <-killing:
	}
	g.kill()
	waiting.Wait()
	_ = remove(g.dir) // what is left goes with the host's directory
}
