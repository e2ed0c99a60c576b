package event

const (
	// TypeToolsNarrowed is the type of [ToolsNarrowed].
	TypeToolsNarrowed Type = "tools.narrowed"
	// TypeToolProgress is the type of [ToolProgress].
	TypeToolProgress Type = "tool.progress"
)

// ToolsNarrowed says which tools a hook, or a tool, has left the run from its next turn
// on. The turn in which that was is in the envelope, 0 before the first.
type ToolsNarrowed struct {
	// Required is true: a version that does not know the event must not go on with the
	// run, whose tools it would let through.
	Required bool `json:"required"`
	// By is the id of the hook, or the name of the tool.
	By string `json:"by"`
	// DecisionID is the hook's decision, CallID the call that the tool was executed for.
	// One of them is "".
	DecisionID string `json:"decision_id,omitempty"`
	CallID     string `json:"call_id,omitempty"`
	// Tools are all that are left, as models know them.
	Tools []string `json:"tools"`
}

// ToolProgress is how far a tool says it is. It moves nothing, no model is told of it,
// and a reader that does not know it misses nothing of the run.
type ToolProgress struct {
	CallID string `json:"call_id"`
	// Attempt is the execution, from 1.
	Attempt int `json:"attempt"`
	// Number counts what the tool said in the attempt, from 1. What is missing was left
	// out, because it came too fast.
	Number int `json:"number"`
	// Text is for people. It is "" if it was withheld: hooks are to see what the tool
	// gives back, and nobody has asked them about this.
	Text      string `json:"text"`
	Withheld  bool   `json:"withheld,omitempty"`
	Sanitized bool   `json:"sanitized,omitempty"`
}

// EventType implements [Payload].
func (ToolsNarrowed) EventType() Type { return TypeToolsNarrowed }

// EventType implements [Payload].
func (ToolProgress) EventType() Type { return TypeToolProgress }
