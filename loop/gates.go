package loop

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// ruling is what a gate came to at one position.
type ruling[In any] struct {
	verdict   hooks.Verdict[In]
	decisions []hooks.Decision
}

// askOnce asks the hooks of a gate, or remembers what they said: a step that
// is planned again after a conflict asks nobody twice.
func askOnce[In hooks.Input[In, Out], Out hooks.Result](
	ctx context.Context, r *runner, f hooks.Func[In, Out], p hooks.Position, in In, check func(In) error,
) (ruling[In], error) {
	if said, ok := r.said[p].(ruling[In]); ok {
		return said, nil
	}
	v, decisions, err := hooks.Ask(ctx, r.engine.Asker, f, p, in, check)
	if err != nil {
		return ruling[In]{}, err
	}
	said := ruling[In]{v, decisions}
	if f != nil {
		r.said[p] = said
		if p.Gate != hooks.GateAfterToolCall {
			r.asked = append(r.asked, decisions...)
		}
	}
	return said, nil
}

// position is where a gate stands in the run.
func (r *runner) position(gate hooks.Gate, turn int, subject string, attempt int) hooks.Position {
	return hooks.Position{
		TenantID: r.job.TenantID, SessionID: r.job.SessionID, RunID: r.job.RunID,
		Turn: turn, Gate: gate, Subject: subject, Attempt: attempt,
	}
}

// pass asks the gates of a step and drafts what they let through. It changes
// the step to what is left to do.
func (r *runner) pass(ctx context.Context, d *draft, st *step, agent Agent) error {
	r.cleared, r.pending = nil, nil
	switch st.gates {
	case gatesRun:
		if ended, err := r.passRun(ctx, d, st, agent); err != nil || ended {
			return err
		}
		return r.passModel(ctx, d, st, agent)
	case gatesModel:
		return r.passModel(ctx, d, st, agent)
	case gatesTools:
		return r.passTools(ctx, d, st, agent)
	case gatesNone:
		last := len(st.write) - 1
		if last < 0 || st.act != actEnd || st.release {
			d.add(st.write...)
			return nil
		}
		d.add(st.write[:last]...)
		// What was asked for a step that will never be taken.
		d.end(void(r.asked), st.write[last])
	}
	return nil
}

// void are decisions that led to nothing because something came between.
func void(decisions []hooks.Decision) []hooks.Decision {
	out := slices.Clone(decisions)
	for i := range out {
		out[i].Effective = false
	}
	return out
}

// passRun asks BeforeRunStart, once per run: whatever follows is in the same
// append as the answer.
func (r *runner) passRun(ctx context.Context, d *draft, st *step, agent Agent) (ended bool, err error) {
	said := ruling[hooks.BeforeRunStart]{verdict: hooks.Verdict[hooks.BeforeRunStart]{Action: hooks.ActionContinue}}
	if r.engine.Hooks.BeforeRunStart != nil {
		if said, err = r.askRun(ctx, d, agent); err != nil {
			return false, err
		}
	}
	if v := said.verdict; v.Action == hooks.ActionBlock {
		*st = r.blocked(d, v.Reason, said.decisions)
		return true, nil
	}
	if r.prep != nil {
		d.add(*r.prep)
	}
	if h := r.engine.Hooks.OnRunStart; h != nil && !r.begun {
		r.begun = true
		r.notify("OnRunStart", func() { h(ctx, hooks.RunStart{RunRef: r.ref()}) })
	}
	r.pending = said.decisions
	return false, nil
}

// askRun leaves in r.prep what the hooks changed.
func (r *runner) askRun(ctx context.Context, d *draft, agent Agent) (ruling[hooks.BeforeRunStart], error) {
	in := hooks.BeforeRunStart{RunRef: r.ref(), System: agent.System, Messages: history(d.state.Messages), Tools: []string{}}
	for _, t := range agent.Tools {
		in.Tools = append(in.Tools, t.Spec().Name)
	}
	said, err := askOnce(ctx, r, r.engine.Hooks.BeforeRunStart, r.position(hooks.GateBeforeRunStart, 0, r.job.RunID, 1), in, nil)
	if err == nil && len(said.verdict.Changed) > 0 && r.prep == nil {
		p := r.prepared(in, said.verdict.Value)
		r.prep = &p
	}
	return said, err
}

