package loop

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// position is where a gate stands in the run.
func (r *runner) position(gate hooks.Gate, turn int, subject string, attempt int) hooks.Position {
	return hooks.Position{
		TenantID: r.job.TenantID, SessionID: r.job.SessionID, RunID: r.job.RunID,
		Turn: turn, Gate: gate, Subject: subject, Attempt: attempt,
	}
}

// callOf is the subject of the gates of a turn's model calls. A run that is
// taken up again asks at other positions: it may have failed between asking and
// acting, and then what was asked is decided and void.
func (r *runner) callOf(turn int) string {
	subject := strconv.Itoa(turn)
	if n := r.run().Retries; n > 0 {
		subject += "/" + strconv.Itoa(n)
	}
	return subject
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
			d.decide(r.cut)
			return nil
		}
		d.add(st.write[:last]...)
		// What was asked for a step that will never be taken.
		d.end(slices.Concat(r.cut, void(r.asked)), st.write[last])
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
	if r.asks.Hooks.BeforeRunStart != nil {
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
	r.narrow(d, said.verdict.Narrowed)
	if h := r.asks.Hooks.OnRunStart; h != nil && !r.begun {
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
	said, err := askOnce(ctx, r, r.asks.Hooks.BeforeRunStart, r.position(hooks.GateBeforeRunStart, 0, r.job.RunID, 1+r.run().Retries), in, nil)
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
	agent, _ = agent.answering(d.run())
	system, messages := modelContext(agent, d.state, d.run())
	in := hooks.TransformContext{RunRef: r.ref(), Turn: t.No, Attempt: req.Attempt, System: system, Messages: messages}
	p := r.position(hooks.GateTransformContext, t.No, r.callOf(t.No), req.Attempt)
	said, err := askOnce(ctx, r, r.asks.Hooks.TransformContext, p, in,
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
	if r.asksRequest(agent) {
		// What hooks are asked about is what is sent, also when the step is
		// planned again and the conversation has gone on.
		r.said[p] = said
	}
	r.context = modelCall{system: system, messages: said.verdict.Value.Messages, tools: present(d.run().tools(agent))}
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
	r.narrow(d, said.verdict.Narrowed)
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
	// values has those of the headers that hooks have set; nil for none.
	values *strings.Replacer
}
