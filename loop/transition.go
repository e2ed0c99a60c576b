package loop

import (
	"slices"

	"github.com/seed-2ca4966b/agentd/hooks"
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
		event.TypeRunQueued: RunQueued,
		event.TypeRunFailed: RunFailed,
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
		event.TypeAssistantDiscarded: RunRunning,
		event.TypeAssistantCompleted: RunRunning,
		event.TypeAssistantStopped:   RunRunning,
		event.TypeToolProposed:       RunRunning,
		event.TypeToolStarted:        RunRunning,
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

var turnTransitions = map[TurnStatus]map[event.Type]TurnStatus{
	TurnNone: {
		event.TypeTurnStarted: TurnOpen,
	},
	TurnOpen: {
		event.TypeModelRequested: TurnCalling,
	},
	TurnCalling: {
		event.TypeAssistantDelta:     TurnCalling,
		event.TypeAssistantDiscarded: TurnOpen,
		event.TypeAssistantCompleted: TurnAnswered,
		event.TypeAssistantStopped:   TurnStopped,
	},
	TurnAnswered: {
		event.TypeToolProposed:      TurnAnswered,
		event.TypeToolBlocked:       TurnAnswered,
		event.TypeApprovalRequested: TurnAnswered,
		event.TypeApprovalDecided:   TurnAnswered,
		event.TypeToolStarted:       TurnAnswered,
		event.TypeToolExecuted:      TurnAnswered,
		event.TypeToolResult:        TurnAnswered,
		event.TypeTurnCompleted:     TurnCompleted,
	},
	TurnStopped:   {},
	TurnCompleted: {},
}

var callTransitions = map[CallStatus]map[event.Type]CallStatus{
	CallNone: {
		event.TypeToolProposed: CallProposed,
	},
	CallProposed: {
		event.TypeToolBlocked:       CallBlocked,
		event.TypeApprovalRequested: CallAwaiting,
		event.TypeToolStarted:       CallStarted,
		event.TypeToolResult:        CallDone,
	},
	CallBlocked: {
		event.TypeToolResult: CallDone,
	},
	CallAwaiting: {
		event.TypeApprovalDecided: CallApproved, // or denied, as the event says
	},
	CallApproved: {
		event.TypeToolBlocked: CallBlocked,
		event.TypeToolStarted: CallStarted,
		event.TypeToolResult:  CallDone,
	},
	CallDenied: {
		event.TypeToolResult: CallDone,
	},
	CallStarted: {
		event.TypeToolStarted:  CallStarted, // an idempotent tool, again
		event.TypeToolExecuted: CallExecuted,
		event.TypeToolBlocked:  CallBlocked, // not again
		event.TypeToolResult:   CallDone,
	},
	CallExecuted: {
		event.TypeToolStarted: CallStarted, // an idempotent tool whose output was lost
		event.TypeToolBlocked: CallBlocked, // not again
		event.TypeToolResult:  CallDone,
	},
	CallDone: {},
}

// Allows says whether the tables let e follow s; the error is a
// [TransitionError]. An event of a type that this binary does not know is
// allowed.
func Allows(s State, e event.Event) error {
	p, err := event.Decode(e)
	if err != nil {
		return err
	}
	return allows(s, e, p)
}

func allows(s State, e event.Event, p event.Payload) error {
	refuse := func(entity, id, from string) error {
		return &TransitionError{Entity: entity, ID: id, From: from, Event: e.Type}
	}
	switch p.(type) {
	case event.Unknown:
		return nil
	case event.SessionCreated:
		if s.SessionID != "" {
			return refuse("session", s.SessionID, "created")
		}
		return nil
	}
	if s.SessionID == "" || s.Deleted {
		return refuse("session", e.SessionID, sessionStatus(s))
	}
	switch p := p.(type) {
	case event.SessionUpdated, event.MessageCreated, event.InputHandled, event.InputBlocked, event.InputRejected:
		return nil
	case event.SessionDeleted:
		if r, ok := s.active(); ok {
			return refuse("session", s.SessionID, "run "+string(r.Status))
		}
		return nil
	case event.MessagesReplaced:
		if r, ok := s.active(); ok {
			return refuse("session", s.SessionID, "run "+string(r.Status))
		}
		if !s.endsWith(p) {
			return refuse("message", p.FromMessageID, "")
		}
		return nil
	case event.RunCreated:
		if r, ok := s.active(); ok {
			return refuse("session", s.SessionID, "run "+string(r.Status))
		}
	}
	r, _ := s.Run(e.RunID)
	if _, ok := runTransitions[r.Status][e.Type]; !ok {
		return refuse("run", e.RunID, string(r.Status))
	}
	if !allowsInRun(s, r, e, p) {
		return refuse("run", e.RunID, string(r.Status))
	}
	return allowsInTurn(r, e, p, refuse)
}

// endsWith reports whether p names the end of the conversation, message by
// message.
func (s State) endsWith(p event.MessagesReplaced) bool {
	at := s.messageIndex(p.FromMessageID)
	return at >= 0 && slices.EqualFunc(s.Messages[at:], p.MessageIDs, func(m hooks.Message, id string) bool { return m.ID == id })
}

// allowsInRun holds what the run table cannot say: tickets and epochs only
// grow, the claim has the right ticket, a run ends with nothing open, and it is
// taken up again only where no check refused it and nothing came after it.
func allowsInRun(s State, r Run, e event.Event, p event.Payload) bool {
	t, _ := r.Turn()
	switch p := p.(type) {
	case event.RunQueued:
		if retry := p.Cause == event.QueuedForRetry; retry != (r.Status == RunFailed) || retry && !s.mayRetry(r) {
			return false
		}
		a, busy := s.active()
		return p.Ticket > r.Ticket && (!busy || a.ID == r.ID) && (r.Status != RunWaiting || !t.has(CallAwaiting))
	case event.RunPrepared:
		return len(r.Turns) == 0 && r.Prepared == nil
	case event.RunSuspended:
		return t.has(CallAwaiting) && !t.has(CallProposed, CallBlocked, CallApproved, CallDenied, CallStarted, CallExecuted)
	case event.RunStarted:
		return !r.Started && p.Ticket == r.Ticket && p.Epoch > s.Epoch
	case event.RunResumed:
		return r.Started && p.Ticket == r.Ticket && p.Epoch > s.Epoch
	case event.RunReleased:
		return p.Ticket > r.Ticket && p.Epoch > s.Epoch
	case event.RunCompleted:
		return t.Status == TurnCompleted
	case event.RunFailed, event.RunCancelled:
		return t.settled()
	case event.TurnStarted:
		return e.Turn == t.No+1 && (t.Status == TurnNone || t.Status == TurnCompleted || t.Superseded)
	case event.TurnCompleted:
		return e.Turn == t.No && t.settled()
	}
	return true
}

func allowsInTurn(r Run, e event.Event, p event.Payload, refuse func(entity, id, from string) error) error {
	if !ofTurn(e.Type) {
		return nil
	}
	t, _ := r.Turn()
	if e.Type == event.TypeTurnStarted {
		return nil
	}
	if e.Turn != t.No {
		return refuse("turn", e.RunID, string(t.Status))
	}
	if _, ok := turnTransitions[t.Status][e.Type]; !ok {
		return refuse("turn", e.RunID, string(t.Status))
	}
	switch p := p.(type) {
	case event.ModelRequested:
		if p.Attempt != t.Attempt+1 {
			return refuse("turn", e.RunID, string(t.Status))
		}
	case event.AssistantDelta:
		return allowsAttempt(t, p.Attempt, refuse)
	case event.AssistantDiscarded:
		return allowsAttempt(t, p.Attempt, refuse)
	case event.AssistantCompleted:
		return allowsAttempt(t, p.Attempt, refuse)
	case event.AssistantStopped:
		return allowsAttempt(t, p.Attempt, refuse)
	}
	id, ok := callID(p)
	if !ok {
		return nil
	}
	var from CallStatus
	if i := t.callIndex(id); i >= 0 {
		from = t.Calls[i].Status
	}
	if _, ok := callTransitions[from][e.Type]; !ok {
		return refuse("call", id, string(from))
	}
	return nil
}

func allowsAttempt(t Turn, attempt int, refuse func(entity, id, from string) error) error {
	if attempt != t.Attempt {
		return refuse("turn", t.MessageID, string(t.Status))
	}
	return nil
}

// ofTurn reports whether events of that type move a turn.
func ofTurn(t event.Type) bool { return turnTypes[t] }

var turnTypes = func() map[event.Type]bool {
	out := map[event.Type]bool{}
	for _, row := range turnTransitions {
		for t := range row {
			out[t] = true
		}
	}
	return out
}()

func callID(p event.Payload) (string, bool) {
	switch p := p.(type) {
	case event.ToolProposed:
		return p.CallID, true
	case event.ToolBlocked:
		return p.CallID, true
	case event.ApprovalRequested:
		return p.CallID, true
	case event.ApprovalDecided:
		return p.CallID, true
	case event.ToolStarted:
		return p.CallID, true
	case event.ToolExecuted:
		return p.CallID, true
	case event.ToolResult:
		return p.CallID, true
	}
	return "", false
}

func sessionStatus(s State) string {
	if s.Deleted {
		return "deleted"
	}
	return ""
}

// mayRetry says of a failed run whether it may be taken up again.
func (s State) mayRetry(r Run) bool {
	return r.Reason != string(event.FailBlocked) && s.Runs[len(s.Runs)-1].ID == r.ID
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

// has reports whether some call of the turn is in one of these states.
func (t Turn) has(states ...CallStatus) bool {
	return slices.ContainsFunc(t.Calls, func(c Call) bool { return slices.Contains(states, c.Status) })
}

// settled reports whether nothing of the turn waits for an outcome.
func (t Turn) settled() bool {
	if t.Status == TurnCalling {
		return false
	}
	for _, c := range t.Calls {
		if c.Status != CallDone {
			return false
		}
	}
	return true
}
