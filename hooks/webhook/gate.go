package webhook

import (
	"context"
	"encoding/json"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// Type is the type of the questions of a gate, such as
// agentd.gate.BeforeToolCall.
func Type(g hooks.Gate) string { return "agentd.gate." + string(g) }

// question is the body of a request. The names are its JSON.
type question struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	TenantID  string `json:"tenant_id"`
	Agent     string `json:"agent"`
	SessionID string `json:"session_id"`
	RunID     string `json:"run_id,omitempty"`
	Turn      int    `json:"turn,omitempty"`
	Attempt   int    `json:"attempt,omitempty"`
	Revision  int    `json:"revision,omitempty"`
	// Input is the gate's input as the ledger digests it, or without what is
	// not sent.
	Input json.RawMessage `json:"input"`
}

func about(r hooks.RunRef) question {
	return question{TenantID: r.TenantID, Agent: r.Agent, SessionID: r.SessionID, RunID: r.RunID}
}

func (q question) in(turn, attempt, revision int) question {
	q.Turn, q.Attempt, q.Revision = turn, attempt, revision
	return q
}

func (q question) with(input any) question {
	q.Input = json.RawMessage(encode(input))
	return q
}

// reply is a pointer to an answer at one gate.
type reply[R any] interface {
	*R
	common() *head
}

// at makes the hook of one gate: see is its input as a question, tell the answer
// as its result.
func at[In hooks.Input[In, Out], Out hooks.Result, R any, P reply[R]](w *Webhook, g hooks.Gate, see func(In) question, tell func(P) Out) hooks.Func[In, Out] {
	return hooks.Named(w.settings.ID, version, func(ctx context.Context, in In) (Out, error) {
		var (
			none   Out
			answer R
		)
		q := see(in)
		q.Type, q.ID = Type(g), hooks.DecisionID(ctx)
		if err := w.ask(ctx, q, w.limits[g], P(&answer)); err != nil {
			return none, err
		}
		return tell(&answer), nil
	}, w.options()...)
}

// hooksAt makes the hooks of all gates that the endpoint is asked at.
func hooksAt(w *Webhook) hooks.Hooks {
	var h hooks.Hooks
	for _, g := range w.settings.Gates {
		switch g {
		case hooks.GateBeforeInput:
			h.BeforeInput = at(w, g, seeInput, tellInput)
		case hooks.GateBeforeRunStart:
			h.BeforeRunStart = at(w, g, seeRunStart, tellRunStart)
		case hooks.GateTransformContext:
			h.TransformContext = at(w, g, seeContext, tellContext)
		case hooks.GateBeforeProviderHeaders:
			h.BeforeProviderHeaders = at(w, g, seeHeaders, tellHeaders)
		case hooks.GateBeforeProviderRequest:
			h.BeforeProviderRequest = at(w, g, seeRequest, tellRequest)
		case hooks.GateAfterProviderResponse:
			h.AfterProviderResponse = at(w, g, seeResponse, tellResponse)
		case hooks.GateBeforeToolCall:
			h.BeforeToolCall = at(w, g, seeCall, tellCall)
		case hooks.GateBeforeExecute:
			h.BeforeExecute = at(w, g, seeExecute, tellExecute)
		case hooks.GateAfterToolCall:
			h.AfterToolCall = at(w, g, seeOutput, tellOutput)
		case hooks.GateOnChunk, hooks.GateOnEnd: // no endpoint is asked there
		}
	}
	return h
}

func seeInput(in hooks.BeforeInput) question {
	return about(hooks.RunRef{TenantID: in.TenantID, SessionID: in.SessionID, Agent: in.Agent}).with(in)
}

type inputReply struct {
	head
	Text  *string `json:"text,omitempty"`
	Reply string  `json:"reply,omitempty"`
}

func tellInput(r *inputReply) hooks.BeforeInputResult {
	return hooks.BeforeInputResult{Action: r.Action, Reason: r.Reason, Annotations: r.Annotations, Text: r.Text, Reply: r.Reply}
}

func seeRunStart(in hooks.BeforeRunStart) question { return about(in.RunRef).with(in) }

type runStartReply struct {
	head
	System *string               `json:"system,omitempty"`
	Append []hooks.HiddenMessage `json:"append,omitempty"`
	Tools  *[]string             `json:"tools,omitempty"`
}

