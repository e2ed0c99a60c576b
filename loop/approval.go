package loop

import (
	"context"
	"errors"
	"path"
	"slices"

	"github.com/seed-2ca4966b/agentd/loop/event"
)

// DecideApproval answers an approval.
type DecideApproval struct {
	TenantID   string
	ApprovalID string
	Approve    bool
	// Arguments, unless nil, are what is to run instead of what was asked about,
	// byte for byte, and Approve does not count. Hooks see them before they run.
	Arguments *string
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
// somebody else, is a [DecidedError], and so is one that has expired; repeating
// one's own answer is no error. Who may not answer gets an [ApproverError], and
// arguments that the model could not have given are an [InvalidError]: nothing
// is stored of either.
func (c *Commands) DecideApproval(ctx context.Context, cmd DecideApproval) (Decided, error) {
	sessionID, runID, err := c.Log.Approval(ctx, cmd.TenantID, cmd.ApprovalID)
	if err != nil {
		return Decided{}, err
	}
	out := Decided{SessionID: sessionID, RunID: runID, Decision: cmd.decision()}
	err = c.decide(ctx, cmd, &out)
	if errors.Is(err, ErrExpired) {
		// Nobody has said so yet.
		if _, err = c.ExpireApproval(ctx, cmd.TenantID, cmd.ApprovalID); err == nil {
			err = c.decide(ctx, cmd, &out)
		}
	}
	if err != nil {
		return Decided{}, err
	}
	return out, nil
}

func (cmd DecideApproval) decision() event.ApprovalDecision {
	switch {
	case cmd.Outcome != "":
		return cmd.Outcome
	case cmd.Arguments != nil:
		return event.DecisionEdited
	case cmd.Approve:
		return event.DecisionApproved
	}
	return event.DecisionDenied
}

// decide stores the answer if there is none. It is [ErrExpired] if the time for
// one is over and nobody has noted that.
func (c *Commands) decide(ctx context.Context, cmd DecideApproval, out *Decided) error {
	var refusal error
	_, err := c.replan(ctx, cmd.TenantID, out.SessionID, out.RunID, cmd.Actor, func(d *draft, r Run) bool {
		call, ok := r.approval(cmd.ApprovalID)
		refusal = cmd.refuse(call, ok, out.Decision)
		if refusal == nil && call.Status == CallAwaiting && cmd.Arguments != nil {
			refusal = c.checkEdit(r.Agent, call, *cmd.Arguments)
		}
		if refusal != nil || call.Status != CallAwaiting {
			out.Repeated = refusal == nil
			return false
		}
		if d.endBad(c.NewID) {
			refusal = d.bad
			return true
		}
		reason, sanitized := event.CleanText(cmd.Reason)
		p := event.ApprovalDecided{
			ApprovalID: cmd.ApprovalID, CallID: call.ID, Decision: out.Decision, ArgumentsSHA256: digest(call.final()),
			Reason: event.Shorten(reason, 2000), Sanitized: sanitized || cmd.Sanitized,
		}
		if cmd.Arguments != nil {
			p.EditedArguments, p.EditedSHA256 = cmd.Arguments, digest(*cmd.Arguments)
		}
		d.answer(r, p)
		d.a.Answers = cmd.ApprovalID
		return true
	})
	if err == nil {
		err = refusal
	}
	return err
}

// answer adds the answer to an approval of r. A run that waits for nobody any
// more is queued.
func (d *draft) answer(r Run, p event.ApprovalDecided) {
	d.add(p)
	if t, _ := d.run().Turn(); r.Status == RunWaiting && !t.has(CallAwaiting) {
		d.add(event.RunQueued{Ticket: r.Ticket + 1, Cause: "approval"})
		d.job(r.Ticket + 1)
	}
}

func (cmd DecideApproval) refuse(call Call, ok bool, decision event.ApprovalDecision) error {
	switch {
	case !ok:
		return ErrNotFound
	case !MayDecide(call.Approvers, cmd.Actor):
		return &ApproverError{Actor: cmd.Actor, Approvers: call.Approvers}
	case cmd.ArgumentsSHA256 != "" && cmd.ArgumentsSHA256 != call.askedSHA256():
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
	case call.Decision == "" || cmd.repeats(call.Question, decision):
		return nil
	}
	return &DecidedError{Decision: call.Decision, By: call.DecidedBy, At: call.DecidedAt}
}

// repeats reports whether the answer that q has is this one, by the same person.
func (cmd DecideApproval) repeats(q Question, decision event.ApprovalDecision) bool {
	return q.Decision == decision && q.DecidedBy == cmd.Actor && (cmd.Arguments == nil || digest(*cmd.Arguments) == q.EditedSHA256)
}

// askedSHA256 is the digest of the arguments that people were asked about; a
// state that was read from tables does not have it.
func (c Call) askedSHA256() string {
	if c.ArgumentsSHA256 != "" {
		return c.ArgumentsSHA256
	}
	return digest(c.final())
}

// MayDecide reports whether the actor may answer a question that is for these
// approvers; nil is for everybody.
func MayDecide(approvers []string, actor event.Actor) bool {
	return approvers == nil || slices.ContainsFunc(approvers, func(glob string) bool {
		fits, err := path.Match(glob, actor.ID)
		return err == nil && fits
	})
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
					c.Status, c.Question = StatusAfter(q.Decision), q
					return c, true
				}
			}
		}
	}
	return Call{}, false
}
