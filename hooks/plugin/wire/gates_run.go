package wire

import (
	"github.com/seed-2ca4966b/agentd/hooks"
	v1 "github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
)

// BeforeInput is the codec of its gate.
var BeforeInput = codec(
	hooks.GateBeforeInput, v1.Gate_GATE_BEFORE_INPUT,
	func(in hooks.BeforeInput) *v1.EvaluateRequest {
		return &v1.EvaluateRequest{Input: &v1.EvaluateRequest_BeforeInput{BeforeInput: &v1.BeforeInput{
			TenantId: Text(in.TenantID), SessionId: Text(in.SessionID), InputId: Text(in.InputID), Agent: Text(in.Agent), Text: Text(in.Text),
		}}}
	},
	(*v1.EvaluateRequest).GetBeforeInput,
	func(in *v1.BeforeInput) hooks.BeforeInput {
		return hooks.BeforeInput{
			TenantID: in.GetTenantId(), SessionID: in.GetSessionId(), InputID: in.GetInputId(), Agent: in.GetAgent(), Text: in.GetText(),
		}
	},
	func(out hooks.BeforeInputResult) *v1.EvaluateResponse {
		return &v1.EvaluateResponse{
			Verdict: verdict(out.Action, out.Reason, out.Annotations),
			Result:  &v1.EvaluateResponse_BeforeInput{BeforeInput: &v1.BeforeInputResult{Text: optional(out.Text), Reply: Text(out.Reply)}},
		}
	},
	(*v1.EvaluateResponse).GetBeforeInput,
	func(v *v1.Verdict, r *v1.BeforeInputResult) hooks.BeforeInputResult {
		out := hooks.BeforeInputResult{Action: actionOf(v.GetAction()), Reason: reasonOf(v), Annotations: v.GetAnnotations(), Reply: r.GetReply()}
		if r != nil {
			out.Text = r.Text
		}
		return out
	},
)

// BeforeRunStart is the codec of its gate.
var BeforeRunStart = codec(
	hooks.GateBeforeRunStart, v1.Gate_GATE_BEFORE_RUN_START,
	func(in hooks.BeforeRunStart) *v1.EvaluateRequest {
		return &v1.EvaluateRequest{Input: &v1.EvaluateRequest_BeforeRunStart{BeforeRunStart: &v1.BeforeRunStart{
			Run: run(in.RunRef), System: Text(in.System), Messages: each(in.Messages, message),
			Hidden: each(in.Hidden, hiddenMessage), Tools: texts(in.Tools),
		}}}
	},
	(*v1.EvaluateRequest).GetBeforeRunStart,
	func(in *v1.BeforeRunStart) hooks.BeforeRunStart {
		return hooks.BeforeRunStart{
			RunRef: runOf(in.GetRun()), System: in.GetSystem(), Messages: each(in.GetMessages(), messageOf),
			Hidden: each(in.GetHidden(), hiddenMessageOf), Tools: in.GetTools(),
		}
	},
	func(out hooks.BeforeRunStartResult) *v1.EvaluateResponse {
		r := &v1.BeforeRunStartResult{System: optional(out.System), Append: each(out.Append, hiddenMessage)}
		if out.Tools != nil {
			r.Tools = &v1.Names{Names: texts(*out.Tools)}
		}
		return &v1.EvaluateResponse{
			Verdict: verdict(out.Action, out.Reason, out.Annotations), Result: &v1.EvaluateResponse_BeforeRunStart{BeforeRunStart: r},
		}
	},
	(*v1.EvaluateResponse).GetBeforeRunStart,
	func(v *v1.Verdict, r *v1.BeforeRunStartResult) hooks.BeforeRunStartResult {
		out := hooks.BeforeRunStartResult{
			Action: actionOf(v.GetAction()), Reason: reasonOf(v), Annotations: v.GetAnnotations(), Append: each(r.GetAppend(), hiddenMessageOf),
		}
		if r != nil {
			out.System = r.System
		}
		if r.GetTools() != nil {
			names := append([]string{}, r.GetTools().GetNames()...)
			out.Tools = &names
		}
		return out
	},
)

// TransformContext is the codec of its gate.
var TransformContext = codec(
	hooks.GateTransformContext, v1.Gate_GATE_TRANSFORM_CONTEXT,
	func(in hooks.TransformContext) *v1.EvaluateRequest {
		return &v1.EvaluateRequest{Input: &v1.EvaluateRequest_TransformContext{TransformContext: &v1.TransformContext{
			Run: run(in.RunRef), Turn: int32(in.Turn), Attempt: int32(in.Attempt), System: Text(in.System), Messages: each(in.Messages, message),
		}}}
	},
	(*v1.EvaluateRequest).GetTransformContext,
	func(in *v1.TransformContext) hooks.TransformContext {
		return hooks.TransformContext{
			RunRef: runOf(in.GetRun()), Turn: int(in.GetTurn()), Attempt: int(in.GetAttempt()), System: in.GetSystem(),
			Messages: each(in.GetMessages(), messageOf),
		}
	},
	func(out hooks.TransformContextResult) *v1.EvaluateResponse {
		r := &v1.TransformContextResult{}
		if out.Messages != nil {
			r.Messages = &v1.Messages{Messages: each(*out.Messages, message)}
		}
		return &v1.EvaluateResponse{
			Verdict: verdict(out.Action, out.Reason, out.Annotations), Result: &v1.EvaluateResponse_TransformContext{TransformContext: r},
		}
	},
	(*v1.EvaluateResponse).GetTransformContext,
	func(v *v1.Verdict, r *v1.TransformContextResult) hooks.TransformContextResult {
		out := hooks.TransformContextResult{Action: actionOf(v.GetAction()), Reason: reasonOf(v), Annotations: v.GetAnnotations()}
		if r.GetMessages() != nil {
			all := append([]hooks.Message{}, each(r.GetMessages().GetMessages(), messageOf)...)
			out.Messages = &all
		}
		return out
	},
)
