package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// run keeps the plugin up until soft ends: then it is drained. The end of hard kills
// it at once.
func (p *Plugin) run(hard, soft context.Context) {
	var died deaths
	first := true
	for {
		p.set(StateStarting, nil, "")
		process, err := p.start(soft)
		if err == nil {
			p.set(StateUp, process, "")
		}
		if first {
			p.err, first = err, false
			close(p.tried)
		}
		if err == nil {
			err = p.serve(hard, soft, process)
		}
		if soft.Err() != nil {
			p.set(StateDown, nil, endedReason)
			return
		}
		p.mu.Lock()
		p.status.Deaths++
		p.mu.Unlock()
		wait, again := died.add(p.config.Now(), p.config.Limits)
		switch {
		case errors.Is(err, errChanged), errors.Is(err, errOther):
			p.set(StateDown, nil, err.Error())
			<-soft.Done()
			return
		case !again:
			p.set(StateDown, nil, fmt.Sprintf("%v; that was %d times within %s, so it is not started again before the next load", err, p.config.Limits.Deaths, p.config.Limits.Window))
			<-soft.Done()
			return
		}
		p.set(StateDown, nil, fmt.Sprintf("%v; it is started again in %s", err, wait.Round(time.Millisecond)))
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-soft.Done():
			timer.Stop()
			return
		}
	}
}

// serve is the life of one process. Its error says why it has ended; nil is that it
// had to.
func (p *Plugin) serve(hard, soft context.Context, process *Process) error {
	err := p.watch(soft, process)
	if err == nil {
		p.set(StateDraining, nil, "")
		p.drain(hard, process)
	} else {
		p.set(StateDown, nil, err.Error())
	}
	process.end()
	if p.config.Gone != nil {
		p.config.Gone(process)
	}
	return err
}

// watch returns when the process has ended or does not answer any more, or nil when
// soft ends.
func (p *Plugin) watch(soft context.Context, process *Process) error {
	tick := time.NewTicker(p.config.Limits.HealthEvery)
	defer tick.Stop()
	misses := 0
	for {
		select {
		case <-soft.Done():
			return nil
		case <-process.Exited():
			return process.Cause()
		case <-tick.C:
		}
		said, ok := p.health(soft, process)
		if ok {
			misses = 0
			p.mu.Lock()
			p.status.Health = said
			p.mu.Unlock()
			continue
		}
		if misses++; misses >= p.config.Limits.HealthMisses && process.Cause() == nil && soft.Err() == nil {
			return fmt.Errorf("it has not answered Health %d times in a row", misses)
		}
	}
}

// health asks a process how it is. Whatever it answers, it is there.
func (p *Plugin) health(soft context.Context, process *Process) (said string, ok bool) {
	ctx, cancel := context.WithTimeout(soft, p.config.Limits.Health)
	defer cancel()
	h, err := process.client().Health(ctx, &pluginv1.HealthRequest{}, small)
	switch code := status.Code(err); {
	case code == codes.DeadlineExceeded, code == codes.Unavailable, code == codes.Canceled:
		return "", false
	case err != nil:
		return "Health: " + code.String(), true
	case h.GetReady():
		return "", true
	}
	message := h.GetMessage()
	return "it is not ready: " + escape([]byte(message[:min(len(message), maxHead)])), true
}

// small is for the calls whose answers are.
var small = grpc.MaxCallRecvMsgSize(wire.MaxSmall)

// drain has a process finish what it is at and end. It may be there still when drain
// returns.
func (p *Plugin) drain(hard context.Context, process *Process) {
	ctx, cancel := context.WithTimeout(hard, p.config.Limits.Drain)
	defer cancel()
	// Whatever it answers, it is ended now.
	_, _ = process.client().Drain(ctx, &pluginv1.DrainRequest{DeadlineMs: p.config.Limits.Drain.Milliseconds()}, small)
	process.run.signal(syscall.SIGTERM)
	timer := time.NewTimer(p.config.Limits.Term)
	defer timer.Stop()
	select {
	case <-process.Exited():
	case <-timer.C:
	case <-hard.Done():
	}
}

// deaths are the last of a plugin.
type deaths struct{ times []time.Time }

// add counts one. It returns how long to wait before another start, or that there is
// none.
func (d *deaths) add(now time.Time, l Limits) (wait time.Duration, again bool) {
	for len(d.times) > 0 && now.Sub(d.times[0]) > l.Window {
		d.times = d.times[1:]
	}
	d.times = append(d.times, now)
	if len(d.times) >= l.Deaths {
		return 0, false
	}
	wait = l.Backoff
	for range len(d.times) - 1 {
		wait = min(2*wait, l.MaxBackoff)
	}
	// Many that died of one cause are not all started at once.
	return wait/2 + rand.N(wait), true //nolint:gosec // nothing is to be guessed
}
