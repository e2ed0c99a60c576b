package loop

import (
	"context"
	"log/slog"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

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
	// tellings are what those that are open say meanwhile, news when they have.
	tellings []*telling
	news     chan struct{}
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

// agent is the run's, with the model that answers. The planner ends a run for which
// there is none.
func (r *runner) agent() Agent {
	agent, _ := r.configured()
	agent, _ = agent.answering(r.run())
	return agent
}

// configured is the run's agent with the tools that are in force now, and whether
// there is one.
func (r *runner) configured() (Agent, bool) {
	agent, known := r.engine.Agents[r.run().Agent]
	agent.Tools = r.asks.tools(agent.Tools)
	return agent, known
}

func (r *runner) load(ctx context.Context) error {
	return r.patiently(ctx, func() (err error) {
		r.state, err = r.engine.Log.Load(ctx, r.job.TenantID, r.job.SessionID, r.job.RunID)
		return err
	})
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

// insists reports whether a hook at one of these gates is asked about durable
// facts only. The calls are those of the turn.
func (r *runner) insists(g gates, calls []Call) bool {
	h, about := r.asks.Hooks, r.ref()
	switch g {
	case gatesRun:
		return !hooks.IsPureAbout(h.BeforeRunStart, about) || r.insists(gatesModel, nil)
	case gatesModel:
		provider := !hooks.IsPureAbout(h.BeforeProviderHeaders, about) || !hooks.IsPureAbout(h.BeforeProviderRequest, about)
		return !hooks.IsPureAbout(h.TransformContext, about) || provider && r.asksRequest(r.agent())
	case gatesTools:
		tools := make([]string, 0, len(calls))
		for _, c := range calls {
			tools = append(tools, c.Name)
		}
		return !hooks.IsPureAbout(h.BeforeToolCall, about, tools...) || !hooks.IsPureAbout(h.BeforeExecute, about, tools...)
	case gatesNone:
	}
	return false
}

func (r *runner) planner() planner {
	agent, known := r.configured()
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
