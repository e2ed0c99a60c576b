package loop

import (
	"errors"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Pause keeps workers from beginning a step of the runs that it covers. A run
// that is running finishes its step and is then queued again (run.released,
// cause pause); one that is queued stays so. Messages are accepted and approvals
// answered as ever, and a run may be cancelled.
type Pause struct {
	// TenantID is whose runs are paused, "" for everybody's.
	TenantID string
	// Agent is the agent whose runs are paused, "" for all. An agent is one of
	// a tenant.
	Agent string
	// Reason is a sentence for people, "" for none.
	Reason string
	By     event.Actor
	// Since is by the log's clock.
	Since time.Time
}

// Covers reports whether the runs of that tenant and agent are paused.
func (p Pause) Covers(tenantID, agent string) bool {
	return (p.TenantID == "" || p.TenantID == tenantID) && (p.Agent == "" || p.Agent == agent)
}

// Pauses are all that hold at a moment.
type Pauses []Pause

// Of returns a pause of the runs of that tenant and agent, if there is one.
func (ps Pauses) Of(tenantID, agent string) (Pause, bool) {
	for _, p := range ps {
		if p.Covers(tenantID, agent) {
			return p, true
		}
	}
	return Pause{}, false
}

// Orders are what a worker is told with the answer to its heartbeat.
type Orders struct {
	// Cancelled are the sessions of those of its runs that were asked to stop.
	Cancelled []string
	// Pauses are all pauses, also those that do not touch its runs.
	Pauses Pauses
	// Drain asks it to hand back what it holds and to take nothing more.
	Drain bool
}

// Joining is a worker that starts.
type Joining struct {
	ID string
	// Version of the binary and name of the machine, for people.
	Version string
	Host    string
	// Former is the worker in whose place it stands in the same process: what
	// that one was asked to do holds for this one. "" for none.
	Former string
}

// ErrPaused is what a job gets that claims nothing because its run is paused.
var ErrPaused = errors.New("run is paused")

// PausedError is a job whose run is paused. The run stays queued, and the job is
// spent: another one is needed once the pause is over. It unwraps to
// [ErrPaused].
type PausedError struct {
	// Agent is that of the run.
	Agent string
}

// Error names the agent.
func (e *PausedError) Error() string { return "run of agent " + e.Agent + " is paused" }

// Unwrap returns [ErrPaused].
func (e *PausedError) Unwrap() error { return ErrPaused }
