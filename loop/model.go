package loop

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// Model is a provider of answers. Implementations are safe for concurrent use.
type Model interface {
	// Stream makes one call and yields the answer while it arrives. The last
	// chunk of a whole answer is of kind finish; an error is yielded once, as
	// the last element, and a sequence that ends without either was cut off.
	// Stream does not retry after its first chunk. It returns promptly once
	// ctx ends, and releases what it holds when the consumer stops early.
	Stream(ctx context.Context, req ModelRequest) iter.Seq2[stream.Chunk, error]
}

// ProviderModel is a model that speaks HTTP. Where there are hooks at the
// provider gates, the loop calls Request and Send in the place of Stream, and
// asks the gates in between: the adapter never sees a hook.
type ProviderModel interface {
	Model
	// Request writes the call down: the body, and the headers but those that
	// carry credentials. It makes no connection and blocks on nothing.
	Request(req ModelRequest) (ProviderRequest, error)
	// Send makes the call as Stream does, with exactly the headers and the
	// body of p; it adds credentials and what the transport needs. It calls
	// received, unless that is nil, once, when the status and the header of
	// the answer are there and before its body is read; an error of received
	// ends the call and is yielded as it is. Hooks are asked in received, which
	// may take seconds.
	Send(ctx context.Context, req ModelRequest, p ProviderRequest, received func(context.Context, ProviderResponse) error) iter.Seq2[stream.Chunk, error]
}

// ProviderRequest is a model call as it is about to be sent.
type ProviderRequest struct {
	// Headers are sorted by name, in canonical form, each name once.
	Headers []hooks.Header
	// Body is a JSON object.
	Body string
}

// ProviderResponse is the beginning of a provider's answer.
type ProviderResponse struct {
	Status int
	// Headers are as those of [ProviderRequest]. No credential is among them,
	// also if the provider sends one back.
	Headers []hooks.Header
}

// ModelRequest is one model call. The model must not change what it points to.
type ModelRequest struct {
	// Model is the name that the provider knows, from the agent's config.
	Model  string
	System string
	// Messages are a valid history: every tool call is followed by exactly
	// one result, in call order.
	Messages []hooks.Message
	Tools    []ToolSpec
	// Session, run, turn and attempt name the call; a scripted model plays by
	// them, a real one may pass them on as metadata.
	SessionID string
	RunID     string
	Turn      int
	Attempt   int
}

// ModelError is a failed model call. Message is safe to show and to store: it
// holds no credential and no request content.
type ModelError struct {
	// Status is the HTTP status, 0 if there was none.
	Status int
	// Code is the provider's own word for the error, "" if it gave none.
	Code    string
	Message string
	// Retryable says that the same call might succeed later.
	Retryable bool
	// RetryAfter is how long the provider asks to wait, 0 if it does not say.
	RetryAfter time.Duration
	// Usage is what the provider had reported by then: it counts.
	Usage stream.Usage
	// Err is the cause, nil if there is none; it is logged and not stored.
	Err error
}

// Error returns the message that people see.
func (e *ModelError) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *ModelError) Unwrap() error { return e.Err }

// Tool is something that an agent can do. Implementations are safe for
// concurrent use.
type Tool interface {
	// Spec describes the tool; it is the same on every call.
	Spec() ToolSpec
	// Validate says whether arguments, which are one JSON document, fit the tool's
	// schema; the error text is shown to the model. It has no effect and does not
	// block. It has to refuse what Call would read otherwise than others do, such as
	// Amount where amount is meant: hooks decide by what they read.
	Validate(arguments json.RawMessage) error
	// Call runs the tool. An error is a failed execution, and its text is
	// shown to the model. Call may be entered again for the same CallID only
	// if the spec says that the tool is idempotent. In its ctx
	// [hooks.NarrowTools] is heard, which counts unless Call returns an error.
	Call(ctx context.Context, in ToolInput) (ToolOutput, error)
}

// Available is what a [Tool] may be that is away for a time, as one of another
// process is. It is safe for concurrent use, has no effect and does not block.
type Available interface {
	// Available reports whether models are told of the tool. A call of one that is
	// away goes its way like any other, and Call has to say what came of it.
	Available() bool
}

// ToolSpec is what a model is told of a tool, and what the loop must know.
type ToolSpec struct {
	Name        string
	Description string
	// Schema is the JSON Schema of the arguments, an object schema.
	Schema json.RawMessage
	// Idempotent declares that running the tool twice with the same CallID
	// has the effect of running it once. Only such a tool is run again after
	// a crash.
	Idempotent bool
}

