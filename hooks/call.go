package hooks

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// maxLeft is how many calls of one hook may hang at once before it is not
// asked any more: each of them holds a goroutine for as long as it likes.
const maxLeft = 64

// leftKey is a hook as the count of hanging calls knows it.
type leftKey struct {
	gate Gate
	id   string
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

func (a *Asker) count(k leftKey, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left == nil {
		a.left = map[leftKey]int{}
	}
	a.left[k] += n
	if a.left[k] == 0 {
		delete(a.left, k)
	}
}

// called is what came of one call.
type called[Out any] struct {
	out Out
	err error
}

// The states of a call: whoever changes callRunning first has the last word.
const (
	callRunning int32 = iota
	callReturned
	callLeft
)

// call calls h in a goroutine of its own and waits no longer than its limit.
// If ctx ended by then, what it returns means nothing.
func call[In Input[In, Out], Out Result](ctx context.Context, a *Asker, h hook[In, Out], in In) (out Out, queue time.Duration, err error) {
	key := leftKey{gate: h.Gate, id: h.ID}
	if n := a.hanging(key); n >= maxLeft {
		return out, 0, failf(OutcomeUnavailable, "%d calls of the hook hang", n)
	}
	hookCtx, cancel := context.WithTimeout(ctx, h.TimeLimit)
	defer cancel()
	var (
		state   atomic.Int32
		waited  atomic.Int64
		asked   = a.now()
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
			if !state.CompareAndSwap(callRunning, callReturned) {
				a.count(key, -1)
			}
		}()
		waited.Store(int64(a.now().Sub(asked)))
		out, err := h.call(hookCtx, in)
		c = called[Out]{out: out, err: err}
	}()
	select {
	case c := <-results:
		// An answer that came too late is none: whether it is read must not
		// depend on who is faster.
		if hookCtx.Err() == nil {
			return c.out, time.Duration(waited.Load()), c.err
		}
	case <-hookCtx.Done():
		a.count(key, 1)
		if !state.CompareAndSwap(callRunning, callLeft) {
			a.count(key, -1)
		}
	}
	return out, time.Duration(waited.Load()), &Failure{
		Outcome: OutcomeTimeout, Err: fmt.Errorf("no answer within %s", h.TimeLimit),
	}
}