func tellRunStart(r *runStartReply) hooks.BeforeRunStartResult {
	return hooks.BeforeRunStartResult{
		Action: r.Action, Reason: r.Reason, Annotations: r.Annotations, System: r.System, Append: r.Append, Tools: r.Tools,
	}
}

func seeContext(in hooks.TransformContext) question {
	return about(in.RunRef).in(in.Turn, in.Attempt, 0).with(in)
}

type contextReply struct {
	head
	Messages *[]hooks.Message `json:"messages,omitempty"`
}

func tellContext(r *contextReply) hooks.TransformContextResult {
	return hooks.TransformContextResult{Action: r.Action, Reason: r.Reason, Annotations: r.Annotations, Messages: r.Messages}
}

// headersSent is what is told of the header of a model call: names alone.
// Status is 0 of a request.
type headersSent struct {
	hooks.RunRef
	Turn    int      `json:"turn"`
	Attempt int      `json:"attempt"`
	Model   string   `json:"model"`
	Status  int      `json:"status,omitempty"`
	Headers []string `json:"headers"`
}

func namesOf(headers []hooks.Header) []string {
	names := make([]string, 0, len(headers))
	for _, h := range headers {
		names = append(names, h.Name)
	}
	return names
}

func seeHeaders(in hooks.BeforeProviderHeaders) question {
	return about(in.RunRef).in(in.Turn, in.Attempt, 0).with(headersSent{
		RunRef: in.RunRef, Turn: in.Turn, Attempt: in.Attempt, Model: in.Model, Headers: namesOf(in.Headers),
	})
}

type headersReply struct {
	head
	Set    []hooks.Header `json:"set,omitempty"`
	Remove []string       `json:"remove,omitempty"`
}

func tellHeaders(r *headersReply) hooks.BeforeProviderHeadersResult {
	return hooks.BeforeProviderHeadersResult{Action: r.Action, Reason: r.Reason, Annotations: r.Annotations, Set: r.Set, Remove: r.Remove}
}

func seeRequest(in hooks.BeforeProviderRequest) question {
	return about(in.RunRef).in(in.Turn, in.Attempt, 0).with(in)
}

type requestReply struct {
	head
	Body *string `json:"body,omitempty"`
}

func tellRequest(r *requestReply) hooks.BeforeProviderRequestResult {
	return hooks.BeforeProviderRequestResult{Action: r.Action, Reason: r.Reason, Annotations: r.Annotations, Body: r.Body}
}

func seeResponse(in hooks.AfterProviderResponse) question {
	return about(in.RunRef).in(in.Turn, in.Attempt, 0).with(headersSent{
		RunRef: in.RunRef, Turn: in.Turn, Attempt: in.Attempt, Model: in.Model, Status: in.Status, Headers: namesOf(in.Headers),
	})
}

// plainReply is an answer that changes nothing.
type plainReply struct{ head }

func tellResponse(r *plainReply) hooks.AfterProviderResponseResult {
	return hooks.AfterProviderResponseResult{Action: r.Action, Reason: r.Reason, Annotations: r.Annotations}
}

func seeCall(in hooks.BeforeToolCall) question {
	return about(in.RunRef).in(in.Turn, 0, in.Revision).with(in)
}

type callReply struct {
	head
	Arguments *string `json:"arguments,omitempty"`
}

func tellCall(r *callReply) hooks.BeforeToolCallResult {
	return hooks.BeforeToolCallResult{Action: r.Action, Reason: r.Reason, Annotations: r.Annotations, Arguments: r.Arguments}
}

func seeExecute(in hooks.BeforeExecute) question {
	return about(in.RunRef).in(in.Turn, in.Attempt, 0).with(in)
}

func tellExecute(r *plainReply) hooks.BeforeExecuteResult {
	return hooks.BeforeExecuteResult{Action: r.Action, Reason: r.Reason, Annotations: r.Annotations}
}

func seeOutput(in hooks.AfterToolCall) question {
	return about(in.RunRef).in(in.Turn, in.Attempt, 0).with(in)
}

type outputReply struct {
	head
	Content *string `json:"content,omitempty"`
	IsError *bool   `json:"is_error,omitempty"`
}

func tellOutput(r *outputReply) hooks.AfterToolCallResult {
	return hooks.AfterToolCallResult{Action: r.Action, Reason: r.Reason, Annotations: r.Annotations, Content: r.Content, IsError: r.IsError}
}
