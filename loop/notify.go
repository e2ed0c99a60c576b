package loop

import (
	"context"
	"log/slog"
	"runtime/debug"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

func (r *runner) startTurn(ctx context.Context, resumed bool) {
	if h := r.asks.Hooks.OnTurnStart; h != nil {
		t, _ := r.run().Turn()
		r.notify("OnTurnStart", func() {
			h(ctx, hooks.TurnStart{RunRef: r.ref(), Turn: t.No, Attempt: t.Attempt, Resumed: resumed})
		})
	}
}

// endTurns tells of the turn that is about to be completed, if one is. run is
// as it will be by then.
func (r *runner) endTurns(ctx context.Context, run Run, write []event.Payload) {
	t, _ := run.Turn()
	if r.asks.Hooks.OnTurnEnd == nil || t.No == r.turnEnded {
		return
	}
	for _, p := range write {
		if _, ok := p.(event.TurnCompleted); ok {
			r.turnEnded = t.No
			r.notify("OnTurnEnd", func() {
				r.asks.Hooks.OnTurnEnd(ctx, hooks.TurnEnd{RunRef: r.ref(), Turn: t.No, ToolCalls: len(t.Calls)})
			})
		}
	}
}

func (r *runner) ended(ctx context.Context) {
	run := r.run()
	r.log.Info("run leaves the worker", "epoch", r.epoch, "seq", r.state.LastSeq, "status", run.Status, "reason", run.Reason)
	if run.Status.Terminal() {
		notifyEnd(ctx, r.log, r.asks.Hooks, r.job.TenantID, r.job.SessionID, run)
	}
}

// notifyEnd tells of the end of a run, wherever it ended.
func notifyEnd(ctx context.Context, log *slog.Logger, h hooks.Hooks, tenantID, sessionID string, run Run) {
	if h.OnRunEnd == nil {
		return
	}
	ref := hooks.RunRef{TenantID: tenantID, SessionID: sessionID, RunID: run.ID, Agent: run.Agent}
	notify(log, "OnRunEnd", func() {
		h.OnRunEnd(ctx, hooks.RunEnd{RunRef: ref, Status: string(run.Status), Reason: run.Reason})
	})
}

func (r *runner) ref() hooks.RunRef {
	return hooks.RunRef{TenantID: r.job.TenantID, SessionID: r.job.SessionID, RunID: r.job.RunID, Agent: r.run().Agent}
}

func (r *runner) notify(name string, call func()) { notify(r.log, name, call) }

// notify calls a notification hook; what it panics with does not reach the
// run.
func notify(log *slog.Logger, name string, call func()) {
	defer func() {
		if v := recover(); v != nil {
			log.Error("hook panicked", "hook", name, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	call()
}
