package loop

import (
	"context"
	"errors"
)

// suspectAfter is from how many deaths on a run is tried apart from others of the
// kind: in each process one at a time. Of runs that died together nobody knows
// which one killed the worker. Apart, the others finish their step, which
// forgives them, and only the one that kills comes to poisonedAfter.
const suspectAfter = 3

// ErrCrowded is what [Engine.Advance] returns for a job whose run was not
// claimed, since [Holder.Alone] kept it out. The run stays queued, and the job is
// used up: whoever gets the error makes another one.
var ErrCrowded = errors.New("another run is in this process over which workers have died in a row")

// suspect reports whether the run, if it is claimed, has to be apart.
func (r *runner) suspect() bool {
	return r.holder.Alone != nil && r.claimable() && r.run().Takeovers >= suspectAfter
}

// separate waits until the run may be in this process, which may take a while.
func (r *runner) separate(ctx context.Context) error {
	var ok bool
	if r.alone, ok = r.holder.Alone(ctx); !ok {
		return ErrCrowded
	}
	return r.load(ctx)
}

// rejoin ends the time in which the run is apart, if it is.
func (r *runner) rejoin() {
	if r.alone != nil {
		r.alone()
		r.alone = nil
	}
}
