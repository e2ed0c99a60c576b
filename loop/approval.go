package loop

import (
	"context"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// DecideApproval answers an approval.
type DecideApproval struct {
	TenantID   string
	ApprovalID string
	Approve    bool
	// Outcome answers a question of the kind [event.ApprovalOfOutcome], and
	// Approve does not count; "" answers one about a call that wants to run.
	Outcome event.ApprovalDecision
	// ArgumentsSHA256 (hex) is what the person saw; "" does not check.
	ArgumentsSHA256 string
	Reason          string
	// Sanitized says that Reason was already made valid where it came in.
	Sanitized bool
	Actor     event.Actor
}

// Decided is the answer that an approval has.
type Decided struct {
	SessionID string
	RunID     string
	Decision  event.ApprovalDecision
	// Repeated says that the same person had said the same before.
	Repeated bool
}

// DecideApproval stores the one answer to an approval. The run goes on once
// nothing is left to answer. An approval that was answered differently, or by
// somebody else, is a [DecidedError]; repeating one's own answer is no error.
func (c *Commands) DecideApproval(ctx context.Context, cmd DecideApproval) (Decided, error) {
	sessionID, runID, err := c.Log.Approval(ctx, cmd.TenantID, cmd.ApprovalID)
	if err != nil {
		return Decided{}, err
	}
	decision := event.DecisionDenied
	switch {
	case cmd.Outcome != "":
		decision = cmd.Outcome
	case cmd.Approve:
		decision = event.DecisionApproved
	}
	out := Decided{SessionID: sessionID, RunID: runID, Decision: decision}
	var refusal error
	_, err = c.replan(ctx, cmd.TenantID, sessionID, runID, cmd.Actor, func(d *draft, r Run) bool {
		call, ok := r.approval(cmd.ApprovalID)
		if refusal = refuseDecision(call, ok, decision, cmd); refusal != nil || call.Status != CallAwaiting {
			out.Repeated = refusal == nil
			return false
		}
		if d.endBad(c.NewID) {
			refusal = d.bad
			return true
		}
		reason, sanitized := event.CleanText(cmd.Reason)
		d.add(event.ApprovalDecided{
			ApprovalID: cmd.ApprovalID, CallID: call.ID, Decision: decision, ArgumentsSHA256: digest(call.final()),
			Reason: event.Shorten(reason, 2000), Sanitized: sanitized || cmd.Sanitized,
		})
		if t, _ := d.run().Turn(); r.Status == RunWaiting && !t.has(CallAwaiting) {
			d.add(event.RunQueued{Ticket: r.Ticket + 1, Cause: "approval"})
			d.job(r.Ticket + 1)
		}
		return true
	})
	if err == nil {
		err = refusal
	}
	if err != nil {
		return Decided{}, err
	}
	return out, nil
}

func refuseDecision(call Call, ok bool, decision event.ApprovalDecision, cmd DecideApproval) error {
	switch {
	case !ok:
		return ErrNotFound
	case cmd.ArgumentsSHA256 != "" && cmd.ArgumentsSHA256 != digest(call.final()):
		return &InvalidError{
			Field:   "arguments_sha256",
			Problem: "is not the digest of the arguments that wait for approval: look at them again",
		}
	case cmd.Outcome != "" && cmd.Outcome != event.DecisionHappened && cmd.Outcome != event.DecisionDidNotHappen:
		return &InvalidError{Field: "decision", Problem: "is no answer"}
	case !call.Asked.Takes(decision) && call.Asked == event.ApprovalOfOutcome:
		return &InvalidError{
			Field:   "decision",
			Problem: "does not answer this: the call was started and interrupted, and the question is whether it has taken effect",
		}
	case !call.Asked.Takes(decision):
		return &InvalidError{Field: "decision", Problem: "does not answer this: the question is whether the call may run"}
	case call.Decision == "" || call.Decision == decision && call.DecidedBy == cmd.Actor:
		return nil
	}
	return &DecidedError{Decision: call.Decision, By: call.DecidedBy, At: call.DecidedAt}
}

// approval finds the call that an approval is about, as it was when that one was
// the last.
func (r Run) approval(id string) (Call, bool) {
	for _, t := range r.Turns {
		for _, c := range t.Calls {
			if c.ApprovalID == id {
				return c, true
			}
			for _, q := range c.Earlier {
				if q.ApprovalID == id {
					c.Status, c.ApprovalID, c.Asked = StatusAfter(q.Decision), id, q.Asked
					c.Decision, c.DecidedBy, c.DecidedAt = q.Decision, q.DecidedBy, q.DecidedAt
					return c, true
				}
			}
		}
	}
	return Call{}, false
}
