package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
)

// State is how a plugin is.
type State string

// The states.
const (
	StateStarting State = "starting"
	StateUp       State = "up"
	// StateDown: it cannot be asked. It may be started again by itself.
	StateDown State = "down"
	// StateDraining: it finishes what it is at, and is not started again.
	StateDraining State = "draining"
)

// Status is what is known of a plugin.
type Status struct {
	State State
	// Reason says why it is down, "" if it is not.
	Reason string
	// Since is when it came into the state.
	Since time.Time
	// PID is the process that is up, 0 if there is none.
	PID int
	// Starts are how often it was started, Deaths how often it has ended by itself or
	// did not start.
	Starts, Deaths int
	// Health is what it says of itself where that is not that all is well.
	Health string
}

// Plugin is one plugin of a generation: one process at a time, and another one after
// its end. It is safe for concurrent use.
type Plugin struct {
	bundle Bundle
	digest string
	launch launch
	config *Config
	number func() int64
	log    *slog.Logger

	// tried is closed when the first start has succeeded or failed, with err.
	tried chan struct{}
	err   error

	asked atomic.Int64

	mu      sync.Mutex
	status  Status
	answer  *pluginv1.BootstrapResponse
	process *Process
}

// ID is the plugin's.
func (p *Plugin) ID() string { return p.bundle.ID }

// Bundle is what was loaded. Its manifest is that of the private copy, where there is
// one.
func (p *Plugin) Bundle() Bundle { return p.bundle }

// Version is that of the manifest.
func (p *Plugin) Version() string { return p.bundle.Version }

// Digest is that of the bundle, "" if it could not be read.
func (p *Plugin) Digest() string { return p.digest }

// Answer is what the plugin has said that it is and does, nil if it was never up in
// this generation. It does not change any more: a process that says otherwise is not
// taken. It is read only.
func (p *Plugin) Answer() *pluginv1.BootstrapResponse {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answer
}

// Status is how it is now.
func (p *Plugin) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// Asked is how often its hooks were asked: how many calls of Evaluate were made to its
// processes.
func (p *Plugin) Asked() int64 { return p.asked.Load() }

// Process is the one that is up. If there is none the error is a [hooks.Failure].
func (p *Plugin) Process() (*Process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		why := fmt.Sprintf("plugin %s is %s", p.bundle.ID, p.status.State)
		if p.status.Reason != "" {
			why += ": " + p.status.Reason
		}
		return nil, &hooks.Failure{Outcome: hooks.OutcomeUnavailable, Code: CodeUnavailable, Err: errors.New(why)}
	}
	return p.process, nil
}

// endedReason is that of a plugin that is down as it should be.
const endedReason = "it was ended"

// set changes the status, and tells of it.
func (p *Plugin) set(state State, process *Process, reason string) {
	p.mu.Lock()
	p.process = process
	p.status.State, p.status.Reason, p.status.Since = state, reason, p.config.Now()
	p.status.PID, p.status.Health = 0, ""
	if process != nil {
		p.status.PID = process.PID()
	}
	if state == StateStarting {
		p.status.Starts++
	}
	p.mu.Unlock()
	level := slog.LevelInfo
	if state == StateDown && reason != endedReason {
		level = slog.LevelError
	}
	p.log.LogAttrs(context.Background(), level, "plugin has another state", slog.String("state", string(state)), slog.String("reason", reason), slog.Int("pid", p.Status().PID))
	if p.config.Changed != nil {
		p.config.Changed(p)
	}
}

// refuse is for a plugin that is not started at all.
func (p *Plugin) refuse(err error) {
	p.err = err
	close(p.tried)
	p.set(StateDown, nil, err.Error())
}

// errOther is that a process is not what the first one was.
var errOther = errors.New("it says other things of itself than when it was first started: load the plugins again")

// start starts a process, and asks who it is.
func (p *Plugin) start(ctx context.Context) (*Process, error) {
	l := p.launch
	l.number = p.number()
	return l.process(ctx, func(ctx context.Context, process *Process) error {
		answer, err := p.config.Greet(ctx, process)
		if err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.answer != nil && !proto.Equal(p.answer, answer) {
			return errOther
		}
		p.answer = answer
		return nil
	})
}
