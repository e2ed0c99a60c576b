package loop

import (
	"context"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// clearance is a call that every gate let through: the only thing that
// [runner.runTools] runs, and made nowhere but in [runner.clear].
type clearance struct {
	call  Call
	tool  Tool
	agent string
}

// passTools takes each call as far as it goes, in call order.
func (r *runner) passTools(ctx context.Context, d *draft, st *step, agent Agent) error {
	before := *d
	t, _ := d.run().Turn()
	if agent.OnUnknown == UnknownFail {
		if c, ok := t.unknown(agent); ok {
			*st = r.unknownEnds(d, c)
			return nil
		}
	}
	for _, c := range t.Calls {
		over, err := r.passCall(ctx, d, agent, t, c)
		if err != nil {
			return err
		}
		if over != nil {
			*d = before
			r.cleared = nil
			*st = r.terminated(ctx, d, c, *over)
			return nil
		}
	}
	t, _ = d.run().Turn()
	switch {
	case len(r.cleared) > 0:
		st.act = actRunTools
	case t.has(CallAwaiting):
		ids := []string{}
		for _, c := range t.Calls {
			if c.Status == CallAwaiting {
				ids = append(ids, c.ApprovalID)
			}
		}
		d.add(event.RunSuspended{Reason: "approval", ApprovalIDs: ids})
		st.act = actEnd
	}
	return nil
}

// passCall returns the ruling that ends the run, if there is one.
func (r *runner) passCall(ctx context.Context, d *draft, agent Agent, t Turn, c Call) (over *ruling[hooks.BeforeToolCall], err error) {
	switch c.Status {
	case CallProposed, CallEdited:
		return r.passProposed(ctx, d, agent, t, c)
	case CallApproved:
		tool, ok := agent.tool(c.Name)
		if !ok {
			d.add(r.refused(d, nil, false, c))
			return nil, nil
		}
		if agent.permission(c.Name) == PermissionDeny {
			// Since it was asked about, the agent lost the permission.
			r.forbid(d, c)
			return nil, nil
		}
		if agent.Limits.full(d.run(), c) {
			d.add(agent.Limits.tooMany(r.engine.NewID, c))
			return nil, nil
		}
		return nil, r.clear(ctx, d, t, c, tool, c.final(), nil)
	case CallStarted, CallExecuted:
		// Taken up again after an interruption.
		if tool, ok := agent.tool(c.Name); ok && tool.Spec().Idempotent {
			if agent.permission(c.Name) == PermissionDeny {
				r.forbid(d, c)
				return nil, nil
			}
			return nil, r.clear(ctx, d, t, c, tool, c.final(), nil)
		}
		if c.Status == CallStarted && agent.OnUnknown == UnknownAsk && !agent.Unattended {
			d.add(askOutcome(r.engine.NewID(), agent, c))
			return nil, nil
		}
		d.add(closedResult(r.engine.NewID, c))
	case CallDenied, CallConfirmed, CallBlocked:
		d.add(closedResult(r.engine.NewID, c))
	case CallNone, CallAwaiting, CallDone:
	}
	return nil, nil
}

// passProposed is the order of the checks: lookup, arguments, permission,
// BeforeToolCall, approval. Arguments that a person gave pass them all again,
// at a position of their own.
func (r *runner) passProposed(ctx context.Context, d *draft, agent Agent, t Turn, c Call) (*ruling[hooks.BeforeToolCall], error) {
	tool, ok := agent.tool(c.Name)
	if ok && !hasTool(d.run().tools(agent), c.Name) {
		ok = false
	}
	if !ok || validate(tool, c) != nil {
		d.add(r.refused(d, tool, ok, c))
		return nil, nil
	}
	mode := agent.permission(c.Name)
	if mode == PermissionDeny {
		r.forbid(d, c)
		return nil, nil
	}
	if agent.Limits.full(d.run(), c) {
		d.add(agent.Limits.tooMany(r.engine.NewID, c))
		return nil, nil
	}
	in := hooks.BeforeToolCall{RunRef: r.ref(), Turn: t.No, Revision: 1 + c.Edits, Call: c.ToolCall}
	in.Call.Arguments = c.final()
	said, err := askOnce(ctx, r, r.asks.Hooks.BeforeToolCall, r.position(hooks.GateBeforeToolCall, t.No, c.ID, in.Revision), in,
		func(in hooks.BeforeToolCall) error { return fits(tool, in.Call.Arguments) })
	if err != nil {
		return nil, err
	}
	v := said.verdict
	if v.Action == hooks.ActionTerminate {
		return &said, nil
	}
	r.narrow(d, v.Narrowed)
	switch {
	case v.Action == hooks.ActionBlock:
		r.block(d, c, string(hooks.GateBeforeToolCall), v.Reason)
		d.decide(said.decisions)
	case asks(c, v, mode):
		r.askPeople(d, agent, c, v)
		d.decide(said.decisions)
	default:
		return nil, r.clear(ctx, d, t, c, tool, v.Value.Call.Arguments, said.decisions)
	}
	return nil, nil
}

// asks reports whether people have to be asked about c. What they gave
// themselves, to the byte, has their yes.
func asks(c Call, v hooks.Verdict[hooks.BeforeToolCall], mode PermissionMode) bool {
	if c.Status == CallEdited {
		return v.Value.Call.Arguments != c.final()
	}
	return v.Action == hooks.ActionAsk || mode == PermissionAsk
}

// askPeople asks about c as the hooks have left it, or blocks it if there is
// nobody to ask.
func (r *runner) askPeople(d *draft, agent Agent, c Call, v hooks.Verdict[hooks.BeforeToolCall]) {
	by := "permission"
	if v.Action == hooks.ActionAsk || c.Status == CallEdited {
		by = string(hooks.GateBeforeToolCall)
	}
	if agent.Unattended {
		r.block(d, c, by, hooks.Reason{Code: "no_approver", Text: "It needs a person's yes, and this agent has nobody to ask."})
		return
	}
	text, sanitized := event.CleanText(v.Reason.Text)
	p := event.ApprovalRequested{
		ApprovalID: r.engine.NewID(), CallID: c.ID, Name: c.Name, Arguments: v.Value.Call.Arguments,
		ArgumentsSHA256: digest(v.Value.Call.Arguments), By: by, Reason: event.Shorten(text, 2000), Sanitized: sanitized,
		Approvers: agent.Approvers,
	}
	if agent.ApprovalTimeout > 0 {
		p.TimeoutMS = max(1, agent.ApprovalTimeout.Milliseconds())
	}
	if c.Status == CallEdited {
		given := c.final()
		p.ChangedFrom = &given
	}
	d.add(p)
}

// clear asks BeforeExecute about the exact bytes that are about to run, and
// starts the call. earlier are decisions that are not drafted yet.
func (r *runner) clear(ctx context.Context, d *draft, t Turn, c Call, tool Tool, arguments string, earlier []hooks.Decision) error {
	in := hooks.BeforeExecute{RunRef: r.ref(), Turn: t.No, Attempt: c.Attempt + 1, Call: c.ToolCall}
	in.Call.Arguments = arguments
	said, err := askOnce(ctx, r, r.asks.Hooks.BeforeExecute, r.position(hooks.GateBeforeExecute, t.No, c.ID, c.Attempt+1), in, nil)
	if err != nil {
		return err
	}
	r.narrow(d, said.verdict.Narrowed)
	if said.verdict.Action == hooks.ActionBlock {
		r.block(d, c, string(hooks.GateBeforeExecute), said.verdict.Reason)
	} else {
		start := event.ToolStarted{CallID: c.ID, Attempt: c.Attempt + 1, ArgumentsSHA256: digest(arguments)}
		if arguments != c.Arguments {
			start.Arguments = &arguments
		}
		d.add(start)
	}
	d.decide(append(earlier, said.decisions...))
	if said.verdict.Action != hooks.ActionBlock {
		c.Attempt++
		c.Arguments = arguments
		r.cleared = append(r.cleared, clearance{call: c, tool: tool, agent: d.run().Agent})
	}
	return nil
}

// forbid blocks a call of a tool that the agent may not use.
func (r *runner) forbid(d *draft, c Call) {
	r.block(d, c, "permission", hooks.Reason{Code: "permission_denied", Text: "The agent may not use this tool."})
}

// block refuses a call, with a result that tells the model why.
func (r *runner) block(d *draft, c Call, by string, reason hooks.Reason) {
	text, sanitized := event.CleanText(reason.Text)
	text = event.Shorten(text, 2000)
	d.add(event.ToolBlocked{CallID: c.ID, By: by, ReasonCode: reason.Code, Reason: text, Sanitized: sanitized})
	content := "This call was blocked and not run"
	if c.Attempt > 0 {
		content = "This call was started before, may have taken effect, and was blocked before it was run again"
	}
	if text == "" {
		content += "."
	} else {
		content += ": " + text
	}
	d.add(event.ToolResult{
		CallID: c.ID, MessageID: r.engine.NewID(), Name: c.Name, Content: c.noted(content), IsError: true,
		Reason: hooks.ReasonBlocked, Sanitized: sanitized,
	})
}

// finishTerminated is the reason of a run that a hook ended.
const finishTerminated = "terminated_by_hook"

// terminated ends the run: the call that a hook stopped it at gets a failed
// result, its siblings are not run. What other hooks had said of them led to
// nothing.
func (r *runner) terminated(ctx context.Context, d *draft, at Call, over ruling[hooks.BeforeToolCall]) step {
	t, _ := d.run().Turn()
	for _, c := range t.Calls {
		switch {
		case c.ID == at.ID:
			r.block(d, c, string(hooks.GateBeforeToolCall), over.verdict.Reason)
			continue
		case c.Status == CallAwaiting:
			d.add(event.ApprovalDecided{
				ApprovalID: c.ApprovalID, CallID: c.ID, Decision: event.DecisionCancelled, ArgumentsSHA256: digest(c.final()), Reason: finishTerminated,
			})
		}
		if c.Status != CallDone {
			res := closedResult(r.engine.NewID, c)
			if res.Reason == hooks.ReasonCancelled {
				res.Reason, res.Content = hooks.ReasonNotRun, textEndedFirst
			}
			d.add(res)
		}
	}
	r.endTurns(ctx, d.run(), []event.Payload{event.TurnCompleted{}})
	d.add(event.TurnCompleted{})
	d.end(append(void(r.asked[:len(r.asked)-len(over.decisions)]), over.decisions...), event.RunCompleted{Reason: finishTerminated})
	return step{act: actEnd}
}

// review asks AfterToolCall about an output whose execution is durable, or a
// fact.
func (r *runner) review(ctx context.Context, c Call, out *event.ToolResult) error {
	t, _ := r.run().Turn()
	in := hooks.AfterToolCall{RunRef: r.ref(), Turn: t.No, Attempt: c.Attempt, Call: c.ToolCall, Content: out.Content, IsError: out.IsError}
	said, err := askOnce(ctx, r, r.asks.Hooks.AfterToolCall, r.position(hooks.GateAfterToolCall, t.No, c.ID, c.Attempt), in, nil)
	if err != nil {
		return err
	}
	v := said.verdict
	content, sanitized := event.CleanText(v.Value.Content)
	out.Content, out.Sanitized = event.Shorten(content, maxOutput), out.Sanitized || sanitized
	if v.Action == hooks.ActionWithhold {
		out.Reason = hooks.ReasonWithheld
	} else if v.Value.IsError != out.IsError {
		out.IsError = v.Value.IsError
		out.Reason = ""
		if out.IsError {
			out.Reason = hooks.ReasonToolError
		}
	}
	for _, n := range v.Narrowed {
		if p, changes := r.left(r.run(), n.Tools); changes {
			p.By, p.DecisionID = n.HookID, n.DecisionID
			r.facts = append(r.facts, p)
		}
	}
	r.rulings = append(r.rulings, said.decisions...)
	return nil
}

func hasTool(tools []Tool, name string) bool {
	for _, t := range tools {
		if t.Spec().Name == name {
			return true
		}
	}
	return false
}
