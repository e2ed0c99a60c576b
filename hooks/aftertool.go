package hooks

// WithheldText stands in the place of an output that a hook withheld.
const WithheldText = "The tool ran. Its output was withheld by a check."

// AfterToolCall is what hooks see of a tool's output before it is stored,
// after every attempt.
type AfterToolCall struct {
	RunRef
	Turn    int      `json:"turn"`
	Attempt int      `json:"attempt"`
	Call    ToolCall `json:"call"`
	Content string   `json:"content"`
	// IsError says that the tool reported a failure.
	IsError bool `json:"is_error"`
}

// AfterToolCallResult takes continue, transform and withhold. Withheld output
// is replaced by [WithheldText]; that the tool succeeded or failed stays.
type AfterToolCallResult struct {
	Action      Action
	Reason      Reason
	Annotations map[string]string
	// Content is the new output of a transform; nil leaves it.
	Content *string
	// IsError is whether the call counts as failed; nil leaves it.
	IsError *bool
}

// AfterToolCallFunc is a hook at this gate.
type AfterToolCallFunc = Func[AfterToolCall, AfterToolCallResult]

func (r AfterToolCallResult) answer() answer {
	return answer{
		action: r.Action, reason: r.Reason, annotations: r.Annotations,
		changes: r.Content != nil || r.IsError != nil, size: lenOf(r.Content),
	}
}

func (AfterToolCall) gate() Gate              { return GateAfterToolCall }
func (in AfterToolCall) about() subject       { return subjectOf(in.RunRef).calling(in.Call.Name) }
func (in AfterToolCall) clone() AfterToolCall { return in }

func (in AfterToolCall) barred() AfterToolCall {
	in.Content = WithheldText
	return in
}

func (in AfterToolCall) accept(out AfterToolCallResult) (AfterToolCall, []change, error) {
	var changes []change
	changes = setText(changes, "content", &in.Content, out.Content)
	if out.IsError != nil && *out.IsError != in.IsError {
		in.IsError = *out.IsError
		changes = append(changes, change{field: "is_error", op: opReplace, path: "/is_error", value: in.IsError})
	}
	return in, changes, nil
}

func (AfterToolCall) merge(v Verdict[AfterToolCall]) AfterToolCallResult {
	out := AfterToolCallResult{Action: v.Action, Reason: v.Reason}
	if v.Action == ActionTransform {
		out.Content, out.IsError = &v.Value.Content, &v.Value.IsError
	}
	return out
}
