package loop

import (
	"fmt"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Limits end a run that goes on for too long. The run fails, with the limit as
// its reason. A limit of 0 is none.
type Limits struct {
	// Turns is how many turns a run may have.
	Turns int
	// RepeatedCalls is in how many turns in a row a model may ask for the same
	// tool with the same arguments, byte for byte.
	RepeatedCalls int
	// RunTime is how long workers may hold a run, all leases together. Neither
	// the queue nor waiting for people counts.
	RunTime time.Duration
}

// exceeded says which limit forbids another turn after the last one of r, and
// whether one does.
func (l Limits) exceeded(r Run) (event.RunFailed, bool) {
	turns := 0
	for _, t := range r.Turns {
		if !t.Superseded {
			turns++
		}
	}
	if l.Turns > 0 && turns >= l.Turns {
		return event.RunFailed{
			Reason: event.FailTurnLimit,
			Error:  fmt.Sprintf("the run was ended after %d turns, the limit of its agent, while the model still asked for tools", turns),
		}, true
	}
	if c, ok := repeated(r.Turns, l.RepeatedCalls); ok {
		return event.RunFailed{
			Reason: event.FailRepeatedCalls,
			Error: fmt.Sprintf("the run was ended because the model called %s with the same arguments in %d turns in a row, the limit of its agent",
				event.Shorten(c.Name, 80), l.RepeatedCalls),
		}, true
	}
	return event.RunFailed{}, false
}

// repeated finds a call of the last turn that each of the last n turns has.
func repeated(turns []Turn, n int) (Call, bool) {
	if n <= 0 || len(turns) < n {
		return Call{}, false
	}
	last := turns[len(turns)-1]
	for _, c := range last.Calls {
		everywhere := true
		for _, t := range turns[len(turns)-n:] {
			everywhere = everywhere && t.calls(c.ToolCall)
		}
		if everywhere {
			return c, true
		}
	}
	return Call{}, false
}

func (t Turn) calls(same hooks.ToolCall) bool {
	for _, c := range t.Calls {
		if c.Name == same.Name && c.Arguments == same.Arguments {
			return true
		}
	}
	return false
}

// timedOut ends a run whose time is over.
func timedOut(newID func() string, r Run, l Limits) []event.Payload {
	return append(closing(newID, r, string(event.FailTimeout)), event.RunFailed{
		Reason: event.FailTimeout,
		Error:  fmt.Sprintf("the run was ended after %s of work, the limit of its agent", l.RunTime),
	})
}

// watchTime lets r.expiry have a value once the run's time is over; the
// function frees the timer.
func (r *runner) watchTime() (stop func()) {
	limit := r.engine.Agents[r.run().Agent].Limits.RunTime
	if limit <= 0 {
		return func() {}
	}
	t := time.NewTimer(limit - r.run().Held)
	r.expiry = t.C
	return func() { t.Stop() }
}

// overdue reports whether the run's time is over.
func (r *runner) overdue() bool {
	select {
	case <-r.expiry:
		r.expired = true
	default:
	}
	return r.expired
}
