package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/guard"
)

// counter is what guards count with, and look up what was before.
type counter interface {
	guard.Slots
	guard.Spending
	guard.Suspicions
}

// counters are a counter that is there later than the guards: their config is
// read before there is a database. Until then, and where there is none, whoever
// counts fails. The zero value is ready.
type counters struct{ in atomic.Pointer[counter] }

var _ counter = (*counters)(nil)

var errNoDatabase = errors.New("there is no database to count in")

// use has everything counted with c.
func (c *counters) use(with counter) { c.in.Store(&with) }

func (c *counters) TakeSlot(ctx context.Context, s guard.Slot) (guard.Taken, error) {
	if in := c.in.Load(); in != nil {
		return (*in).TakeSlot(ctx, s)
	}
	return guard.Taken{}, errNoDatabase
}

func (c *counters) Spent(ctx context.Context, e guard.Expense) (guard.Spent, error) {
	if in := c.in.Load(); in != nil {
		return (*in).Spent(ctx, e)
	}
	return guard.Spent{}, errNoDatabase
}

func (c *counters) Suspected(ctx context.Context, run hooks.RunRef, hookID string) (bool, error) {
	if in := c.in.Load(); in != nil {
		return (*in).Suspected(ctx, run, hookID)
	}
	return false, errNoDatabase
}
