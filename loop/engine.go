package loop

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
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
	// Switch holds all three where they may change between leases; nil has those
	// asked always, and one that is not nil has them ignored.
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
	r.asks = e.inForce()
	claimed, err := r.claim(ctx)
	if err == nil && claimed {
		err = r.advance(ctx)
	}
	if errors.Is(err, errTailLost) {
		return r.handBack(ctx)
	}
	return err
}

func (r *runner) load(ctx context.Context) error {
	return r.patiently(ctx, func() (err error) {
		r.state, err = r.engine.Log.Load(ctx, r.job.TenantID, r.job.SessionID, r.job.RunID)
		return err
	})
}

// runner advances one run under one lease. It is used by one goroutine.
type runner struct {
	engine *Engine
	job    Job
	holder Holder
	log    *slog.Logger
	wake   <-chan int64
	// asks is what this lease is asked by, set before it is claimed.
	asks InForce
	// recheck is set while a wake-up could not be followed by a read.
	recheck <-chan time.Time
	// state is what is durable.
	state State
	// epoch is the lease, 0 before the claim is durable.
	epoch int64
	// facts are outcomes that are not durable yet. They stay true whatever
	// else was appended, so they are kept over a conflict.
	facts []event.Payload
	// rulings are decisions about the facts, not durable either; cut are those
	// about an answer that was cut off.
	rulings []hooks.Decision
	cut     []hooks.Decision
	// said is what the gates answered and is not durable yet, asked the same in
	// order. What was asked about an output is in rulings instead.
	said  map[hooks.Position]any
	asked []hooks.Decision
	// pending are decisions of the step that is being drafted, cleared the
	// calls that it may run, context the model call that it may make.
	pending []hooks.Decision
	cleared []clearance
	context modelCall
	// prep is what BeforeRunStart changed, so that its messages keep their ids
	// when the step is planned again.
	prep *event.RunPrepared
	// begun says that OnRunStart was called.
	begun bool
	// expiry has a value once the run's time is over, expired that it had.
	expiry  <-chan time.Time
	expired bool
	// returns, open and unreviewed are the tools that run: where they are heard
	// of, how many are still open, and what hooks have yet to be asked about.
	// That those ran is durable, or a fact where the hooks are pure.
	returns    chan execution
	open       int
	unreviewed []outcome
	// graceEnds is when hooks of a run that has to stop have had their time.
	graceEnds time.Time
	// retryIn is how long to wait before the failed model call is made again.
	retryIn time.Duration
	// alone ends the time in which no other suspect run is in this process; nil if
	// others may be.
	alone func()
	// turnEnded is the last turn for which OnTurnEnd was called.
	turnEnded int
}

func (r *runner) run() Run {
	run, _ := r.state.Run(r.job.RunID)
	return run
}

// claim makes the claim a fact that the first step's append carries. Only
// where somebody is told of it first, under the lease, does it cost an append of
// its own here; for hooks that are asked see commit.
func (r *runner) claim(ctx context.Context) (bool, error) {
	run := r.run()
	if !r.claimable() {
		return false, nil
	}
	if r.paused() && !run.CancelRequested {
		return false, &PausedError{Agent: run.Agent}
	}
	r.facts = []event.Payload{r.claimFact()}
	t, _ := run.Turn()
	again := t.Status == TurnAnswered && !run.CancelRequested
	h := r.asks.Hooks
	if h.OnRunStart == nil && (h.OnTurnStart == nil && h.OnTurnEnd == nil || !again) {
		return true, nil
	}
	if err := r.record(ctx); err != nil || r.lost() {
		return false, err
	}
	if again && !r.run().CancelRequested {
		r.startTurn(ctx, true)
	}
	return true, nil
}

// insists reports whether a hook at one of these gates is asked about durable
// facts only.
func (r *runner) insists(g gates) bool {
	h := r.asks.Hooks
	switch g {
	case gatesRun:
		return !hooks.IsPure(h.BeforeRunStart) || r.insists(gatesModel)
	case gatesModel:
		provider := !hooks.IsPure(h.BeforeProviderHeaders) || !hooks.IsPure(h.BeforeProviderRequest)
		return !hooks.IsPure(h.TransformContext) || provider && r.asksRequest(r.engine.Agents[r.run().Agent])
	case gatesTools:
		return !hooks.IsPure(h.BeforeToolCall) || !hooks.IsPure(h.BeforeExecute)
	case gatesNone:
	}
	return false
}

func (r *runner) claimable() bool {
	run := r.run()
	return run.Status == RunQueued && run.Ticket == r.job.Ticket && !r.state.Deleted
}

func (r *runner) paused() bool {
	return r.holder.Paused != nil && r.holder.Paused(r.job.TenantID, r.run().Agent)
}

// lost reports whether somebody else got the run before it was claimed here.
func (r *runner) lost() bool { return r.epoch == 0 && len(r.facts) == 0 }

func (r *runner) claimFact() event.Payload {
	run := r.run()
	epoch := r.state.Epoch + 1
	if !run.Started {
		return event.RunStarted{WorkerID: r.holder.WorkerID, Epoch: epoch, Ticket: run.Ticket, HookSet: r.hookSet()}
	}
	cause := event.ResumeRelease
	switch run.ReleasedFor {
	case event.ReleaseShutdown, event.ReleasePause, event.ReleaseForced:
	case event.ReleaseWorkerDead:
		cause = event.ResumeTakeover
	case event.ReleaseBackoff:
		cause = event.ResumeRetry
	case "":
		cause = event.ResumeApproval
	}
	if run.Retrying {
		cause = event.ResumeRetry
	}
	return event.RunResumed{WorkerID: r.holder.WorkerID, Epoch: epoch, Ticket: run.Ticket, Cause: cause, HookSet: r.hookSet()}
}

