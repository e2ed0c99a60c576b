package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// call is a tool call: started is its last attempt, said the number of what it said
// last in that.
type call struct{ started, said int }

// question is something that people were asked.
type question struct {
	runID, callID string
	sum           string
	approvers     []string
	expires       bool
	answered      bool
}

// ofCall looks at an event that is about a tool call.
func (a *Auditor) ofCall(before loop.State, e event.Event, p event.Payload) {
	switch p := p.(type) {
	case event.ToolProposed:
		if a.calls[p.CallID] != nil {
			a.find(RuleIdentity, e, "call "+p.CallID+" stands twice")
		}
		a.calls[p.CallID] = &call{}
	case event.ToolStarted:
		c, now := a.at(p.CallID), find(before, e.RunID, p.CallID)
		if c.started++; p.Attempt != c.started {
			a.find(RuleAttempt, e, fmt.Sprintf("call %s is started as attempt %d, and it is number %d", p.CallID, p.Attempt, c.started))
			c.started = p.Attempt
		}
		c.said = 0
		a.startable(before, e, p)
		runs := final(now)
		if p.Arguments != nil {
			runs = *p.Arguments
		}
		a.bytes(e, p.CallID, runs, p.ArgumentsSHA256)
		if (now.Status == loop.CallApproved || now.Status == loop.CallEdited) && runs != final(now) {
			a.find(RuleArguments, e, "call "+p.CallID+" runs with other arguments than people approved or gave")
		}
	case event.ToolExecuted:
		if c := a.at(p.CallID); p.Attempt != c.started {
			a.find(RuleAttempt, e, fmt.Sprintf("call %s was executed in attempt %d, and %d was started last", p.CallID, p.Attempt, c.started))
		}
	case event.ToolProgress:
		c := a.at(p.CallID)
		if p.Attempt != c.started || p.Number <= c.said {
			a.find(RuleAttempt, e, fmt.Sprintf("call %s says its number %d in attempt %d, behind number %d in attempt %d", p.CallID, p.Number, p.Attempt, c.said, c.started))
		}
		c.said = p.Number
	case event.ToolResult:
		a.result(before, e, p)
	case event.ApprovalRequested:
		if a.approvals[p.ApprovalID] != nil {
			a.find(RuleIdentity, e, "approval "+p.ApprovalID+" stands twice")
		}
		a.approvals[p.ApprovalID] = &question{
			runID: e.RunID, callID: p.CallID, sum: p.ArgumentsSHA256, approvers: p.Approvers, expires: p.TimeoutMS > 0,
		}
		a.bytes(e, p.CallID, p.Arguments, p.ArgumentsSHA256)
	case event.ApprovalDecided:
		a.answered(e, p)
	}
}

// at is never nil.
func (a *Auditor) at(callID string) *call {
	if a.calls[callID] == nil {
		a.calls[callID] = &call{}
	}
	return a.calls[callID]
}

func (a *Auditor) bytes(e event.Event, callID, arguments, sum string) {
	if want := sha256.Sum256([]byte(arguments)); sum != "" && sum != hex.EncodeToString(want[:]) {
		a.find(RuleArguments, e, fmt.Sprintf("%s of call %s is about other bytes than its digest", e.Type, callID))
	}
}

// reasons are those that a result may have where a call stands.
var reasons = map[loop.CallStatus][]hooks.ResultReason{
	loop.CallProposed:  {hooks.ReasonUnknownTool, hooks.ReasonInvalidArguments, hooks.ReasonCancelled, hooks.ReasonNotRun, hooks.ReasonLimit},
	loop.CallApproved:  {hooks.ReasonUnknownTool, hooks.ReasonInvalidArguments, hooks.ReasonCancelled, hooks.ReasonNotRun, hooks.ReasonLimit},
	loop.CallEdited:    {hooks.ReasonUnknownTool, hooks.ReasonInvalidArguments, hooks.ReasonCancelled, hooks.ReasonNotRun, hooks.ReasonLimit},
	loop.CallBlocked:   {hooks.ReasonBlocked, hooks.ReasonCancelled, hooks.ReasonNotRun, hooks.ReasonLimit},
	loop.CallConfirmed: {hooks.ReasonConfirmed},
	loop.CallStarted:   {hooks.ReasonOutcomeUnknown},
	loop.CallExecuted:  {"", hooks.ReasonToolError, hooks.ReasonWithheld, hooks.ReasonOutputLost},
}

