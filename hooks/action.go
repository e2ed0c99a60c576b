package hooks

// Action is what a hook wants done. The zero value is no answer: a hook that
// returns it has failed. The words are stored: a value is never renamed.
type Action string

// The actions. Which of them a gate takes is said at its result type.
const (
	// ActionContinue has no objection and changes nothing.
	ActionContinue Action = "continue"
	// ActionTransform changes the fields that the result names. A result of
	// any other action names none, and a transform names at least one.
	ActionTransform Action = "transform"
	// ActionAsk lets a person decide, whatever the agent's own rules are.
	ActionAsk Action = "ask"
	// ActionHandled answers the user in place of a run.
	ActionHandled Action = "handled"
	// ActionTerminate ends the run.
	ActionTerminate Action = "terminate"
	// ActionBlock refuses. The hooks after it are not asked.
	ActionBlock Action = "block"
	// ActionWithhold puts [WithheldText] in the place of a tool's output. The
	// hooks after it are not asked.
	ActionWithhold Action = "withhold"
	// ActionStop stands in the decisions of observers that have stopped a model's
	// answer. No gate takes it.
	ActionStop Action = "stop"
)

// rank orders the actions by strength, the strongest last; 0 is no action.
func (a Action) rank() int {
	switch a {
	case ActionContinue:
		return 1
	case ActionTransform:
		return 2
	case ActionAsk:
		return 3
	case ActionHandled:
		return 4
	case ActionTerminate:
		return 5
	case ActionBlock, ActionWithhold:
		return 6
	default:
		return 0
	}
}

// ends reports whether the hooks after this answer are not asked.
func (a Action) ends() bool { return a.rank() == ActionBlock.rank() }

// Reason is why a hook answered as it did.
type Reason struct {
	// Code is for programs, such as "tool_denied"; at most 128 bytes.
	Code string `json:"code,omitempty"`
	// Text is for people, and for the model where the answer reaches it.
	Text string `json:"text,omitempty"`
	// Rule is the rule that decided, where a hook has several; at most 128
	// bytes.
	Rule string `json:"rule,omitempty"`
}

// answer is what the results of all gates have in common.
type answer struct {
	action      Action
	reason      Reason
	annotations map[string]string
	// reply is the text of a handled input.
	reply string
	// changes says that the result names a field to change.
	changes bool
	// size is the length of the changed fields in bytes.
	size int
}

// elementSize is what one message, part or annotation counts beside its text,
// so that a million empty ones are not free.
const elementSize = 32

func (a answer) bytes() int {
	n := a.size + len(a.reply) + len(a.reason.Code) + len(a.reason.Text) + len(a.reason.Rule)
	for k, v := range a.annotations {
		n += len(k) + len(v) + elementSize
	}
	return n
}
