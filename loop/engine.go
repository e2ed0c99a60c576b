package loop

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// Engine advances runs. The fields are set before the first use; Advance is
// safe for concurrent use on different runs, and harmless on the same one:
// only one caller gets the lease.
type Engine struct {
	Log    Log
	Agents map[string]Agent
	Hooks  hooks.Hooks
	// Asker asks the hooks at the gates. HookSet in it is pinned on every
	// claim. It may be nil if Hooks has no gates.
	Asker *hooks.Asker
	// Observers see the model's answers while they arrive; nil is none.
	Observers *stream.Set
	// Switch holds all three, and tools, where they may change between leases; nil has
	// those asked always, and one that is not nil has them ignored.
	Switch *Switch
	NewID  func() string
	Now    func() time.Time
	Logger *slog.Logger
	// Random gives the salts of the ledger, and nothing else; nil is crypto/rand.
	// Who can predict it can guess what a payload said from its digest.
	Random io.Reader
}

// recheckAfter is how long a wake-up waits when the log could not be read.
const recheckAfter = 500 * time.Millisecond

// Holder is the worker on whose behalf a run is advanced.
type Holder struct {
	// WorkerID is the id that the lease is taken under.
	WorkerID string
	// Leaving, once closed, lets the current step finish and then hands the
	// run back. Nil never does.
	Leaving <-chan struct{}
	// Interrupt, once closed, stops the current step and hands the run back:
	// a model call is made again elsewhere, a tool that was entered counts as
	// of unknown outcome unless it is idempotent. Nil never does.
	Interrupt <-chan struct{}
	// Paused reports whether the runs of an agent are paused: then none is
	// claimed, and one that is held is handed back after its step. Nil never
	// does.
	Paused func(tenantID, agent string) bool
	// Alone waits until no other run is in this process over which several
	// workers in a row have died, and keeps such others out until done is called.
	// It returns false if that does not come about soon: then the run is not
	// claimed. A holder that is leaving lets everybody in. Nil always does.
	Alone func(ctx context.Context) (done func(), ok bool)
}

// Advance claims the run that j names and takes it as far as it goes: to its
// end, or until h hands it back. It returns nil if there is nothing to do (a
// stale ticket, a run that somebody else took), [ErrLeaseLost] if the run was
// taken away, and [ErrPaused] or [ErrCrowded] for a job that may not claim now. A
// run whose stored state is broken ends. When ctx ends it stops at once and
// writes nothing more; the lease is then left to expire.
func (e *Engine) Advance(ctx context.Context, j Job, h Holder) error {
	wake, unwatch := e.Log.Watch(j.SessionID)
	defer unwatch()
	r := &runner{
		engine: e, job: j, holder: h, wake: wake, said: map[hooks.Position]any{},
		log: e.Logger.With("run", j.RunID, "session", j.SessionID),
	}
	defer r.rejoin()
	err := r.load(ctx)
	if err == nil && r.suspect() {
		err = r.separate(ctx)
	}
	if errors.Is(err, ErrBadState) {
		return r.endBadRun(ctx)
	}
	if err != nil {
		return err
	}
	asks, done := e.inForce()
	defer done()
	r.asks = asks
	claimed, err := r.claim(ctx)
	if err == nil && claimed {
		err = r.advance(ctx)
	}
	if errors.Is(err, errTailLost) {
		return r.handBack(ctx)
	}
	return err
}
