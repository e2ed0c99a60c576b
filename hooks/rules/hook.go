package rules

import (
	"context"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// hook is a rule as a hook of its gate, and of no other.
func (r *rule) hook(now func() time.Time) hooks.Hooks {
	switch r.Gate {
	case hooks.GateBeforeInput:
		return hooks.Hooks{BeforeInput: named(r, now, seeInput, tellInput)}
	case hooks.GateBeforeRunStart:
		return hooks.Hooks{BeforeRunStart: named(r, now, seeRunStart, tellRunStart)}
	case hooks.GateTransformContext:
		return hooks.Hooks{TransformContext: named(r, now, seeContext, tellContext)}
	case hooks.GateBeforeProviderHeaders:
		return hooks.Hooks{BeforeProviderHeaders: named(r, now, seeHeaders, tellHeaders)}
	case hooks.GateBeforeProviderRequest:
		return hooks.Hooks{BeforeProviderRequest: named(r, now, seeRequest, tellRequest)}
	case hooks.GateAfterProviderResponse:
		return hooks.Hooks{AfterProviderResponse: named(r, now, seeResponse, tellResponse)}
	case hooks.GateBeforeToolCall:
		return hooks.Hooks{BeforeToolCall: named(r, now, seeCall, tellCall)}
	case hooks.GateBeforeExecute:
		return hooks.Hooks{BeforeExecute: named(r, now, seeExecute, tellExecute)}
	case hooks.GateAfterToolCall:
		return hooks.Hooks{AfterToolCall: named(r, now, seeOutput, tellOutput)}
	case hooks.GateOnChunk, hooks.GateOnEnd: // no rule is read for them
	}
	return hooks.Hooks{}
}

// named makes the hook: see is the gate's input as rules look at it, tell is
// what they said as the gate's result.
func named[In hooks.Input[In, Out], Out hooks.Result](r *rule, now func() time.Time, see func(In) *vars, tell func(*vars, said) Out) hooks.Func[In, Out] {
	return hooks.Named(r.ID, r.Version, func(ctx context.Context, in In) (Out, error) {
		v := see(in)
		if r.impure {
			v.now = now().UTC()
		}
		out, err := r.decide(ctx, v)
		if err != nil {
			var none Out
			return none, err
		}
		return tell(v, out), nil
	}, r.options()...)
}

func seeInput(in hooks.BeforeInput) *vars {
	return &vars{
		RunRef: hooks.RunRef{TenantID: in.TenantID, SessionID: in.SessionID, Agent: in.Agent}, input: in.InputID, text: in.Text,
	}
}

func tellInput(_ *vars, s said) hooks.BeforeInputResult {
	return hooks.BeforeInputResult{Action: s.action, Reason: s.reason, Annotations: s.annotations, Text: s.text, Reply: s.reply}
}

func seeRunStart(in hooks.BeforeRunStart) *vars {
	return &vars{RunRef: in.RunRef, system: in.System, messages: in.Messages, hidden: in.Hidden, tools: in.Tools}
}

func tellRunStart(_ *vars, s said) hooks.BeforeRunStartResult {
	return hooks.BeforeRunStartResult{
		Action: s.action, Reason: s.reason, Annotations: s.annotations, System: s.system, Append: s.extra, Tools: s.tools,
	}
}

func seeContext(in hooks.TransformContext) *vars {
	return &vars{RunRef: in.RunRef, turn: in.Turn, attempt: in.Attempt, system: in.System, messages: in.Messages}
}

func tellContext(v *vars, s said) hooks.TransformContextResult {
	out := hooks.TransformContextResult{Action: s.action, Reason: s.reason, Annotations: s.annotations, Messages: s.messages}
	if len(s.extra) > 0 {
		messages := append([]hooks.Message{}, v.messages...)
		for _, h := range s.extra {
			m := messageOf(h)
			m.RunID = v.RunID
			messages = append(messages, m)
		}
		out.Messages = &messages
	}
	return out
}

func seeHeaders(in hooks.BeforeProviderHeaders) *vars {
	return &vars{RunRef: in.RunRef, turn: in.Turn, attempt: in.Attempt, model: in.Model, headers: in.Headers}
}

func tellHeaders(_ *vars, s said) hooks.BeforeProviderHeadersResult {
	return hooks.BeforeProviderHeadersResult{Action: s.action, Reason: s.reason, Annotations: s.annotations, Set: s.set, Remove: s.remove}
}

func seeRequest(in hooks.BeforeProviderRequest) *vars {
	return &vars{RunRef: in.RunRef, turn: in.Turn, attempt: in.Attempt, model: in.Model, body: in.Body}
}

func tellRequest(_ *vars, s said) hooks.BeforeProviderRequestResult {
	return hooks.BeforeProviderRequestResult{Action: s.action, Reason: s.reason, Annotations: s.annotations, Body: s.text}
}

func seeResponse(in hooks.AfterProviderResponse) *vars {
	return &vars{RunRef: in.RunRef, turn: in.Turn, attempt: in.Attempt, model: in.Model, status: in.Status, headers: in.Headers}
}

func tellResponse(_ *vars, s said) hooks.AfterProviderResponseResult {
	return hooks.AfterProviderResponseResult{Action: s.action, Reason: s.reason, Annotations: s.annotations}
}

func seeCall(in hooks.BeforeToolCall) *vars {
	return &vars{RunRef: in.RunRef, turn: in.Turn, revision: in.Revision, call: &in.Call}
}

func tellCall(_ *vars, s said) hooks.BeforeToolCallResult {
	return hooks.BeforeToolCallResult{Action: s.action, Reason: s.reason, Annotations: s.annotations, Arguments: s.text}
}

func seeExecute(in hooks.BeforeExecute) *vars {
	return &vars{RunRef: in.RunRef, turn: in.Turn, attempt: in.Attempt, call: &in.Call}
}

func tellExecute(_ *vars, s said) hooks.BeforeExecuteResult {
	return hooks.BeforeExecuteResult{Action: s.action, Reason: s.reason, Annotations: s.annotations}
}

func seeOutput(in hooks.AfterToolCall) *vars {
	return &vars{RunRef: in.RunRef, turn: in.Turn, attempt: in.Attempt, call: &in.Call, output: in.Content, isError: in.IsError}
}

func tellOutput(_ *vars, s said) hooks.AfterToolCallResult {
	return hooks.AfterToolCallResult{Action: s.action, Reason: s.reason, Annotations: s.annotations, Content: s.text, IsError: s.isError}
}