func (r *runner) prepared(in, out hooks.BeforeRunStart) event.RunPrepared {
	var p event.RunPrepared
	if out.System != in.System {
		p.System = &out.System
	}
	for _, m := range out.Hidden {
		p.Messages = append(p.Messages, event.PreparedMessage{MessageID: r.engine.NewID(), Role: m.Role, Text: m.Text})
	}
	if len(out.Tools) != len(in.Tools) {
		p.Tools = &out.Tools
	}
	return p
}

// blocked ends the run because a gate of it or of its model call said no.
func (r *runner) blocked(d *draft, reason hooks.Reason, decisions []hooks.Decision) step {
	d.end(decisions, blockedRun(reason))
	return step{act: actEnd}
}

func blockedRun(reason hooks.Reason) event.RunFailed {
	text, sanitized := event.CleanText(reason.Text)
	if text == "" {
		text = "a check refused the run"
	}
	return event.RunFailed{Reason: event.FailBlocked, Error: event.Shorten(text, 2000), Sanitized: sanitized}
}

// passModel asks TransformContext and completes the request.
func (r *runner) passModel(ctx context.Context, d *draft, st *step, agent Agent) error {
	request := len(st.write) - 1
	d.add(st.write[:request]...)
	req, _ := st.write[request].(event.ModelRequested)
	t, _ := d.run().Turn()
	system, messages := modelContext(agent, d.state, d.run())
	in := hooks.TransformContext{RunRef: r.ref(), Turn: t.No, Attempt: req.Attempt, System: system, Messages: messages}
	said, err := askOnce(ctx, r, r.engine.Hooks.TransformContext,
		r.position(hooks.GateTransformContext, t.No, strconv.Itoa(t.No), req.Attempt), in,
		func(in hooks.TransformContext) error { return checkHistory(in.Messages) })
	if err != nil {
		return err
	}
	decisions := slices.Concat(r.pending, said.decisions)
	r.pending = nil
	if v := said.verdict; v.Action == hooks.ActionBlock {
		*st = r.blocked(d, v.Reason, decisions)
		return nil
	}
	r.context = modelCall{system: system, messages: said.verdict.Value.Messages, tools: d.run().tools(agent)}
	more, blocked, err := r.passProvider(ctx, agent, t.No, req.Attempt)
	if err != nil {
		return err
	}
	decisions = append(decisions, more...)
	if blocked != nil {
		*st = r.blocked(d, *blocked, decisions)
		return nil
	}
	req.MessageIDs = []string{}
	for _, m := range r.context.messages {
		req.MessageIDs = append(req.MessageIDs, m.ID)
	}
	if len(said.verdict.Changed) > 0 {
		req.Messages = r.context.messages
	}
	for _, tool := range r.context.tools {
		req.Tools = append(req.Tools, tool.Spec().Name)
	}
	d.add(req)
	d.decide(decisions)
	return nil
}

// modelCall is what the gates made of a model call.
type modelCall struct {
	system   string
	messages []hooks.Message
	tools    []Tool
	// provider is the HTTP request as the provider gates left it; nil if no
	// gate was asked. broken is why there is none.
	provider *ProviderRequest
	broken   error
}

// clearance is a call that every gate let through: the only thing that
// [runner.runTools] runs, and made nowhere but in [runner.clear].
type clearance struct {
	call Call
	tool Tool
}

// passTools takes each call as far as it goes, in call order.
func (r *runner) passTools(ctx context.Context, d *draft, st *step, agent Agent) error {
	before := *d
	t, _ := d.run().Turn()
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
	case CallProposed:
		return r.passProposed(ctx, d, agent, t, c)
	case CallApproved:
		tool, ok := agent.tool(c.Name)
		if !ok {
			d.add(r.refused(nil, false, c))
			return nil, nil
		}
		return nil, r.clear(ctx, d, t, c, tool, c.final(), nil)
	case CallStarted, CallExecuted:
		// Taken up again after an interruption.
		if tool, ok := agent.tool(c.Name); ok && tool.Spec().Idempotent {
			return nil, r.clear(ctx, d, t, c, tool, c.final(), nil)
		}
		d.add(closedResult(r.engine.NewID, c))
	case CallDenied, CallBlocked:
		d.add(closedResult(r.engine.NewID, c))
	case CallNone, CallAwaiting, CallDone:
	}
	return nil, nil
}

