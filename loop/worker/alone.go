package worker

import (
	"context"
	"sync"
	"time"
)

// crowdedFor is for how many leases a run waits until another one is out of the
// way. Then it gets another job, which may come to another worker.
const crowdedFor = 3

// alone is [loop.Holder.Alone]. The place is the process's, so that a former
// incarnation of which something is left keeps it.
func (inc *incarnation) alone(ctx context.Context) (done func(), ok bool) {
	t := time.NewTimer(crowdedFor * inc.cfg.Lease)
	defer t.Stop()
	select {
	case inc.cfg.place <- struct{}{}:
		return sync.OnceFunc(func() { <-inc.cfg.place }), true
	case <-inc.leaving:
		return func() {}, true // it is handed back before it does anything
	case <-t.C:
	case <-ctx.Done():
	}
	return nil, false
}
