package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-2ca4966b/agentd/loop"
)

const (
	otherRuns  = "latency of other runs"
	itsOwn     = "its own runs completed"
	vsHealthy  = "÷ beside a healthy one"
	besideHint = "beside one that "

	// Each client of the other runs starts one so often; runs that the plugin is asked
	// about begin so often, whatever has become of those before.
	othersEvery  = 100 * time.Millisecond
	guardedEvery = 60 * time.Millisecond
)

// neighbour is a plugin beside which other runs are measured.
type neighbour struct {
	id string
	// broken says that no run that it is asked about gets through.
	broken bool
}

// neighbours begin with a healthy one. One that floods answers.
var neighbours = []neighbour{{pluginHealthy, false}, {pluginSleeps, true}, {pluginCrashes, true}, {pluginFloods, false}, {pluginStops, true}}

func (n neighbour) item() string {
	if n.id == pluginHealthy {
		return "beside a healthy one"
	}
	return besideHint + n.id
}

// measureBroken measures the runs that a broken plugin is not asked about, beside
// some that it is, in turns, to and fro: what drifts falls on all of them.
func (b *bench) measureBroken(ctx context.Context) error {
	sums := make([]beside, len(neighbours))
	for turn := range b.besides * len(neighbours) {
		at := turn % (2 * len(neighbours))
		i := min(at, 2*len(neighbours)-1-at)
		got, err := b.playBeside(ctx, neighbours[i])
		if err != nil {
			return fmt.Errorf("%s: %w", neighbours[i].item(), err)
		}
		sums[i] = sums[i].plus(got)
	}
	healthy := neighbours[0].item()
	for i, n := range neighbours {
		item, sum := n.item(), sums[i]
		b.addTimes(partPlugins, item, otherRuns, sum.others, 50, 99)
		if sum.ended > 0 {
			b.add(partPlugins, item, itsOwn, "%", 100*float64(sum.completed)/float64(sum.ended))
		}
		for _, p := range []string{" p50", " p99"} {
			if i > 0 {
				b.addRatio(partPlugins, item, vsHealthy+p, b.last(partPlugins, item, otherRuns+p), b.last(partPlugins, healthy, otherRuns+p))
			}
		}
	}
	return nil
}

// beside is what runs did beside a plugin.
type beside struct {
	others []time.Duration
	// ended are the plugin's own runs that have, completed those that did well.
	ended, completed int
}

func (b beside) plus(more beside) beside {
	return beside{append(b.others, more.others...), b.ended + more.ended, b.completed + more.completed}
}

func (b *bench) playBeside(ctx context.Context, n neighbour) (got beside, err error) {
	p, err := plugIn(ctx, b.dir, n.id)
	if err != nil {
		return beside{}, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	_, url, err := b.pg.database(ctx)
	if err != nil {
		return beside{}, err
	}
	s, err := startStack(ctx, stackConfig{url: url, model: instantModel{}, hooks: p.hooks})
	if err != nil {
		return beside{}, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if got, err = b.bothRuns(ctx, s); err == nil && n.broken && got.completed > 0 {
		err = fmt.Errorf("%d of %d runs have completed that it was asked about: it is not broken", got.completed, got.ended)
	}
	return got, err
}

// bothRuns plays the plugin's own runs for as long as it plays the others.
func (b *bench) bothRuns(ctx context.Context, s *stack) (beside, error) {
	var mu sync.Mutex
	var got beside
	group, playing := errgroup.WithContext(ctx)
	own, hangUp := context.WithCancel(playing)
	defer hangUp()
	var others sync.WaitGroup
	begin := time.Now().Add(b.warm)
	for i := range b.others {
		others.Add(1)
		group.Go(func() error {
			defer others.Done()
			times, err := b.otherRuns(playing, s, begin, othersEvery*time.Duration(i)/time.Duration(b.others))
			mu.Lock()
			defer mu.Unlock()
			got.others = append(got.others, times...)
			return err
		})
	}
	group.Go(func() error {
		others.Wait()
		hangUp()
		return nil
	})
	group.Go(func() error {
		for pause(own, guardedEvery) == nil {
			group.Go(func() error {
				completed, err := s.playGuarded(own)
				if own.Err() != nil {
					return nil // however far it came
				}
				mu.Lock()
				defer mu.Unlock()
				got.ended++
				if completed {
					got.completed++
				}
				return err
			})
		}
		return nil
	})
	err := group.Wait()
	return got, err
}

// otherRuns are those of one client. It begins a moment later than others do, and
// goes on until the time is over and it has measured something.
func (b *bench) otherRuns(ctx context.Context, s *stack, begin time.Time, later time.Duration) (times []time.Duration, err error) {
	if err := pause(ctx, later); err != nil {
		return nil, err
	}
	tick := time.NewTicker(othersEvery)
	defer tick.Stop()
	for len(times) == 0 || time.Since(begin) < b.time {
		id, err := s.session(ctx)
		if err != nil {
			return nil, err
		}
		from := time.Now()
		if err := s.play(ctx, id); err != nil {
			return nil, err
		}
		if from.After(begin) {
			times = append(times, time.Since(from))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return times, nil
}

// playGuarded plays a run that plugins are asked about.
func (s *stack) playGuarded(ctx context.Context) (completed bool, err error) {
	id, err := s.session(ctx)
	if err != nil {
		return false, err
	}
	end, err := s.playWith(ctx, guardedAgent, id)
	return end.Status == string(loop.RunCompleted), err
}
