package sim

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// sweepable says that there is something that a sweeper would find.
func (w *world) sweepable() bool {
	return len(w.orphans()) > 0 || len(w.lost()) > 0 || len(w.late()) > 0
}

// orphans are runs that a dead worker holds, or one that does not work on them.
func (w *world) orphans() []loop.Release {
	var out []loop.Release
	for _, id := range w.ids {
		for _, r := range w.sessions[id].state.Runs {
			if r.Status != loop.RunRunning || w.beingSwept(r.ID) {
				continue
			}
			i := slices.IndexFunc(w.workers, func(wk *worker) bool { return wk.name == r.WorkerID })
			if w.workers[i].declared || !w.workers[i].dead && !w.worksOn(w.workers[i].process, r.ID) {
				out = append(out, loop.Release{TenantID: looptest.Tenant, SessionID: id, RunID: r.ID, WorkerID: r.WorkerID, Now: w.clock()})
			}
		}
	}
	return out
}

// lost are queued runs that are due and have no job.
func (w *world) lost() []loop.Job {
	var out []loop.Job
	for _, id := range w.ids {
		for _, r := range w.sessions[id].state.Runs {
			j := loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: r.ID, Ticket: r.Ticket}
			if r.Status != loop.RunQueued || w.paused.Load() || w.beingSwept(r.ID) || slices.Contains(w.jobs, j) {
				continue
			}
			if r.NotBefore != nil && r.NotBefore.After(w.clock()) || w.worksOn(nil, r.ID) {
				continue
			}
			out = append(out, j)
		}
	}
	return out
}

// late are the open questions whose time is over.
func (w *world) late() []question {
	var out []question
	for _, id := range w.ids {
		for _, q := range w.questions(w.sessions[id], true) {
			if at, ok := w.expires[q.call.ApprovalID]; ok && !w.clock().Before(at) && !w.beingSwept(q.call.ApprovalID) {
				out = append(out, q)
			}
		}
	}
	return out
}

// worksOn says that p, or anybody if it is nil, works on a run.
func (w *world) worksOn(p *process, runID string) bool {
	return slices.ContainsFunc(w.actors, func(a *actor) bool {
		return !a.over.Load() && !a.process.dead && a.worker != "" && a.job.RunID == runID && (p == nil || a.process == p)
	})
}

// beingSwept says that somebody takes care of a run already. Sweepers do not know
// of each other, so that counts only once nothing goes wrong any more.
func (w *world) beingSwept(runID string) bool {
	return w.calm && slices.ContainsFunc(w.actors, func(a *actor) bool {
		return !a.over.Load() && !a.process.dead && a.worker == "" && a.job.RunID == runID
	})
}

// sweep lets a worker take care of one thing that its sweeper finds.
func (w *world) sweep(wk *worker) {
	orphans, lost, late := w.orphans(), w.lost(), w.late()
	i := 0
	if !w.calm {
		i = w.src.draw(len(orphans) + len(lost) + len(late))
	}
	w.sweeps++
	a := w.newActor(fmt.Sprintf("%s.sweep%d", wk.name, w.sweeps), wk.process, &wk.skew)
	c := w.commands(a)
	actor := event.System("worker:" + wk.name)
	if i < len(orphans) {
		r := orphans[i]
		r.Actor = actor
		a.job.RunID = r.RunID
		w.say("%s takes %s away from %s", a.name, r.RunID, r.WorkerID)
		w.command(a, func(ctx context.Context) error { _, err := c.ReleaseDead(ctx, r); return err })
		return
	}
	if i -= len(orphans); i >= len(lost) {
		q := late[i-len(lost)].call.ApprovalID
		a.job.RunID = q
		w.say("%s notes that nobody has answered %s in time", a.name, q)
		w.command(a, func(ctx context.Context) error { _, err := c.ExpireApproval(ctx, looptest.Tenant, q); return err })
		return
	}
	j := lost[i]
	a.job.RunID = j.RunID
	w.say("%s queues %s again", a.name, j.RunID)
	w.command(a, func(ctx context.Context) error { _, err := c.Requeue(ctx, j, "job_lost", actor); return err })
}
