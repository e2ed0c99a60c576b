package loop

import (
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// The transition tables. An event that a table does not list for a state is
// refused by [Allows] and ignored by [Fold]. An event that keeps the state is
// listed with the same state.

var runTransitions = map[RunStatus]map[event.Type]RunStatus{
	RunNone: {
		event.TypeRunCreated: RunEnqueued,
	},
	RunEnqueued: {
		event.TypeRunQueued:          RunQueued,
		event.TypeRunCancelRequested: RunEnqueued,
		event.TypeRunFailed:          RunFailed,
		event.TypeRunCancelled:       RunCancelled,
	},
	RunQueued: {
		event.TypeRunQueued:          RunQueued,
		event.TypeRunStarted:         RunRunning,
		event.TypeRunResumed:         RunRunning,
		event.TypeRunCancelRequested: RunQueued,
		event.TypeApprovalDecided:    RunQueued,
		event.TypeAssistantStopped:   RunQueued,
		event.TypeToolResult:         RunQueued,
		event.TypeRunFailed:          RunFailed,
		event.TypeRunCancelled:       RunCancelled,
	},
	RunRunning: {
		event.TypeRunReleased:        RunQueued,
		event.TypeRunPrepared:        RunRunning,
		event.TypeRunSuspended:       RunWaiting,
		event.TypeToolBlocked:        RunRunning,
		event.TypeApprovalRequested:  RunRunning,
		event.TypeApprovalDecided:    RunRunning,
		event.TypeRunCancelRequested: RunRunning,
		event.TypeTurnStarted:        RunRunning,
		event.TypeModelRequested:     RunRunning,
		event.TypeAssistantDelta:     RunRunning,
		event.TypeEmission:           RunRunning,
		event.TypeAssistantDiscarded: RunRunning,
		event.TypeAssistantCompleted: RunRunning,
		event.TypeAssistantStopped:   RunRunning,
		event.TypeToolProposed:       RunRunning,
		event.TypeToolStarted:        RunRunning,
		event.TypeToolProgress:       RunRunning,
		event.TypeToolsNarrowed:      RunRunning,
		event.TypeToolExecuted:       RunRunning,
		event.TypeToolResult:         RunRunning,
		event.TypeTurnCompleted:      RunRunning,
		event.TypeRunCompleted:       RunCompleted,
		event.TypeRunFailed:          RunFailed,
		event.TypeRunCancelled:       RunCancelled,
	},
	RunWaiting: {
		event.TypeApprovalDecided:    RunWaiting,
		event.TypeRunQueued:          RunQueued,
		event.TypeRunCancelRequested: RunWaiting,
		event.TypeToolResult:         RunWaiting,
		event.TypeRunFailed:          RunFailed,
		event.TypeRunCancelled:       RunCancelled,
	},
	RunCompleted: {},
	RunFailed: {
		event.TypeRunQueued: RunQueued, // for a retry
	},
	RunCancelled: {},
}

// allowsInRun holds what the run table cannot say: tickets and epochs only
// grow, the claim has the right ticket, a run ends with nothing open, and it is
// taken up again only where no check refused it, nothing came after it and it is
// not to be forgotten. The
// message of an enqueued run joins the conversation with its first run.queued,
// or leaves the queue before the run ends.
func allowsInRun(s State, r Run, e event.Event, p event.Payload) bool {
	t, _ := r.Turn()
	switch p := p.(type) {
	case event.RunQueued:
		if retry := p.Cause == event.QueuedForRetry; retry != (r.Status == RunFailed) || retry && !s.mayRetry(r) {
			return false
		}
		if next := p.Cause == event.QueuedNext; next != (s.enqueuedIndex(r.MessageID) >= 0) {
			return false
		}
		a, busy := s.active()
		return p.Ticket > r.Ticket && (!busy || a.ID == r.ID) && (r.Status != RunWaiting || !t.has(CallAwaiting))
	case event.RunPrepared:
		return len(r.Turns) == 0 && r.Prepared == nil
	case event.RunSuspended:
		return t.has(CallAwaiting) && !t.has(CallProposed, CallBlocked, CallApproved, CallEdited, CallDenied, CallConfirmed, CallStarted, CallExecuted)
	case event.RunStarted:
		return !r.Started && p.Ticket == r.Ticket && p.Epoch > s.Epoch
	case event.RunResumed:
		return r.Started && p.Ticket == r.Ticket && p.Epoch > s.Epoch
	case event.RunReleased:
		return p.Ticket > r.Ticket && p.Epoch > s.Epoch
	case event.ToolsNarrowed:
		return e.Turn == t.No
	case event.RunCompleted:
		return t.Status == TurnCompleted
	case event.RunFailed, event.RunCancelled:
		return t.settled() && s.enqueuedIndex(r.MessageID) < 0
	case event.TurnStarted:
		return e.Turn == t.No+1 && (t.Status == TurnNone || t.Status == TurnCompleted || t.Superseded)
	case event.TurnCompleted:
		return e.Turn == t.No && t.settled() && (t.Status != TurnStopped || t.Stop.goesOn() && !t.Superseded)
	}
	return true
}

// mayRetry says of a failed run whether it may be taken up again.
func (s State) mayRetry(r Run) bool {
	return r.Reason != string(event.FailBlocked) && !r.RolledBack && s.last().ID == r.ID
}

// last returns the run that began last, or none.
func (s State) last() Run {
	for i := len(s.Runs) - 1; i >= 0; i-- {
		if s.Runs[i].Ticket > 0 {
			return s.Runs[i]
		}
	}
	return Run{}
}

// active returns the run that keeps others from starting.
func (s State) active() (Run, bool) {
	for i := len(s.Runs) - 1; i >= 0; i-- {
		if s.Runs[i].Status.Active() {
			return s.Runs[i], true
		}
	}
	return Run{}, false
}
