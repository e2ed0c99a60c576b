package hooks

import (
	"context"
	"fmt"
	"time"
)

// maxLeft is how many calls of one hook may hang at once before it is not
// asked any more: each of them holds a goroutine for as long as it likes.
const maxLeft = 64

// leftKey is a hook as the count of hanging calls knows it. A shadow that hangs
// does not count against a hook in force that is called the same.
type leftKey struct {
	gate   Gate
	id     string
	shadow bool
}

// Abandoned returns how many calls of hooks are still running although nobody
// waits for them any more, because they went on after their time was up or
// after the run was cancelled.
func (a *Asker) Abandoned() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, count := range a.left {
		n += count
	}
	return n
}

func (a *Asker) hanging(k leftKey) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.left[k]
}

// callEnd is how far a call came. The asker's mutex guards it.
type callEnd struct{ returned, left bool }

// leave counts a call as hanging, unless it has just returned.
func (a *Asker) leave(k leftKey, e *callEnd) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.returned {
		return
	}
	e.left = true
	if a.left == nil {
		a.left = map[leftKey]int{}
	}
	a.left[k]++
}

// returned takes a call that came back after all off the count.
func (a *Asker) returned(k leftKey, e *callEnd) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.returned = true
	if !e.left {
		return
	}
	a.left[k]--
	if a.left[k] == 0 {
		delete(a.left, k)
	}
}

// called is what came of one call.
type called[Out any] struct {
	out Out
	err error
}

// call calls h in a goroutine of its own and waits no longer than its limit.
// If ctx ended by then, what it returns means nothing.
func call[In Input[In, Out], Out Result](ctx context.Context, a *Asker, h *hook[In, Out], in In) (out Out, queue time.Duration, err error) {
	key := leftKey{gate: h.Gate, id: h.ID, shadow: h.Shadow}
	if n := a.hanging(key); n >= maxLeft {
		return out, 0, failf(OutcomeUnavailable, "%d calls of the hook hang", n)
	}
	began := time.Now()
	limit := h.TimeLimit + h.QueueLimit
	hookCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	hookCtx, turn := queueing(hookCtx, a.now)
	var (
		end     callEnd
		results = make(chan called[Out], 1)
	)
	go func() {
		// It stays so if the hook ends its goroutine.
		c := called[Out]{err: failf(OutcomePanic, "the hook ended its goroutine")}
		defer func() {
			if v := recover(); v != nil {
				c.err = failf(OutcomePanic, "%v", v)
			}
			results <- c
			a.returned(key, &end)
		}()
		turn.leave()
		out, err := h.call(hookCtx, in)
		c = called[Out]{out: out, err: err}
	}()
	select {
	case c := <-results:
		// An answer that came too late is none: whether it is read must not
		// depend on who is faster. The limit is by the clock of timers, which
		// never jumps.
		if time.Since(began) < limit {
			return c.out, turn.waited(), c.err
		}
	case <-hookCtx.Done():
		a.leave(key, &end)
	}
	return out, turn.waited(), &Failure{
		Outcome: OutcomeTimeout, Err: fmt.Errorf("no answer within %s", limit),
	}
}
