package hooks

// BeforeToolCall is what hooks see of a call that a model asked for: the tool
// exists, the arguments fit its schema, and nobody was asked to approve it.
type BeforeToolCall struct {
	RunRef
	Turn int `json:"turn"`
	// Revision counts the versions of the arguments from 1: it grows when a
	// person edits them.
	Revision int      `json:"revision"`
	Call     ToolCall `json:"call"`
}

// BeforeToolCallResult takes continue, transform, ask, terminate and block.
type BeforeToolCallResult struct {
	Action      Action
	Reason      Reason
	Annotations map[string]string
	// Arguments are the new arguments of a transform; nil leaves them. They
	// have to fit the tool's schema.
	Arguments *string
}

// BeforeToolCallFunc is a hook at this gate.
type BeforeToolCallFunc = Func[BeforeToolCall, BeforeToolCallResult]

func (r BeforeToolCallResult) answer() answer {
	return answer{
		action: r.Action, reason: r.Reason, annotations: r.Annotations,
		changes: r.Arguments != nil, size: lenOf(r.Arguments),
	}
}

func (BeforeToolCall) gate() Gate                { return GateBeforeToolCall }
func (in BeforeToolCall) about() subject         { return subjectOf(in.RunRef).calling(in.Call.Name) }
func (in BeforeToolCall) clone() BeforeToolCall  { return in }
func (in BeforeToolCall) barred() BeforeToolCall { return in }

func (in BeforeToolCall) accept(out BeforeToolCallResult) (BeforeToolCall, []change, error) {
	var changes []change
	changes = setText(changes, "call/arguments", &in.Call.Arguments, out.Arguments)
	return in, changes, nil
}

func (BeforeToolCall) merge(v Verdict[BeforeToolCall]) BeforeToolCallResult {
	out := BeforeToolCallResult{Action: v.Action, Reason: v.Reason}
	if v.Action == ActionTransform {
		out.Arguments = &v.Value.Call.Arguments
	}
	return out
}