// passProposed is the order of the checks: lookup, arguments, permission,
// BeforeToolCall, approval.
func (r *runner) passProposed(ctx context.Context, d *draft, agent Agent, t Turn, c Call) (*ruling[hooks.BeforeToolCall], error) {
	tool, ok := agent.tool(c.Name)
	if ok && !hasTool(d.run().tools(agent), c.Name) {
		ok = false
	}
	if !ok || validate(tool, c) != nil {
		d.add(r.refused(tool, ok, c))
		return nil, nil
	}
	mode := agent.permission(c.Name)
	if mode == PermissionDeny {
		r.block(d, c, "permission", hooks.Reason{Code: "permission_denied", Text: "The agent may not use this tool."})
		return nil, nil
	}
	in := hooks.BeforeToolCall{RunRef: r.ref(), Turn: t.No, Revision: 1, Call: c.ToolCall}
	said, err := askOnce(ctx, r, r.engine.Hooks.BeforeToolCall, r.position(hooks.GateBeforeToolCall, t.No, c.ID, 1), in,
		func(in hooks.BeforeToolCall) error { return tool.Validate(json.RawMessage(in.Call.Arguments)) })
	if err != nil {
		return nil, err
	}
	v := said.verdict
	switch {
	case v.Action == hooks.ActionTerminate:
		return &said, nil
	case v.Action == hooks.ActionBlock:
		r.block(d, c, string(hooks.GateBeforeToolCall), v.Reason)
		d.decide(said.decisions)
	case v.Action == hooks.ActionAsk, mode == PermissionAsk:
		by := "permission"
		if v.Action == hooks.ActionAsk {
			by = string(hooks.GateBeforeToolCall)
		}
		if agent.Unattended {
			r.block(d, c, by, hooks.Reason{Code: "no_approver", Text: "It needs a person's yes, and this agent has nobody to ask."})
			d.decide(said.decisions)
			return nil, nil
		}
		text, sanitized := event.CleanText(v.Reason.Text)
		d.add(event.ApprovalRequested{
			ApprovalID: r.engine.NewID(), CallID: c.ID, Name: c.Name, Arguments: v.Value.Call.Arguments,
			ArgumentsSHA256: digest(v.Value.Call.Arguments), By: by, Reason: event.Shorten(text, 2000), Sanitized: sanitized,
		})
		d.decide(said.decisions)
	default:
		return nil, r.clear(ctx, d, t, c, tool, v.Value.Call.Arguments, said.decisions)
	}
	return nil, nil
}

// clear asks BeforeExecute about the exact bytes that are about to run, and
// starts the call. earlier are decisions that are not drafted yet.
func (r *runner) clear(ctx context.Context, d *draft, t Turn, c Call, tool Tool, arguments string, earlier []hooks.Decision) error {
	in := hooks.BeforeExecute{RunRef: r.ref(), Turn: t.No, Attempt: c.Attempt + 1, Call: c.ToolCall}
	in.Call.Arguments = arguments
	said, err := askOnce(ctx, r, r.engine.Hooks.BeforeExecute, r.position(hooks.GateBeforeExecute, t.No, c.ID, c.Attempt+1), in, nil)
	if err != nil {
		return err
	}
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
		r.cleared = append(r.cleared, clearance{call: c, tool: tool})
	}
	return nil
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
		CallID: c.ID, MessageID: r.engine.NewID(), Name: c.Name, Content: content, IsError: true,
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
				res.Reason, res.Content = hooks.ReasonNotRun, "This call was not run: the run ended first."
			}
			d.add(res)
		}
	}
	r.endTurns(ctx, []event.Payload{event.TurnCompleted{}})
	d.add(event.TurnCompleted{})
	d.end(append(void(r.asked[:len(r.asked)-len(over.decisions)]), over.decisions...), event.RunCompleted{Reason: finishTerminated})
	return step{act: actEnd}
}

// review asks AfterToolCall about an output whose execution is durable.
func (r *runner) review(ctx context.Context, c Call, out *event.ToolResult) error {
	t, _ := r.run().Turn()
	in := hooks.AfterToolCall{RunRef: r.ref(), Turn: t.No, Attempt: c.Attempt, Call: c.ToolCall, Content: out.Content, IsError: out.IsError}
	said, err := askOnce(ctx, r, r.engine.Hooks.AfterToolCall, r.position(hooks.GateAfterToolCall, t.No, c.ID, c.Attempt), in, nil)
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
