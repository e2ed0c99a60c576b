package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	partTakeover = "takeover"
	takeoverItem = "kill -9"
	takeoverName = "resumed after"

	// demoAgent is the agent of `agentd serve`.
	demoAgent = "demo"
)

// measureTakeover kills workers, and measures until another one has resumed the
// run. Each lane is a deployment of its own, with two workers; the lanes are
// only there because waiting takes no CPU.
func (b *bench) measureTakeover(ctx context.Context) error {
	setting, err := b.scriptSetting("stall", stallScript)
	if err != nil {
		return err
	}
	lanes := make([]*lane, b.lanes)
	for i := range lanes {
		_, url, err := b.pg.database(ctx)
		if err != nil {
			return err
		}
		lanes[i] = &lane{bench: b, url: url, setting: setting}
	}
	var mu sync.Mutex
	return each(ctx, len(lanes), len(lanes), func(ctx context.Context, i int) error {
		times, err := lanes[i].run(ctx)
		mu.Lock()
		defer mu.Unlock()
		b.takeover = append(b.takeover, times...)
		return err
	})
}

func (f *figures) addTakeovers(times []time.Duration) {
	if len(times) == 0 {
		return
	}
	f.add(partTakeover, takeoverItem, "kills", "", float64(len(times)))
	f.addTimes(partTakeover, takeoverItem, takeoverName, times, 50, 99, 100)
}

// lane is two workers on a database, and a run that one of them holds.
type lane struct {
	bench        *bench
	url, setting string
	workers      [2]*child
	stack        *stack
	session      string
	seq          int64
}

func (l *lane) run(ctx context.Context) (times []time.Duration, err error) {
	if l.stack, err = startStack(ctx, stackConfig{url: l.url, idle: true}); err != nil {
		return nil, err
	}
	defer func() {
		for _, w := range l.workers {
			if w != nil {
				w.kill()
			}
		}
		err = errors.Join(err, l.stack.stop())
	}()
	if err := l.fill(ctx); err != nil {
		return nil, err
	}
	for range l.bench.kills {
		// A fresh run each time: one that was taken over again and again waits
		// longer and longer.
		holder, err := l.begin(ctx)
		if err != nil {
			return times, err
		}
		// Nobody declares anybody dead who was not connected for a whole lease;
		// and kills come at any time between two heartbeats.
		if err := pause(ctx, l.bench.lease*4/3+rand.N(l.bench.lease/3)); err != nil {
			return times, err
		}
		victim, err := l.holding(holder)
		if err != nil {
			return times, err
		}
		l.workers[victim].kill()
		l.workers[victim] = nil
		from := time.Now()
		if _, err = l.claimed(ctx, event.TypeRunResumed); err != nil {
			return times, err
		}
		times = append(times, time.Since(from))
		if err := l.fill(ctx); err != nil {
			return times, err
		}
	}
	return times, nil
}

// fill starts the workers that are missing.
func (l *lane) fill(ctx context.Context) (err error) {
	for i, w := range l.workers {
		if w != nil {
			continue
		}
		l.workers[i], err = l.bench.startAgentd(ctx, l.url, []string{l.setting}, "--roles=worker", "--lease="+l.bench.lease.String())
		if err != nil {
			return err
		}
	}
	return nil
}

// begin starts a run that does not end, and returns who holds it.
func (l *lane) begin(ctx context.Context) (workerID string, err error) {
	ref, err := l.stack.commands.CreateSession(ctx, loop.CreateSession{TenantID: tenantID, Actor: actor})
	if err != nil {
		return "", fmt.Errorf("create a session: %w", err)
	}
	l.session, l.seq = ref.SessionID, 0
	_, err = l.stack.commands.StartRun(ctx, loop.StartRun{TenantID: tenantID, SessionID: l.session, Agent: demoAgent, Text: userText, Actor: actor})
	if err != nil {
		return "", fmt.Errorf("start a run: %w", err)
	}
	return l.claimed(ctx, event.TypeRunStarted)
}

// claimed waits for the next claim, and returns whose it is.
func (l *lane) claimed(ctx context.Context, want event.Type) (workerID string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		events, err := l.stack.store.Next(ctx, tenantID, l.session, l.seq, 100)
		if err != nil {
			return "", fmt.Errorf("wait for %s: %w", want, err)
		}
		for _, e := range events {
			l.seq = e.Seq
			p, err := event.Decode(e)
			if err != nil {
				return "", err
			}
			switch p := p.(type) {
			case event.RunStarted:
				workerID = p.WorkerID
			case event.RunResumed:
				workerID = p.WorkerID
			case event.RunFailed:
				return "", fmt.Errorf("the run has failed: %s", p.Error)
			}
			if e.Type == want {
				return workerID, nil
			}
		}
	}
}

// holding finds the process of a worker.
func (l *lane) holding(workerID string) (int, error) {
	for i, w := range l.workers {
		if w != nil && w.workerID() == workerID {
			return i, nil
		}
	}
	return 0, fmt.Errorf("worker %s is none of this lane's: it was lost and replaced", workerID)
}
