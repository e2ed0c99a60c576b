package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/seed-2ca4966b/agentd/cmd/proc"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	partTakeover = "takeover"
	takeoverName = "resumed after"

	// demoAgent is the agent of `agentd serve`.
	demoAgent = "demo"
)

// death is what becomes of a worker that holds a run, and what somebody waits
// for then.
type death struct {
	part, item string
	signal     syscall.Signal
	// until is the event that ends the wait. For a cancel, somebody asks for one.
	until event.Type
	name  string
}

var (
	takeovers = []death{
		{partTakeover, "kill -9", syscall.SIGKILL, event.TypeRunResumed, takeoverName},
		{partTakeover, "SIGSTOP", syscall.SIGSTOP, event.TypeRunResumed, takeoverName},
	}
	// A stopped worker is the worst that a cancel can meet: its connections stay.
	cancelOfStopped = []death{{partCancel, "held by a stopped worker", syscall.SIGSTOP, event.TypeRunCancelled, cancelName}}
)

// deaths are the times of each kind of death, of all rounds.
type deaths map[death][]time.Duration

func (b *bench) measureTakeover(ctx context.Context) error { return b.measureDeaths(ctx, takeovers) }

// measureDeaths takes workers away, and measures until others have done what
// there is to do. Each lane is a deployment of its own, with two workers; the
// lanes are only there because waiting takes no CPU.
func (b *bench) measureDeaths(ctx context.Context, kinds []death) error {
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
		lanes[i] = &lane{bench: b, url: url, setting: setting, times: deaths{}}
	}
	err = each(ctx, len(lanes), len(lanes), func(ctx context.Context, i int) error { return lanes[i].run(ctx, kinds) })
	if b.deaths == nil {
		b.deaths = deaths{}
	}
	for _, l := range lanes {
		for d, times := range l.times {
			b.deaths[d] = append(b.deaths[d], times...)
		}
	}
	return err
}

func (f *figures) addDeaths(all deaths, kinds []death) {
	for _, d := range kinds {
		if times := all[d]; len(times) > 0 {
			f.add(d.part, d.item, "runs", "", float64(len(times)))
			f.addTimes(d.part, d.item, d.name, times, 50, 99, 100)
		}
	}
}

// lane is two workers on a database, and a run that one of them holds.
type lane struct {
	bench        *bench
	url, setting string
	workers      [2]*proc.Process
	stack        *stack
	session      string
	runID        string
	seq          int64
	times        deaths
}

func (l *lane) run(ctx context.Context, kinds []death) (err error) {
	if l.stack, err = startStack(ctx, stackConfig{url: l.url, idle: true}); err != nil {
		return err
	}
	defer func() {
		for _, w := range l.workers {
			if w != nil {
				w.Kill()
			}
		}
		err = errors.Join(err, l.stack.stop())
	}()
	for range l.bench.kills {
		for _, d := range kinds {
			if err := l.fill(ctx); err != nil {
				return err
			}
			took, err := l.die(ctx, d)
			if err != nil {
				return err
			}
			l.times[d] = append(l.times[d], took)
		}
	}
	return nil
}

// die measures one death, of a worker that holds a fresh run: one that was taken
// over again and again waits longer and longer.
func (l *lane) die(ctx context.Context, d death) (time.Duration, error) {
	holder, err := l.begin(ctx)
	if err != nil {
		return 0, err
	}
	// Nobody declares anybody dead who was not connected for a whole lease; and
	// deaths come at any time between two heartbeats.
	if err := pause(ctx, l.bench.lease*4/3+rand.N(l.bench.lease/3)); err != nil {
		return 0, err
	}
	i, err := l.holding(holder)
	if err != nil {
		return 0, err
	}
	victim := l.workers[i]
	l.workers[i] = nil
	defer victim.Kill()
	if err := victim.Signal(d.signal); err != nil {
		return 0, fmt.Errorf("take a worker away: %w", err)
	}
	from := time.Now()
	if d.until == event.TypeRunCancelled {
		err := l.stack.commands.CancelRun(ctx, loop.CancelRun{TenantID: tenantID, SessionID: l.session, RunID: l.runID, Actor: actor})
		if err != nil {
			return 0, fmt.Errorf("cancel a run: %w", err)
		}
	}
	_, err = l.claimed(ctx, d.until)
	return time.Since(from), err
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
	started, err := l.stack.commands.StartRun(ctx, loop.StartRun{TenantID: tenantID, SessionID: l.session, Agent: demoAgent, Text: userText, Actor: actor})
	if err != nil {
		return "", fmt.Errorf("start a run: %w", err)
	}
	l.runID = started.RunID
	return l.claimed(ctx, event.TypeRunStarted)
}

// claimed waits for an event, and returns whose the last claim before it is.
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
		if w != nil && w.Worker() == workerID {
			return i, nil
		}
	}
	return 0, fmt.Errorf("worker %s is none of this lane's: it was lost and replaced", workerID)
}
