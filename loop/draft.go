package loop

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// draft is an append in the making. Each payload is checked against the
// transition tables and folded as it is added, so nothing is ever written that
// the tables refuse, and each event gets the turn that is open by then.
type draft struct {
	newID func() string
	// base is the state that the append follows, state what it leads to.
	base  State
	state State
	scope event.Scope
	a     Append
	err   error
	// bad is set if state is not folded from events, because they cannot be.
	bad *BadStateError
	// ends says that a run is over when the append is written.
	ends bool
	// worker and epoch stand in the decisions.
	worker string
	epoch  int64
	// random gives the salts of the decisions; nil is crypto/rand.
	random io.Reader
}

func newDraft(newID func() string, base State, scope event.Scope) *draft {
	return &draft{
		newID: newID, base: base, state: base, scope: scope,
		a: Append{ID: newID(), TenantID: base.TenantID, SessionID: base.SessionID, Expected: base.LastSeq},
	}
}

// add appends payloads; the first error is kept and ends the draft.
func (d *draft) add(payloads ...event.Payload) {
	for _, p := range payloads {
		if d.err != nil {
			return
		}
		r, _ := d.state.Run(d.scope.RunID)
		t, _ := r.Turn()
		s := d.scope
		if ofTurn(p.EventType()) {
			s.Turn = t.No
		}
		switch q := p.(type) {
		case event.TurnStarted:
			s.Turn = t.No + 1
		case event.ToolsNarrowed:
			s.Turn = t.No
		case event.AssistantCompleted:
			q.FirstSeq = t.FirstSeq
			p = q
		case event.AssistantStopped:
			q.FirstSeq = t.FirstSeq
			p = q
		case event.RunCompleted, event.RunFailed, event.RunCancelled:
			d.ends = true
		}
		p = d.marked(p)
		e, err := event.New(s, p)
		e.Seq = d.state.LastSeq + 1
		if err == nil {
			// What is folded is what everybody else will read.
			p, err = event.AsStored(e, p)
		}
		if err == nil {
			err = allows(d.state, e, p)
		}
		if err != nil {
			d.err = err
			return
		}
		d.state = d.state.after(e, p)
		d.a.Events = append(d.a.Events, e)
	}
}

// decide adds decisions to the ledger, for the events that were added last.
func (d *draft) decide(decisions []hooks.Decision) { d.chain(decisions, d.state.LastSeq) }

// end adds the terminal event of a run behind the decisions that led to it, so
// that its mark covers them.
func (d *draft) end(decisions []hooks.Decision, p event.Payload) {
	d.chain(decisions, d.state.LastSeq+1)
	d.add(p)
}

// marked fills in where the ledger stands at the end of a run.
func (d *draft) marked(p event.Payload) event.Payload {
	if d.state.Ledger.Seq == 0 {
		return p
	}
	mark := event.LedgerMark{LedgerSeq: d.state.Ledger.Seq, LedgerHead: hex.EncodeToString(d.state.Ledger.Hash[:])}
	switch q := p.(type) {
	case event.RunCompleted:
		q.LedgerMark = mark
		return q
	case event.RunFailed:
		q.LedgerMark = mark
		return q
	case event.RunCancelled:
		q.LedgerMark = mark
		return q
	}
	return p
}

func (d *draft) chain(decisions []hooks.Decision, eventSeq int64) {
	for _, dec := range decisions {
		row := LedgerRow{Row: hooks.Row{
			Decision: dec, LedgerSeq: d.state.Ledger.Seq + 1, EventSeq: eventSeq,
			Epoch: d.epoch, WorkerID: d.worker, PrevHash: d.state.Ledger.Hash,
		}}
		if !dec.Payload.Empty() {
			d.salt(row.Salt[:])
			sum := dec.Payload.Hash(row.Salt)
			row.PayloadSHA256 = sum[:]
		}
		row.Hash = row.Row.Hash()
		d.state.Ledger = LedgerHead{Seq: row.LedgerSeq, Hash: row.Hash}
		d.a.Ledger = append(d.a.Ledger, row)
	}
}

// salt fills s.
func (d *draft) salt(s []byte) {
	if d.random == nil {
		_, _ = rand.Read(s) // never fails
		return
	}
	if _, err := io.ReadFull(d.random, s); err != nil && d.err == nil {
		d.err = fmt.Errorf("salt of a decision: %w", err)
	}
}

