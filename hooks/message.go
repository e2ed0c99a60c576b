package hooks

// Role says who speaks in a [Message].
type Role string

// The roles. They are stored in events and in the messages table: a value is
// never renamed.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// PartType says which field of a [Part] is set.
type PartType string

// The part types.
const (
	PartText       PartType = "text"
	PartReasoning  PartType = "reasoning"
	PartToolCall   PartType = "tool_call"
	PartToolResult PartType = "tool_result"
)

// Message is something said in a session. It is a value: who receives one may
// keep it, and must not change the slices and pointers inside it.
type Message struct {
	// ID is agentd's own id (a UUID).
	ID string `json:"id"`
	// RunID is the run that the message belongs to.
	RunID string `json:"run_id,omitempty"`
	Role  Role   `json:"role"`
	Parts []Part `json:"parts"`
	// Partial marks an answer that was cut off (by a cancel, by a broken
	// stream): its text is what the user saw, not what the model meant.
	Partial bool `json:"partial,omitempty"`
	// Hidden messages are in the model's context and in no front door.
	Hidden bool `json:"hidden,omitempty"`
	// Position orders the messages of a session: it is the seq of the event
	// that made room for the message. A tool result stands at the position
	// where its call was proposed, so results are in call order whatever the
	// order in which the tools finished.
	Position int64 `json:"position"`
}

// Part is one piece of a message. Exactly one of Text (for text and
// reasoning), ToolCall and ToolResult is meaningful, as Type says.
type Part struct {
	Type       PartType    `json:"type"`
	Text       string      `json:"text,omitempty"`
	ToolCall   *ToolCall   `json:"tool_call,omitempty"`
	ToolResult *ToolResult `json:"tool_result,omitempty"`
}

// ToolCall is a model's wish to run a tool.
type ToolCall struct {
	// ID is agentd's own id and the only identity of the call.
	ID string `json:"id"`
	// ProviderID is the id that the provider gave. Providers reuse ids: it is
	// only echoed back to them, never looked up.
	ProviderID string `json:"provider_id,omitempty"`
	Name       string `json:"name"`
	// Arguments is the text that the model wrote, byte for byte. It may not
	// be valid JSON.
	Arguments string `json:"arguments"`
}

// ToolResult is the one stored answer to a [ToolCall].
type ToolResult struct {
	CallID  string `json:"call_id"`
	Content string `json:"content"`
	// IsError says that the model is shown a failure.
	IsError bool `json:"is_error,omitempty"`
	// Reason says why there is no ordinary output; "" when there is.
	Reason ResultReason `json:"reason,omitempty"`
}

// ResultReason says why a tool result is not the tool's ordinary output.
type ResultReason string

// The reasons. They are stored: a value is never renamed.
const (
	// ReasonToolError: the tool ran and reported an error.
	ReasonToolError ResultReason = "tool_error"
	// ReasonUnknownTool: the agent has no tool of that name; nothing ran.
	ReasonUnknownTool ResultReason = "unknown_tool"
	// ReasonInvalidArguments: the arguments do not fit the tool's schema;
	// nothing ran.
	ReasonInvalidArguments ResultReason = "invalid_arguments"
	// ReasonOutcomeUnknown: the tool was started and nobody knows whether it
	// took effect. It is not run again.
	ReasonOutcomeUnknown ResultReason = "outcome_unknown"
	// ReasonOutputLost: the tool ran, and its output was lost before it was
	// stored. It is not run again.
	ReasonOutputLost ResultReason = "output_lost"
	// ReasonBlocked: a hook or the agent's permissions refused the call;
	// nothing ran.
	ReasonBlocked ResultReason = "blocked"
	// ReasonDenied: a person refused the call; nothing ran.
	ReasonDenied ResultReason = "denied"
	// ReasonExpired: people were asked about the call, and nobody answered in
	// time; nothing ran.
	ReasonExpired ResultReason = "expired"
	// ReasonWithheld: the tool ran, and a hook keeps its output back.
	ReasonWithheld ResultReason = "withheld"
	// ReasonLimit: the run had reached a limit of its agent before the call's
	// turn came.
	ReasonLimit ResultReason = "limit"
	// ReasonConfirmed: the tool was interrupted, and a person said that it has
	// taken effect. There is no output.
	ReasonConfirmed ResultReason = "confirmed"
	// ReasonNotRun: the run ended before the call's turn came.
	ReasonNotRun ResultReason = "not_run"
	// ReasonCancelled: the run was cancelled before the tool started.
	ReasonCancelled ResultReason = "cancelled"
)

// Text joins the text parts of m; reasoning is not part of it.
func (m Message) Text() string {
	var s string
	for _, p := range m.Parts {
		if p.Type == PartText {
			s += p.Text
		}
	}
	return s
}
