package loop

import (
	"context"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

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
