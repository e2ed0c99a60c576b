package hooks

// BeforeExecute is what hooks see of a call that is about to run, before every
// attempt and after any approval.
type BeforeExecute struct {
	RunRef
	Turn    int `json:"turn"`
	Attempt int `json:"attempt"`
	// Call holds the exact bytes that will run.
	Call ToolCall `json:"call"`
}

// BeforeExecuteResult takes continue and block.
type BeforeExecuteResult struct {
	Action      Action
	Reason      Reason
	Annotations map[string]string
}

// BeforeExecuteFunc is a hook at this gate.
type BeforeExecuteFunc = Func[BeforeExecute, BeforeExecuteResult]

func (r BeforeExecuteResult) answer() answer {
	return answer{action: r.Action, reason: r.Reason, annotations: r.Annotations}
}

func (BeforeExecute) gate() Gate               { return GateBeforeExecute }
func (in BeforeExecute) about() subject        { return subjectOf(in.RunRef).calling(in.Call.Name) }
func (in BeforeExecute) clone() BeforeExecute  { return in }
func (in BeforeExecute) barred() BeforeExecute { return in }

func (in BeforeExecute) accept(BeforeExecuteResult) (BeforeExecute, []change, error) {
	return in, nil, nil
}

func (BeforeExecute) merge(v Verdict[BeforeExecute]) BeforeExecuteResult {
	return BeforeExecuteResult{Action: v.Action, Reason: v.Reason}
}
