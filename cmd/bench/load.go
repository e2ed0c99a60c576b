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
	rate  float64 // per second
	times []time.Duration
	total int // warm-up included
}

// drive has c clients repeat one without a pause, until warm and d are over.
// What ends within d, once warm is over, is measured; d lasts longer if by then
// fewer have ended than there are clients.
//
// The rate is the number of clients by the mean time, as clients that never
// pause have it. Counting would do for short times: runs that share commits end
// together, and a window has one such end more, or one less.
func drive(ctx context.Context, c int, warm, d time.Duration, one func(ctx context.Context) error) (load, error) {
	begin := time.Now().Add(warm)
	end := begin.Add(d)
	var mu sync.Mutex
	var out load
	var sum time.Duration
	group, ctx := errgroup.WithContext(ctx)
	var measured atomic.Int64
	var spent atomic.Bool
	for range c {
		group.Go(func() error {
			for !spent.Load() {
				from := time.Now()
				if !from.Before(end) && int(measured.Load()) >= c {
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
				if now.After(begin) && (now.Before(end) || len(out.times) < c) {
					out.times, sum = append(out.times, now.Sub(from)), sum+now.Sub(from)
					measured.Add(1)
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
	out.rate = float64(c) * float64(len(out.times)) / sum.Seconds()
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
