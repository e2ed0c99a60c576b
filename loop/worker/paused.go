package worker

import (
	"sync"

	"github.com/seed-2ca4966b/agentd/loop"
)

// paused is what this worker knows of pauses, as of its last heartbeat, and the
// jobs that came to it for runs that are paused. Such a job is finished, and the
// run is queued without one: who resumes it writes nothing but the table of
// pauses, so the worker makes another job when it hears of that. If it dies
// before, the run counts as lost to the others.
type paused struct {
	// over has a value when a pause has ended.
	over chan struct{}

	mu     sync.Mutex
	pauses loop.Pauses
	// held are the jobs by run, with the agent of each: a run has one at a time.
	held map[string]heldJob
}

type heldJob struct {
	loop.Job
	agent string
}

func newPaused() *paused {
	return &paused{over: make(chan struct{}, 1), held: map[string]heldJob{}}
}

// set takes in all pauses that there are.
func (p *paused) set(pauses loop.Pauses) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, was := range p.pauses {
		if !stillThere(was, pauses) {
			select {
			case p.over <- struct{}{}:
			default:
			}
		}
	}
	p.pauses = pauses
}

func stillThere(was loop.Pause, pauses loop.Pauses) bool {
	for _, p := range pauses {
		if p.TenantID == was.TenantID && p.Agent == was.Agent {
			return true
		}
	}
	return false
}

// known are the pauses that were set last.
func (p *paused) known() loop.Pauses {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pauses
}

// covers reports whether the runs of that agent are paused.
func (p *paused) covers(tenantID, agent string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.pauses.Of(tenantID, agent)
	return ok
}

// hold keeps in mind that the run of j needs another job.
func (p *paused) hold(j loop.Job, agent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[j.RunID] = heldJob{j, agent}
}

// free returns the jobs whose runs are no longer paused.
func (p *paused) free() []loop.Job {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []loop.Job
	for _, h := range p.held {
		if _, ok := p.pauses.Of(h.TenantID, h.agent); !ok {
			out = append(out, h.Job)
		}
	}
	return out
}

// forget drops j, unless the run came again with another job.
func (p *paused) forget(j loop.Job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[j.RunID].Job == j {
		delete(p.held, j.RunID)
	}
}
