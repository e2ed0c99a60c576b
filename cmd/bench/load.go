package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// errSpent says that there is nothing left to do: the measurement ends early.
var errSpent = errors.New("spent")

// load is what clients have done.
type load struct {
	rate  float64 // per second, in the window
	times []time.Duration
	total int // warm-up included
}

// drive has c clients repeat one without a pause, until warm and d are over.
// What ends within d, once warm is over, is measured; if nothing does, they go
// on until something has.
func drive(ctx context.Context, c int, warm, d time.Duration, one func(ctx context.Context) error) (load, error) {
	begin := time.Now().Add(warm)
	end := begin.Add(d)
	var mu sync.Mutex
	var out load
	var last time.Time
	group, ctx := errgroup.WithContext(ctx)
	var spent, measured atomic.Bool
	for range c {
		group.Go(func() error {
			for !spent.Load() {
				from := time.Now()
				if !from.Before(end) && measured.Load() {
					return nil
				}
				if err := one(ctx); errors.Is(err, errSpent) {
					spent.Store(true)
					return nil
				} else if err != nil {
					return err
				}
				now := time.Now()
				mu.Lock()
				out.total++
				if now.After(begin) && (now.Before(end) || len(out.times) == 0) {
					out.times = append(out.times, now.Sub(from))
					last = now
					measured.Store(true)
				}
				mu.Unlock()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return load{}, err
	}
	if len(out.times) == 0 {
		return load{}, errors.New("everything was done before the measurement began: make BENCH_TIME shorter")
	}
	length := d
	if spent.Load() || last.After(end) {
		length = last.Sub(begin)
	}
	out.rate = float64(len(out.times)) / length.Seconds()
	return out, nil
}

// each calls do for 0 to n-1, so many at a time.
func each(ctx context.Context, atATime, n int, do func(ctx context.Context, i int) error) error {
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(atATime)
	for i := range n {
		if each.Err() != nil {
			break
		}
		group.Go(func() error { return do(each, i) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// pause is for what nothing signals.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
