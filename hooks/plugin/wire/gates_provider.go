package wire

import (
	"github.com/seed-2ca4966b/agentd/hooks"
	v1 "github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
)

// BeforeProviderHeaders is the codec of its gate.
var BeforeProviderHeaders = codec(
	hooks.GateBeforeProviderHeaders, v1.Gate_GATE_BEFORE_PROVIDER_HEADERS,
	func(in hooks.BeforeProviderHeaders) *v1.EvaluateRequest {
		return &v1.EvaluateRequest{Input: &v1.EvaluateRequest_BeforeProviderHeaders{BeforeProviderHeaders: &v1.BeforeProviderHeaders{
			Run: run(in.RunRef), Turn: int32(in.Turn), Attempt: int32(in.Attempt), Model: Text(in.Model), Headers: each(in.Headers, header),
		}}}
	},
	(*v1.EvaluateRequest).GetBeforeProviderHeaders,
	func(in *v1.BeforeProviderHeaders) hooks.BeforeProviderHeaders {
		return hooks.BeforeProviderHeaders{
			RunRef: runOf(in.GetRun()), Turn: int(in.GetTurn()), Attempt: int(in.GetAttempt()), Model: in.GetModel(),
			Headers: each(in.GetHeaders(), headerOf),
		}
	},
	func(out hooks.BeforeProviderHeadersResult) *v1.EvaluateResponse {
		return &v1.EvaluateResponse{
			Verdict: verdict(out.Action, out.Reason, out.Annotations),
			Result: &v1.EvaluateResponse_BeforeProviderHeaders{BeforeProviderHeaders: &v1.BeforeProviderHeadersResult{
				Set: each(out.Set, header), Remove: texts(out.Remove),
			}},
		}
	},
	(*v1.EvaluateResponse).GetBeforeProviderHeaders,
	func(v *v1.Verdict, r *v1.BeforeProviderHeadersResult) hooks.BeforeProviderHeadersResult {
		return hooks.BeforeProviderHeadersResult{
			Action: actionOf(v.GetAction()), Reason: reasonOf(v), Annotations: v.GetAnnotations(),
			Set: each(r.GetSet(), headerOf), Remove: r.GetRemove(),
		}
	},
)

// BeforeProviderRequest is the codec of its gate.
var BeforeProviderRequest = codec(
	hooks.GateBeforeProviderRequest, v1.Gate_GATE_BEFORE_PROVIDER_REQUEST,
	func(in hooks.BeforeProviderRequest) *v1.EvaluateRequest {
		return &v1.EvaluateRequest{Input: &v1.EvaluateRequest_BeforeProviderRequest{BeforeProviderRequest: &v1.BeforeProviderRequest{
			Run: run(in.RunRef), Turn: int32(in.Turn), Attempt: int32(in.Attempt), Model: Text(in.Model), Body: Text(in.Body),
		}}}
	},
	(*v1.EvaluateRequest).GetBeforeProviderRequest,
	func(in *v1.BeforeProviderRequest) hooks.BeforeProviderRequest {
		return hooks.BeforeProviderRequest{
			RunRef: runOf(in.GetRun()), Turn: int(in.GetTurn()), Attempt: int(in.GetAttempt()), Model: in.GetModel(), Body: in.GetBody(),
		}
	},
	func(out hooks.BeforeProviderRequestResult) *v1.EvaluateResponse {
		return &v1.EvaluateResponse{
			Verdict: verdict(out.Action, out.Reason, out.Annotations),
			Result: &v1.EvaluateResponse_BeforeProviderRequest{
				BeforeProviderRequest: &v1.BeforeProviderRequestResult{Body: optional(out.Body)},
			},
		}
	},
	(*v1.EvaluateResponse).GetBeforeProviderRequest,
	func(v *v1.Verdict, r *v1.BeforeProviderRequestResult) hooks.BeforeProviderRequestResult {
		out := hooks.BeforeProviderRequestResult{Action: actionOf(v.GetAction()), Reason: reasonOf(v), Annotations: v.GetAnnotations()}
		if r != nil {
			out.Body = r.Body
		}
		return out
	},
)

// AfterProviderResponse is the codec of its gate.
var AfterProviderResponse = codec(
	hooks.GateAfterProviderResponse, v1.Gate_GATE_AFTER_PROVIDER_RESPONSE,
	func(in hooks.AfterProviderResponse) *v1.EvaluateRequest {
		return &v1.EvaluateRequest{Input: &v1.EvaluateRequest_AfterProviderResponse{AfterProviderResponse: &v1.AfterProviderResponse{
			Run: run(in.RunRef), Turn: int32(in.Turn), Attempt: int32(in.Attempt), Model: Text(in.Model), Status: int32(in.Status),
			Headers: each(in.Headers, header),
		}}}
	},
	(*v1.EvaluateRequest).GetAfterProviderResponse,
	func(in *v1.AfterProviderResponse) hooks.AfterProviderResponse {
		return hooks.AfterProviderResponse{
			RunRef: runOf(in.GetRun()), Turn: int(in.GetTurn()), Attempt: int(in.GetAttempt()), Model: in.GetModel(), Status: int(in.GetStatus()),
			Headers: each(in.GetHeaders(), headerOf),
		}
	},
	func(out hooks.AfterProviderResponseResult) *v1.EvaluateResponse {
		return &v1.EvaluateResponse{
			Verdict: verdict(out.Action, out.Reason, out.Annotations),
			Result:  &v1.EvaluateResponse_AfterProviderResponse{AfterProviderResponse: &v1.AfterProviderResponseResult{}},
		}
	},
	(*v1.EvaluateResponse).GetAfterProviderResponse,
	func(v *v1.Verdict, _ *v1.AfterProviderResponseResult) hooks.AfterProviderResponseResult {
		return hooks.AfterProviderResponseResult{Action: actionOf(v.GetAction()), Reason: reasonOf(v), Annotations: v.GetAnnotations()}
	},
)