func (r *runner) hookSet() string {
	if r.asks.Asker == nil {
		return ""
	}
	return r.asks.Asker.HookSet
}

// advance is the loop: plan a step on what is durable and what is known, make
// it durable, act.
func (r *runner) advance(ctx context.Context) error {
	defer r.watchTime()()
	if err := r.waitOn(ctx); err != nil {
		return err
	}
	for {
		st, err := r.commit(ctx)
		if err != nil || r.lost() {
			return err
		}
		crash(PointStepCommitted)
		switch st.act {
		case actNone:
		case actCallModel:
			if err = r.callModel(ctx); err == nil {
				err = r.backOff(ctx)
			}
		case actRunTools:
			err = r.runTools(ctx, r.cleared)
		case actEnd:
			r.ended(ctx)
			return nil
		}
		if err != nil {
			return err
		}
		crash(PointStepDone)
	}
}

// commit appends the facts together with what the next step wants written.
func (r *runner) commit(ctx context.Context) (step, error) {
	for {
		d := r.draft()
		p := r.planner()
		st := p.next(d.state, d.run())
		if len(r.facts) > 0 && r.insists(st.gates) {
			// A hook may take long, or take the process down: what it is asked
			// about has to be there afterwards, under the same ids. Unless it has
			// said that it does neither: see [hooks.Pure].
			if err := r.record(ctx); err != nil || r.lost() {
				return step{}, err
			}
			continue
		}
		r.endTurns(ctx, d.run(), st.write)
		err := r.pass(ctx, d, &st, p.agent)
		if errors.Is(err, errVoid) {
			if r.lost() {
				return step{}, nil // while hooks were asked about a run that was not claimed yet
			}
			continue
		}
		if err != nil {
			return step{}, err
		}
		if st.release && d.run().NotBefore == nil {
			d.job(d.run().Ticket)
		}
		if len(d.a.Events) == 0 && d.err == nil {
			return st, nil
		}
		again, err := r.append(ctx, d)
		if err != nil || r.lost() {
			return step{}, err
		}
		if !again {
			return st, nil
		}
	}
}

// record makes the facts durable without planning a step.
func (r *runner) record(ctx context.Context) error {
	for len(r.facts) > 0 {
		if _, err := r.append(ctx, r.draft()); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) draft() *draft {
	d := newDraft(r.engine.NewID, r.state, event.Scope{
		SessionID: r.job.SessionID, RunID: r.job.RunID, At: r.engine.Now(),
		Actor: event.System("worker:" + r.holder.WorkerID),
	})
	d.worker, d.epoch, d.random = r.holder.WorkerID, r.epoch, r.engine.Random
	if n := len(r.facts) - 1; n >= 0 && len(r.rulings) > 0 && r.facts[n].EventType() == event.TypeRunFailed {
		d.add(r.facts[:n]...)
		d.end(r.rulings, r.facts[n])
	} else {
		d.add(r.facts...)
		if r.epoch == 0 {
			d.epoch = d.run().Epoch // decisions in the append of the claim are made under it
		}
		d.decide(r.rulings)
	}
	d.a.Epoch = r.epoch
	d.a.Deltas = onlyDeltas(r.facts) && len(r.rulings) == 0
	return d
}

func (r *runner) planner() planner {
	agent, known := r.engine.Agents[r.run().Agent]
	p := planner{
		newID: r.engine.NewID, agent: agent, known: known, overdue: r.overdue(),
		leaving: closed(r.holder.Leaving) || closed(r.holder.Interrupt), paused: r.paused(),
	}
	if r.retryIn > 0 {
		at := r.engine.Now().Add(r.retryIn).UTC().Truncate(time.Microsecond)
		p.retryAt = &at
	}
	return p
}

// append sends d. On success the facts are durable. On a conflict it folds in
// what was appended and returns true: draft again.
func (r *runner) append(ctx context.Context, d *draft) (again bool, err error) {
	a, err := d.done()
	if err != nil {
		return false, err
	}
	tries := 0
	err = r.patiently(ctx, func() error {
		tries++
		_, err := r.engine.Log.Append(ctx, a)
		return err
	})
	if errors.Is(err, ErrConflict) {
		return true, r.patiently(ctx, func() error { return r.catchUp(ctx) })
	}
	if err == nil && tries > 1 {
		err = r.patiently(ctx, func() error { return r.stillHeld(ctx, d.state) })
	}
	if err != nil {
		return false, err
	}
	r.state = d.state
	r.epoch = r.run().Epoch
	r.facts, r.rulings, r.cut, r.asked = nil, nil, nil, nil
	clear(r.said)
	if r.run().Takeovers == 0 {
		r.rejoin() // it has finished a step
	}
	return false, nil
}

// stillHeld says whether what an append has led to is what is now. One that was
// sent again may have gone through long ago, and the run may have been taken away
// since: what was to follow, a tool above all, is not this worker's to do.
func (r *runner) stillHeld(ctx context.Context, led State) error {
	head, err := r.engine.Log.Head(ctx, r.job.TenantID, r.job.SessionID)
	if err == nil && head.Epoch != led.Epoch {
		return ErrLeaseLost
	}
	return err
}

// patiently asks the log the same thing again while it cannot be reached,
// until ctx ends: an outage costs a run time and nothing else.
func (r *runner) patiently(ctx context.Context, ask func() error) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := ask()
		if !errors.Is(err, ErrUnavailable) {
			return err
		}
		r.log.Warn("ask the log again", "epoch", r.epoch, "seq", r.state.LastSeq, "error", err)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func onlyDeltas(payloads []event.Payload) bool {
	for _, p := range payloads {
		if p.EventType() != event.TypeAssistantDelta {
			return false
		}
	}
	return len(payloads) > 0
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