func (a *Auditor) result(before loop.State, e event.Event, p event.ToolResult) {
	a.message(e, p.MessageID)
	now := find(before, e.RunID, p.CallID)
	allowed := reasons[now.Status]
	if now.Status == loop.CallDenied {
		allowed = notRun(now)
	}
	if !slices.Contains(allowed, p.Reason) {
		a.find(RuleResult, e, fmt.Sprintf("call %s, which is %s, has a result with the reason %q", p.CallID, now.Status, p.Reason))
	}
	if p.Name != now.Name {
		a.find(RuleResult, e, "the result of call "+p.CallID+" names another tool")
	}
}

// notRun are the reasons of a call that may not run: a question that the end of a
// run or of its time closed is no denial.
func notRun(c loop.Call) []hooks.ResultReason {
	switch {
	case c.Decision == event.DecisionExpired:
		return []hooks.ResultReason{hooks.ReasonExpired}
	case c.Decision == event.DecisionCancelled && c.Asked == event.ApprovalOfOutcome:
		return []hooks.ResultReason{hooks.ReasonOutcomeUnknown}
	case c.Decision == event.DecisionCancelled:
		return []hooks.ResultReason{hooks.ReasonCancelled, hooks.ReasonNotRun, hooks.ReasonLimit}
	}
	return []hooks.ResultReason{hooks.ReasonDenied}
}

func (a *Auditor) answered(e event.Event, p event.ApprovalDecided) {
	q := a.approvals[p.ApprovalID]
	switch {
	case q == nil:
		a.find(RuleApproval, e, "nobody was asked approval "+p.ApprovalID)
		return
	case q.callID != p.CallID || q.runID != e.RunID:
		a.find(RuleApproval, e, "approval "+p.ApprovalID+" is about another call")
	case q.answered:
		a.find(RuleApproval, e, "approval "+p.ApprovalID+" has an answer already")
	case p.ArgumentsSHA256 != q.sum:
		a.find(RuleArguments, e, "approval "+p.ApprovalID+" is answered about other bytes than were shown")
	}
	q.answered = true
	if p.EditedArguments != nil {
		a.bytes(e, p.CallID, *p.EditedArguments, p.EditedSHA256)
	}
	switch p.Decision {
	case event.DecisionCancelled:
	case event.DecisionExpired:
		if !q.expires {
			a.find(RuleApproval, e, "approval "+p.ApprovalID+" has expired, and there was no end to its time")
		}
	default:
		if !loop.MayDecide(q.approvers, e.Actor) {
			a.find(RuleApproval, e, fmt.Sprintf("approval %s is answered by %s, who may not", p.ApprovalID, e.Actor.ID))
		}
	}
}

func (a *Auditor) suspended(before loop.State, e event.Event, p event.RunSuspended) {
	r, _ := before.Run(e.RunID)
	t, _ := r.Turn()
	open := []string{}
	for _, c := range t.Calls {
		if c.Status == loop.CallAwaiting {
			open = append(open, c.ApprovalID)
		}
	}
	if !slices.Equal(open, p.ApprovalIDs) {
		a.find(RuleApproval, e, fmt.Sprintf("the run waits for %d approvals, and %d others are open", len(p.ApprovalIDs), len(open)))
	}
}

// ended: no question about a run is open when it ends. That its calls have
// results is what the tables ask.
func (a *Auditor) ended(after loop.State, e event.Event) {
	r, _ := after.Run(e.RunID)
	for _, t := range r.Turns {
		for _, c := range t.Calls {
			if q := a.approvals[c.ApprovalID]; q != nil && !q.answered {
				a.find(RuleApproval, e, "approval "+c.ApprovalID+" is open, and its run ends")
			}
		}
	}
}

func find(s loop.State, runID, callID string) loop.Call {
	r, _ := s.Run(runID)
	t, _ := r.Turn()
	for _, c := range t.Calls {
		if c.ID == callID {
			return c
		}
	}
	return loop.Call{}
}

// final is what runs.
func final(c loop.Call) string {
	if c.Final != nil {
		return *c.Final
	}
	return c.Arguments
}
