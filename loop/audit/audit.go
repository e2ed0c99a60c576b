package audit

import (
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// Decision is what the rules need of a row of the ledger.
type Decision struct {
	ID        string
	RunID     string
	WorkerID  string
	Epoch     int64
	LedgerSeq int64
	EventSeq  int64
	// Shadow says that the hook was only tried.
	Shadow, Effective, FailedOpen bool
}

// DecisionOf takes a decision from the ledger.
func DecisionOf(r loop.LedgerRow) Decision {
	return Decision{
		ID: r.ID, RunID: r.RunID, WorkerID: r.WorkerID, Epoch: r.Epoch, LedgerSeq: r.LedgerSeq, EventSeq: r.EventSeq,
		Shadow: r.Shadow(), Effective: r.Effective, FailedOpen: r.FailedOpen,
	}
}

// Check is the whole log of one session against all rules. Deltas may be
// missing where an answer was arriving: retention removes them.
func Check(events []event.Event, decisions []Decision) []Violation {
	a := New()
	for _, d := range decisions {
		a.Decided(d)
	}
	var s loop.State
	for _, e := range events {
		s = a.Add(s, e)
	}
	return a.Finish(s)
}

// Auditor reads the log of one session, event by event. It is used by one
// goroutine.
type Auditor struct {
	found []Violation
	// due are decisions whose event has not come yet, in order; decided are the
	// ids of all. lastSeq is the event of the decision before.
	due     []Decision
	decided map[string]bool
	lastSeq int64

	messages  map[string]bool
	calls     map[string]*call
	approvals map[string]*question
	leases    map[string][]lease
	// answer is the attempt that arrives, proposing what its calls still are.
	answer answer
	gaps   []gap
	// narrowings are what was left of the tools of runs, in order.
	narrowings []narrowing
}

// New returns an auditor of a log that has nothing yet.
func New() *Auditor {
	return &Auditor{
		decided: map[string]bool{}, messages: map[string]bool{}, calls: map[string]*call{},
		approvals: map[string]*question{}, leases: map[string][]lease{},
	}
}

// gap is a hole in the seqs: what is between after and before.
type gap struct{ after, before int64 }

// Add reads e, which stands behind s, and returns the state after it.
func (a *Auditor) Add(s loop.State, e event.Event) loop.State {
	if e.Seq != s.LastSeq+1 {
		a.skipped(s, e)
	}
	p, err := event.Decode(e)
	if err == nil {
		err = loop.Allows(s, e)
	}
	after := loop.Fold(s, e)
	after.LastSeq = e.Seq
	if err != nil {
		a.find(RuleTransition, e, err.Error())
	} else {
		a.Note(s, after, e, p)
	}
	return after
}

// Note is Add for a reader that folds by itself and has found that e, whose
// payload is p, is allowed between before and after. It asks all rules but
// [RuleSeq] and [RuleTransition].
func (a *Auditor) Note(before, after loop.State, e event.Event, p event.Payload) {
	if before.LastSeq+1 < e.Seq {
		a.gaps = append(a.gaps, gap{before.LastSeq, e.Seq})
		a.answer.cut = true
	}
	switch p := p.(type) {
	case event.MessageCreated:
		a.message(e, p.MessageID)
	case event.RunStarted:
		a.claimed(e, p.WorkerID, p.Epoch)
	case event.RunResumed:
		a.claimed(e, p.WorkerID, p.Epoch)
	case event.RunReleased:
		a.released(before, e, p)
	case event.ModelRequested:
		a.requested(before, e, p)
		a.offered(e, p)
	case event.ToolsNarrowed:
		a.narrowed(before, e, p)
	case event.AssistantDelta:
		a.shown(e, p)
	case event.AssistantDiscarded:
		a.answer = answer{}
	case event.AssistantCompleted:
		a.completed(e, p)
	case event.AssistantStopped:
		a.stopped(e, p)
		a.stoppedBy(before, e, p)
	case event.RunSuspended:
		a.suspended(before, e, p)
	case event.RunCompleted:
		a.completes(before, e, p)
		a.ended(after, e)
	case event.RunFailed, event.RunCancelled:
		a.ended(after, e)
	default:
		a.ofCall(before, e, p)
	}
	a.heldBy(before, e)
	a.proposals(e, p)
	a.decisions(e)
}

// Decided reads a decision of the ledger, in order, before its event.
func (a *Auditor) Decided(d Decision) {
	switch {
	case a.decided[d.ID]:
		a.decision(d, "decision "+d.ID+" is recorded twice")
	case d.EventSeq < a.lastSeq:
		a.decision(d, "it belongs to an event before that of the decision before it")
	case d.Shadow && (d.Effective || d.FailedOpen):
		a.decision(d, "a shadow had an effect")
	}
	a.decided[d.ID], a.lastSeq = true, d.EventSeq
	a.due = append(a.due, d)
}

// Finish says what was found, with what only the end of the log can tell.
func (a *Auditor) Finish(s loop.State) []Violation {
	for _, d := range a.due {
		if !a.missing(d.EventSeq) {
			a.decision(d, "there is no such event")
		}
	}
	a.due = nil
	a.undecided()
	a.queue(s)
	return a.found
}

// Found is what was found so far. The caller must not change it.
func (a *Auditor) Found() []Violation { return a.found }

func (a *Auditor) find(r Rule, e event.Event, problem string) {
	a.found = append(a.found, Violation{Rule: r, Seq: e.Seq, Problem: problem})
}

func (a *Auditor) decision(d Decision, problem string) {
	a.found = append(a.found, Violation{Rule: RuleDecision, LedgerSeq: d.LedgerSeq, Problem: problem})
}

// skipped looks at a seq that is not the next one.
func (a *Auditor) skipped(s loop.State, e event.Event) {
	if e.Seq > s.LastSeq && arriving(s) {
		return
	}
	a.find(RuleSeq, e, "it does not follow the event before it")
}

// arriving says that deltas could stand here: some run is in the middle of a
// model call.
func arriving(s loop.State) bool {
	for _, r := range s.Runs {
		if t, ok := r.Turn(); ok && r.Status == loop.RunRunning && t.Status == loop.TurnCalling {
			return true
		}
	}
	return false
}

func (a *Auditor) missing(seq int64) bool {
	for _, g := range a.gaps {
		if g.after < seq && seq < g.before {
			return true
		}
	}
	return false
}

func (a *Auditor) message(e event.Event, id string) {
	if a.messages[id] {
		a.find(RuleIdentity, e, "message "+id+" stands twice")
	}
	a.messages[id] = true
}
