package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/seed-2ca4966b/agentd/cmd/proc"
)

const onOff = "on ÷ off"

// compared is a process whose streams are compared with those of another.
type compared struct {
	item string
	// wait fails if a stream ends meanwhile.
	wait      func(time.Duration) error
	node      *proc.Process
	listeners []*listener

	added     []time.Duration
	cpu, wall time.Duration
}

// measureObserved compares paced streams with all observers with the same without.
// Each has a process, and one at a time stands still: who does changes many times
// in a round, in the order off, on, on, off, so that what drifts, and what others
// do on the machine, falls on both.
func (b *bench) measureObserved(ctx context.Context) error {
	streams := fmt.Sprint(b.observed) + streamsHint
	pair := [2]*compared{{item: streams + ", off"}, {item: streams + ", on"}}
	err := b.pacedProse(ctx, pair[0], func() error {
		return b.pacedProse(ctx, pair[1], func() error { return b.takeTurns(pair) }, "--observers")
	})
	if err != nil {
		return err
	}
	for _, c := range pair {
		b.addTimes(partObservers, c.item, addedTime, c.added, 50, 99)
		b.add(partObservers, c.item, "chunks", perSecond, float64(len(c.added))/c.wall.Seconds())
		if c.cpu > 0 {
			b.add(partObservers, c.item, "agentd CPU", "% of a core", 100*c.cpu.Seconds()/c.wall.Seconds())
		}
	}
	for _, p := range []string{" p50", " p99"} {
		b.addRatio(partObservers, streams, onOff+p, b.last(partObservers, pair[1].item, addedTime+p), b.last(partObservers, pair[0].item, addedTime+p))
	}
	return nil
}

// pacedProse calls then while a process streams for c.
func (b *bench) pacedProse(ctx context.Context, c *compared, then func() error, args ...string) error {
	return b.paced(ctx, b.observed, 1, func(listening context.Context, node *proc.Process, listeners []*listener) error {
		c.wait, c.node, c.listeners = func(d time.Duration) error { return hold(listening, d) }, node, listeners
		return then()
	}, append([]string{"--prose"}, args...)...)
}

// takeTurns lets one of a pair stream and the other one stand still, in turns.
func (b *bench) takeTurns(pair [2]*compared) error {
	for _, c := range pair {
		if err := c.node.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
	}
	for turn := range b.turns {
		first := turn % 2
		for _, c := range []*compared{pair[first], pair[1-first]} {
			if err := b.turn(c); err != nil {
				return fmt.Errorf("%s: %w", c.item, err)
			}
		}
	}
	return nil
}

// turn measures c for its part of the time. What has piled up while it stood still
// is not measured, and what is yielded is, also if it is heard after the window: the
// windows are short, and it would be the slowest that is left out.
func (b *bench) turn(c *compared) error {
	if err := c.node.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if err := c.wait(b.warm / 2); err != nil {
		return err
	}
	before := processCPU(c.node.PID())
	from := openAll(c.listeners)
	if err := c.wait(2 * b.time / time.Duration(b.turns)); err != nil {
		return err
	}
	to := time.Now()
	c.cpu, c.wall = c.cpu+processCPU(c.node.PID())-before, c.wall+to.Sub(from)
	if err := c.wait(b.warm / 2); err != nil {
		return err
	}
	for _, l := range c.listeners {
		c.added = append(c.added, l.close(to)...)
	}
	return c.node.Signal(syscall.SIGSTOP)
}
