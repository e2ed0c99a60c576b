package wire

import (
	"github.com/seed-2ca4966b/agentd/hooks"
	v1 "github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
)

// BeforeToolCall is the codec of its gate.
var BeforeToolCall = codec(
	hooks.GateBeforeToolCall, v1.Gate_GATE_BEFORE_TOOL_CALL,
	func(in hooks.BeforeToolCall) *v1.EvaluateRequest {
		return &v1.EvaluateRequest{Input: &v1.EvaluateRequest_BeforeToolCall{BeforeToolCall: &v1.BeforeToolCall{
			Run: run(in.RunRef), Turn: int32(in.Turn), Revision: int32(in.Revision), Call: call(in.Call),
		}}}
	},
	(*v1.EvaluateRequest).GetBeforeToolCall,
	func(in *v1.BeforeToolCall) hooks.BeforeToolCall {
		return hooks.BeforeToolCall{
			RunRef: runOf(in.GetRun()), Turn: int(in.GetTurn()), Revision: int(in.GetRevision()), Call: callOf(in.GetCall()),
		}
	},
	func(out hooks.BeforeToolCallResult) *v1.EvaluateResponse {
		return &v1.EvaluateResponse{
			Verdict: verdict(out.Action, out.Reason, out.Annotations),
			Result:  &v1.EvaluateResponse_BeforeToolCall{BeforeToolCall: &v1.BeforeToolCallResult{Arguments: optional(out.Arguments)}},
		}
	},
	(*v1.EvaluateResponse).GetBeforeToolCall,
	func(v *v1.Verdict, r *v1.BeforeToolCallResult) hooks.BeforeToolCallResult {
		out := hooks.BeforeToolCallResult{Action: actionOf(v.GetAction()), Reason: reasonOf(v), Annotations: v.GetAnnotations()}
		if r != nil {
			out.Arguments = r.Arguments
		}
		return out
	},
)

// BeforeExecute is the codec of its gate.
var BeforeExecute = codec(
	hooks.GateBeforeExecute, v1.Gate_GATE_BEFORE_EXECUTE,
	func(in hooks.BeforeExecute) *v1.EvaluateRequest {
		return &v1.EvaluateRequest{Input: &v1.EvaluateRequest_BeforeExecute{BeforeExecute: &v1.BeforeExecute{
			Run: run(in.RunRef), Turn: int32(in.Turn), Attempt: int32(in.Attempt), Call: call(in.Call),
		}}}
	},
	(*v1.EvaluateRequest).GetBeforeExecute,
	func(in *v1.BeforeExecute) hooks.BeforeExecute {
		return hooks.BeforeExecute{
			RunRef: runOf(in.GetRun()), Turn: int(in.GetTurn()), Attempt: int(in.GetAttempt()), Call: callOf(in.GetCall()),
		}
	},
	func(out hooks.BeforeExecuteResult) *v1.EvaluateResponse {
		return &v1.EvaluateResponse{
			Verdict: verdict(out.Action, out.Reason, out.Annotations),
			Result:  &v1.EvaluateResponse_BeforeExecute{BeforeExecute: &v1.BeforeExecuteResult{}},
		}
	},
	(*v1.EvaluateResponse).GetBeforeExecute,
	func(v *v1.Verdict, _ *v1.BeforeExecuteResult) hooks.BeforeExecuteResult {
		return hooks.BeforeExecuteResult{Action: actionOf(v.GetAction()), Reason: reasonOf(v), Annotations: v.GetAnnotations()}
	},
)

// AfterToolCall is the codec of its gate.
var AfterToolCall = codec(
	hooks.GateAfterToolCall, v1.Gate_GATE_AFTER_TOOL_CALL,
	func(in hooks.AfterToolCall) *v1.EvaluateRequest {
		return &v1.EvaluateRequest{Input: &v1.EvaluateRequest_AfterToolCall{AfterToolCall: &v1.AfterToolCall{
			Run: run(in.RunRef), Turn: int32(in.Turn), Attempt: int32(in.Attempt), Call: call(in.Call),
			Content: Text(in.Content), IsError: in.IsError,
		}}}
	},
	(*v1.EvaluateRequest).GetAfterToolCall,
	func(in *v1.AfterToolCall) hooks.AfterToolCall {
		return hooks.AfterToolCall{
			RunRef: runOf(in.GetRun()), Turn: int(in.GetTurn()), Attempt: int(in.GetAttempt()), Call: callOf(in.GetCall()),
			Content: in.GetContent(), IsError: in.GetIsError(),
		}
	},
	func(out hooks.AfterToolCallResult) *v1.EvaluateResponse {
		return &v1.EvaluateResponse{
			Verdict: verdict(out.Action, out.Reason, out.Annotations),
			Result: &v1.EvaluateResponse_AfterToolCall{
				AfterToolCall: &v1.AfterToolCallResult{Content: optional(out.Content), IsError: out.IsError},
			},
		}
	},
	(*v1.EvaluateResponse).GetAfterToolCall,
	func(v *v1.Verdict, r *v1.AfterToolCallResult) hooks.AfterToolCallResult {
		out := hooks.AfterToolCallResult{Action: actionOf(v.GetAction()), Reason: reasonOf(v), Annotations: v.GetAnnotations()}
		if r != nil {
			out.Content, out.IsError = r.Content, r.IsError
		}
		return out
	},
)
