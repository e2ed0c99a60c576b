package hooks

// TransformContext is what hooks see of a model call before it is made, once
// per attempt.
type TransformContext struct {
	RunRef
	Turn    int `json:"turn"`
	Attempt int `json:"attempt"`
	// System is the system prompt.
	System string `json:"system"`
	// Messages are what the model is about to be sent.
	Messages []Message `json:"messages"`
}

// TransformContextResult takes continue, transform and block. What it changes
// is sent to the model in this one call, and stored nowhere else.
type TransformContextResult struct {
	Action      Action
	Reason      Reason
	Annotations map[string]string
	// Messages are all messages of the call; nil leaves them.
	Messages *[]Message
}

// TransformContextFunc is a hook at this gate.
type TransformContextFunc = Func[TransformContext, TransformContextResult]

func (r TransformContextResult) answer() answer {
	a := answer{action: r.Action, reason: r.Reason, annotations: r.Annotations, changes: r.Messages != nil}
	if r.Messages != nil {
		a.size = messagesSize(*r.Messages)
	}
	return a
}

func (TransformContext) gate() Gate                  { return GateTransformContext }
func (in TransformContext) about() subject           { return subjectOf(in.RunRef) }
func (in TransformContext) barred() TransformContext { return in }

func (in TransformContext) clone() TransformContext {
	in.Messages = copyMessages(in.Messages, asIs)
	return in
}

func (in TransformContext) accept(out TransformContextResult) (TransformContext, []change, error) {
	messages := copyMessages(*out.Messages, cleanText)
	changes := diffMessages(in.Messages, messages)
	in.Messages = messages
	return in, changes, nil
}

func (TransformContext) merge(v Verdict[TransformContext]) TransformContextResult {
	out := TransformContextResult{Action: v.Action, Reason: v.Reason}
	if v.Action == ActionTransform {
		out.Messages = &v.Value.Messages
	}
	return out
}
