package hooks

// BeforeInput is what hooks see of a user's message that was found valid,
// before anything is stored or interrupted for it.
type BeforeInput struct {
	TenantID  string `json:"tenant_id"`
	SessionID string `json:"session_id"`
	InputID   string `json:"input_id"`
	Agent     string `json:"agent"`
	Text      string `json:"text"`
}

// BeforeInputResult takes continue, transform, handled and block.
type BeforeInputResult struct {
	Action      Action
	Reason      Reason
	Annotations map[string]string
	// Text is the new text of a transform; nil leaves it.
	Text *string
	// Reply is what the user is answered if the action is handled. It is no
	// part of what a model is sent later.
	Reply string
}

// BeforeInputFunc is a hook at this gate.
type BeforeInputFunc = Func[BeforeInput, BeforeInputResult]

func (r BeforeInputResult) answer() answer {
	return answer{
		action: r.Action, reason: r.Reason, annotations: r.Annotations, reply: r.Reply,
		changes: r.Text != nil, size: lenOf(r.Text),
	}
}

func (BeforeInput) gate() Gate             { return GateBeforeInput }
func (in BeforeInput) about() subject      { return subject{tenant: in.TenantID, agent: in.Agent} }
func (in BeforeInput) clone() BeforeInput  { return in }
func (in BeforeInput) barred() BeforeInput { return in }

func (in BeforeInput) accept(out BeforeInputResult) (BeforeInput, []change, error) {
	var changes []change
	changes = setText(changes, "text", &in.Text, out.Text)
	return in, changes, nil
}

func (in BeforeInput) merge(v Verdict[BeforeInput]) BeforeInputResult {
	out := BeforeInputResult{Action: v.Action, Reason: v.Reason, Reply: v.Reply}
	if v.Action == ActionTransform {
		out.Text = &v.Value.Text
	}
	return out
}