// done returns the append. Nothing is added any more.
func (d *draft) done() (Append, error) {
	if d.ends {
		d.handOver()
	}
	return d.a, d.err
}

// run is the drafted run as it will be.
func (d *draft) run() Run {
	r, _ := d.state.Run(d.scope.RunID)
	return r
}

// closing is what must be written before a run that is cut short may end: the
// open answer is stopped, and every call without a result gets its one.
func closing(newID func() string, r Run, reason string) []event.Payload {
	t, ok := r.Turn()
	if !ok {
		return nil
	}
	var out []event.Payload
	if t.Status == TurnCalling {
		out = append(out, stopped(newID, t.Attempt, t.Shown.Blocks(), reason))
	}
	for _, c := range t.Calls {
		if c.Status == CallAwaiting {
			out = append(out, event.ApprovalDecided{
				ApprovalID: c.ApprovalID, CallID: c.ID, Decision: event.DecisionCancelled,
				ArgumentsSHA256: digest(c.final()), Reason: reason,
			})
		}
		if c.Status != CallDone {
			out = append(out, closedResult(newID, c))
		}
	}
	return out
}

// stopped keeps what was shown of an answer. One that showed nothing leaves no
// message.
func stopped(newID func() string, attempt int, shown []PartialBlock, reason string) event.AssistantStopped {
	p := event.AssistantStopped{Attempt: attempt, Parts: shownParts(shown), Reason: reason}
	if len(p.Parts) > 0 {
		p.MessageID = newID()
	}
	for _, b := range shown {
		p.Sanitized = p.Sanitized || b.Sanitized
	}
	return p
}

// The texts that a model is shown for a call without an ordinary result.
const (
	textNotRun         = "This call was not run: the run was cancelled first."
	textOutcomeUnknown = "outcome unknown: the tool was started and then interrupted before it answered. " +
		"It may have taken effect. It was not run again."
	textEndedFirst = "This call was not run: the run ended first."
	textLimit      = "This call was not run: the run reached a limit of its agent first."
	textNotAgain   = "This call was not run: it was interrupted, and a person said that it had not taken effect; then the run ended."
	textConfirmed  = "The tool was interrupted, and a person confirmed that it has run. Its output is unknown. It was not run again."
	textExpired    = "This call needs a person's yes, and nobody answered in time. It was not run."
	textOutputLost = "executed; output lost before it was checked. The tool was not run again."
)

// closedResult is the result of a call whose run ends, or whose outcome is
// gone.
func closedResult(newID func() string, c Call) event.ToolResult {
	p := event.ToolResult{CallID: c.ID, MessageID: newID(), Name: c.Name, IsError: true}
	if c.Status == CallAwaiting && c.Asked == event.ApprovalOfOutcome {
		c.Status = CallStarted // nobody said what became of it
	}
	switch c.Status {
	case CallStarted:
		p.Reason, p.Content = hooks.ReasonOutcomeUnknown, c.noted(textOutcomeUnknown)
	case CallExecuted:
		p.Reason, p.Content = hooks.ReasonOutputLost, c.noted(textOutputLost)
	case CallConfirmed:
		p.Reason, p.Content, p.IsError = hooks.ReasonConfirmed, c.noted(textConfirmed), false
	case CallDenied:
		p.Reason, p.Content = hooks.ReasonDenied, deniedText(c)
		if c.Decision == event.DecisionExpired {
			p.Reason, p.Content = hooks.ReasonExpired, textExpired
		}
	case CallNone, CallProposed, CallBlocked, CallAwaiting, CallApproved, CallEdited, CallDone:
		p.Reason, p.Content = hooks.ReasonCancelled, textNotRun
		if c.Attempt > 0 && c.Status == CallApproved {
			p.Content = textNotAgain
		}
	}
	return p
}

// final is what runs: what the model wrote, or what hooks or people made of it.
func (c Call) final() string {
	if c.Final != nil {
		return *c.Final
	}
	return c.Arguments
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func deniedText(c Call) string {
	if c.DecisionReason == "" {
		return "This call was denied by a person. It was not run."
	}
	return "This call was denied by a person: " + c.DecisionReason + " It was not run."
}
