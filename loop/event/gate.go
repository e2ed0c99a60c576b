package event

import "github.com/seed-2ca4966b/agentd/hooks"

// Digest describes a text that is not stored.
type Digest struct {
	// SHA256 is in hex.
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// InputHandled is a message that a hook answered by itself: there is no
// message, no run, and no model sees either text.
type InputHandled struct {
	InputID string `json:"input_id"`
	Agent   string `json:"agent"`
	Input   Digest `json:"input"`
	Reply   string `json:"reply"`
	// IdempotencyKey and RequestSHA256 are those of the request, as in
	// [RunCreated].
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	RequestSHA256  string `json:"request_sha256,omitempty"`
	Sanitized      bool   `json:"sanitized,omitempty"`
}

// InputBlocked is a message that a hook refused. Nothing of its text is
// stored.
type InputBlocked struct {
	InputID    string `json:"input_id"`
	Agent      string `json:"agent"`
	Input      Digest `json:"input"`
	ReasonCode string `json:"reason_code"`
	Reason     string `json:"reason,omitempty"`
	// IdempotencyKey and RequestSHA256 are those of the request, as in
	// [RunCreated].
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	RequestSHA256  string `json:"request_sha256,omitempty"`
	Sanitized      bool   `json:"sanitized,omitempty"`
}

// InputRejected is a message that the hooks let through and the policy for a
// busy session refused.
type InputRejected struct {
	InputID     string `json:"input_id"`
	Agent       string `json:"agent"`
	Input       Digest `json:"input"`
	Policy      string `json:"policy"`
	ActiveRunID string `json:"active_run_id"`
	// IdempotencyKey and RequestSHA256 are those of the request, as in
	// [RunCreated].
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	RequestSHA256  string `json:"request_sha256,omitempty"`
	Sanitized      bool   `json:"sanitized,omitempty"`
}

// RunPrepared is what hooks changed for the whole run, before its first turn.
type RunPrepared struct {
	// System replaces the agent's system prompt; nil leaves it.
	System *string `json:"system,omitempty"`
	// Messages are hidden: in the model's context and in no front door.
	Messages []PreparedMessage `json:"messages,omitempty"`
	// Tools narrows the agent's tools; nil leaves them.
	Tools     *[]string `json:"tools,omitempty"`
	Sanitized bool      `json:"sanitized,omitempty"`
}

// PreparedMessage is a message that a hook added.
type PreparedMessage struct {
	MessageID string     `json:"message_id"`
	Role      hooks.Role `json:"role"`
	Text      string     `json:"text"`
}

// RunSuspended ends the lease of a run that waits for people and can do
// nothing else.
type RunSuspended struct {
	// Reason is "approval".
	Reason      string   `json:"reason"`
	ApprovalIDs []string `json:"approval_ids"`
}

// ToolBlocked is a call that will not run; its result follows.
type ToolBlocked struct {
	CallID string `json:"call_id"`
	// By is the gate, or "permission" for a tool that the agent may not use.
	By         string `json:"by"`
	ReasonCode string `json:"reason_code"`
	Reason     string `json:"reason,omitempty"`
	Sanitized  bool   `json:"sanitized,omitempty"`
}

// ApprovalKind is what people are asked. Values are stored.
type ApprovalKind string

// The kinds.
const (
	// ApprovalOfCall asks whether the call may run.
	ApprovalOfCall ApprovalKind = ""
	// ApprovalOfOutcome asks whether a call that was interrupted has taken
	// effect.
	ApprovalOfOutcome ApprovalKind = "outcome"
)

// Takes reports whether d answers a question of that kind. Any may be
// cancelled. An answer that this binary does not know is one to the most
// frequent question, and no yes.
func (k ApprovalKind) Takes(d ApprovalDecision) bool {
	switch d {
	case DecisionHappened, DecisionDidNotHappen:
		return k == ApprovalOfOutcome
	case DecisionCancelled:
		return true
	case DecisionApproved, DecisionDenied, DecisionEdited, DecisionExpired:
	}
	return k == ApprovalOfCall
}

// ApprovalRequested asks people about one call.
type ApprovalRequested struct {
	ApprovalID string `json:"approval_id"`
	// Kind is left out for the most frequent question.
	Kind   ApprovalKind `json:"kind,omitempty"`
	CallID string       `json:"call_id"`
	Name   string       `json:"name"`
	// Arguments are exactly what runs if the answer is yes, and SHA256 (hex)
	// is what the answer is bound to.
	Arguments       string `json:"arguments"`
	ArgumentsSHA256 string `json:"arguments_sha256"`
	// By is "permission" or the gate whose hook asked for it, and "on_unknown"
	// for a call of unknown outcome.
	By        string `json:"by"`
	Reason    string `json:"reason,omitempty"`
	Sanitized bool   `json:"sanitized,omitempty"`
	// ChangedFrom are the arguments that a person had given for the call, if hooks
	// have made the present ones of them.
	ChangedFrom *string `json:"changed_from,omitempty"`
	// Approvers are globs in the syntax of [path.Match]: only an actor whose id
	// one of them fits may answer, so that an empty list is nobody. Nil is everybody.
	Approvers []string `json:"approvers,omitzero"`
	// TimeoutMS is how long there is time to answer, counted by the log's clock
	// from the append that has the event; 0 is for ever.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// ApprovalDecision is an answer to an approval.
type ApprovalDecision string

// The answers.
const (
	DecisionApproved ApprovalDecision = "approved"
	DecisionDenied   ApprovalDecision = "denied"
	// DecisionEdited lets the call run with the arguments of the answer, once the
	// hooks have seen them.
	DecisionEdited ApprovalDecision = "edited"
	// DecisionExpired: nobody answered in time. It is neither a yes nor anybody's
	// no.
	DecisionExpired ApprovalDecision = "expired"
	// DecisionHappened and DecisionDidNotHappen say of a call that was
	// interrupted whether it has taken effect. One that has not is run again.
	DecisionHappened     ApprovalDecision = "happened"
	DecisionDidNotHappen ApprovalDecision = "did_not_happen"
	// DecisionCancelled closes the approval of a run that was cut short.
	DecisionCancelled ApprovalDecision = "cancelled"
)

// ApprovalDecided is the one answer to an approval.
type ApprovalDecided struct {
	ApprovalID string           `json:"approval_id"`
	CallID     string           `json:"call_id"`
	Decision   ApprovalDecision `json:"decision"`
	// ArgumentsSHA256 repeats what was decided on.
	ArgumentsSHA256 string `json:"arguments_sha256"`
	Reason          string `json:"reason,omitempty"`
	Sanitized       bool   `json:"sanitized,omitempty"`
	// EditedArguments are what is to run instead, byte for byte, and EditedSHA256
	// (hex) is their digest; only with [DecisionEdited].
	EditedArguments *string `json:"edited_arguments,omitempty"`
	EditedSHA256    string  `json:"edited_sha256,omitempty"`
}

// EventType implements [Payload].
func (InputHandled) EventType() Type { return TypeInputHandled }

// EventType implements [Payload].
func (InputBlocked) EventType() Type { return TypeInputBlocked }

// EventType implements [Payload].
func (InputRejected) EventType() Type { return TypeInputRejected }

// EventType implements [Payload].
func (RunPrepared) EventType() Type { return TypeRunPrepared }

// EventType implements [Payload].
func (RunSuspended) EventType() Type { return TypeRunSuspended }

// EventType implements [Payload].
func (ToolBlocked) EventType() Type { return TypeToolBlocked }

// EventType implements [Payload].
func (ApprovalRequested) EventType() Type { return TypeApprovalRequested }

// EventType implements [Payload].
func (ApprovalDecided) EventType() Type { return TypeApprovalDecided }