// ToolInput is one execution of a tool.
type ToolInput struct {
	// CallID is agentd's id for the call: the same on every attempt, and so
	// the idempotency key to hand to whatever the tool calls.
	CallID    string
	Attempt   int
	TenantID  string
	SessionID string
	RunID     string
	// Agent is the name of the run's.
	Agent string
	// Arguments are the bytes that the model wrote, validated. An empty text
	// has become {}.
	Arguments json.RawMessage
	// Progress tells people how far the tool is: an event of at most [MaxProgress] bytes,
	// which no model is told of. It does not wait: of many in short time some are left
	// out, and the last is kept. Where a hook is asked about the output, the text is
	// withheld. It may be called from several goroutines, and does nothing once Call has
	// returned. The loop always sets it.
	Progress func(text string)
}

// ToolOutput is what a tool gave back.
type ToolOutput struct {
	// Content is text for the model; JSON is text too.
	Content string
	// IsError marks a content that reports a failure.
	IsError bool
}

// Agent is a configured agent. It is a value that never changes while a
// process runs.
type Agent struct {
	Name string
	// Model answers; ModelName is what it is asked for.
	Model     Model
	ModelName string
	// Fallbacks answer in its place, one after the other, for the rest of a run in
	// which an observer with [stream.StopFallback] has stopped an answer.
	Fallbacks []Fallback
	// System is the system prompt, "" for none.
	System string
	// Tools are the tools that the agent may call, in the order in which the
	// model is told of them.
	Tools []Tool
	// Permissions say which calls need a person's yes and which never run. The
	// first that matches a tool decides; a tool that none matches may run.
	Permissions []Permission
	// Unattended says that there is nobody to ask: what needs a person's yes
	// is blocked.
	Unattended bool
	// Approvers say who may answer what people are asked about its calls: globs
	// in the syntax of [path.Match] over the id of the actor. Nil is everybody who
	// reaches the API of the tenant.
	Approvers []string
	// ApprovalTimeout is how long there is time to say whether a call may run;
	// then it may not. 0 is for ever, and less than a millisecond is one. Whether
	// a call has taken effect may always be said.
	ApprovalTimeout time.Duration
	// Limits end its runs, Retry says when its model calls are made again.
	Limits Limits
	Retry  Retry
	// Prices are what its model calls cost.
	Prices Prices
	// OnUnknown says what becomes of a tool call that was interrupted.
	OnUnknown UnknownPolicy
}

// Fallback is a model that an agent falls back to.
type Fallback struct {
	// Model, ModelName and Prices are as in [Agent].
	Model     Model
	ModelName string
	Prices    Prices
}

// answering is the agent with the model that answers in r from now on; ok is false
// if none is left.
func (a Agent) answering(r Run) (answering Agent, ok bool) {
	n := r.stops(stream.StopFallback)
	if n == 0 {
		return a, true
	}
	if n > len(a.Fallbacks) {
		return a, false
	}
	f := a.Fallbacks[n-1]
	a.Model, a.ModelName, a.Prices = f.Model, f.ModelName, f.Prices
	return a, true
}

// UnknownPolicy is what becomes of a call whose tool was started and
// interrupted, and is not declared idempotent: it may have taken effect.
type UnknownPolicy string

// The policies.
const (
	// UnknownReport tells the model, and is what "" means.
	UnknownReport UnknownPolicy = "report"
	// UnknownAsk asks people whether it has taken effect, and runs the call
	// again, under the same id, if they say that it has not. Where there is
	// nobody to ask it is UnknownReport.
	UnknownAsk UnknownPolicy = "ask"
	// UnknownFail ends the run.
	UnknownFail UnknownPolicy = "fail"
)

// Permission is a rule about tools, before any hook is asked.
type Permission struct {
	// Tools is a glob as [hooks.MatchName] knows it.
	Tools string
	Mode  PermissionMode
}

// PermissionMode is what becomes of a call.
type PermissionMode string

// The modes.
const (
	PermissionAllow PermissionMode = "allow"
	// PermissionAsk asks people about every call.
	PermissionAsk PermissionMode = "ask"
	// PermissionDeny refuses every call, and no hook is asked.
	PermissionDeny PermissionMode = "deny"
)

// permission is the mode for a tool. A glob that is not well-formed denies, so
// that a typing error opens nothing.
func (a Agent) permission(tool string) PermissionMode {
	for _, p := range a.Permissions {
		hit, err := hooks.MatchName(p.Tools, tool)
		if err != nil {
			return PermissionDeny
		}
		if hit {
			return p.Mode
		}
	}
	return PermissionAllow
}

func (a Agent) tool(name string) (Tool, bool) {
	for _, t := range a.Tools {
		if t.Spec().Name == name {
			return t, true
		}
	}
	return nil, false
}

func specs(tools []Tool) []ToolSpec {
	out := make([]ToolSpec, 0, len(tools))
	for _, t := range tools {
		out = append(out, t.Spec())
	}
	return out
}
