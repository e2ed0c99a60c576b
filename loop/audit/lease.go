package audit

import (
	"fmt"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// lease is a claim of a run.
type lease struct {
	seq, epoch int64
	worker     string
}

// ofHolder are the events that only the worker that holds the run writes. The
// others may come from whoever ends a run, answers a question or takes a run
// away.
var ofHolder = map[event.Type]bool{
	event.TypeRunPrepared: true, event.TypeRunSuspended: true, event.TypeTurnStarted: true, event.TypeModelRequested: true,
	event.TypeAssistantDelta: true, event.TypeAssistantDiscarded: true, event.TypeAssistantCompleted: true,
	event.TypeToolsNarrowed: true, event.TypeToolProgress: true,
	event.TypeToolProposed: true, event.TypeToolBlocked: true, event.TypeToolStarted: true, event.TypeToolExecuted: true,
	event.TypeApprovalRequested: true, event.TypeTurnCompleted: true, event.TypeRunCompleted: true,
}

func (a *Auditor) claimed(e event.Event, worker string, epoch int64) {
	a.leases[e.RunID] = append(a.leases[e.RunID], lease{e.Seq, epoch, worker})
	if e.Actor != event.System("worker:"+worker) {
		a.find(RuleLease, e, fmt.Sprintf("%s %s claims the run for worker %s", e.Actor.Kind, e.Actor.ID, worker))
	}
}

func (a *Auditor) released(before loop.State, e event.Event, p event.RunReleased) {
	r, _ := before.Run(e.RunID)
	if p.WorkerID != r.WorkerID {
		a.find(RuleLease, e, fmt.Sprintf("worker %s is released, and %s holds the run", p.WorkerID, r.WorkerID))
	}
}

func (a *Auditor) heldBy(before loop.State, e event.Event) {
	if !ofHolder[e.Type] {
		return
	}
	r, _ := before.Run(e.RunID)
	if e.Actor != event.System("worker:"+r.WorkerID) {
		a.find(RuleLease, e, fmt.Sprintf("%s is written by %s %s, and worker %s holds the run", e.Type, e.Actor.Kind, e.Actor.ID, r.WorkerID))
	}
}

// queue says whether somebody waits for nobody.
func (a *Auditor) queue(s loop.State) {
	waits := ""
	for _, r := range s.Runs {
		if r.Status.Active() {
			return
		}
		if r.Status == loop.RunEnqueued {
			waits = r.ID
		}
	}
	if waits != "" || len(s.Enqueued) > 0 {
		a.find(RuleQueue, event.Event{Seq: s.LastSeq}, fmt.Sprintf("run %s and %d messages are enqueued behind no run", waits, len(s.Enqueued)))
	}
}

// decisions looks at those that were recorded with e.
func (a *Auditor) decisions(e event.Event) {
	rest := a.due[:0]
	for _, d := range a.due {
		if d.EventSeq != e.Seq {
			rest = append(rest, d)
			continue
		}
		if problem := a.misplaced(d, e); problem != "" {
			a.decision(d, problem)
		}
	}
	a.due = rest
}

func (a *Auditor) misplaced(d Decision, e event.Event) string {
	if d.RunID == "" {
		if d.WorkerID != "" || d.Epoch != 0 {
			return "it is about a message, and a worker recorded it"
		}
		return ""
	}
	if d.RunID != e.RunID {
		return fmt.Sprintf("it is about run %s, and event %d is about run %q", d.RunID, e.Seq, e.RunID)
	}
	all := a.leases[e.RunID]
	if len(all) == 0 {
		return "the run was not claimed yet"
	}
	if last := all[len(all)-1]; d.Epoch != last.epoch || d.WorkerID != last.worker {
		return fmt.Sprintf("worker %s recorded it under epoch %d, and worker %s had the run under %d", d.WorkerID, d.Epoch, last.worker, last.epoch)
	}
	return ""
}
