package hooks

import (
	"fmt"
	"slices"
)

// BeforeRunStart is what hooks see of a run before its first turn. They are
// asked once per run.
type BeforeRunStart struct {
	RunRef
	// System is the system prompt.
	System string `json:"system"`
	// Messages are the conversation so far, the user's new message included.
	Messages []Message `json:"messages"`
	// Hidden are the messages that hooks before this one appended.
	Hidden []HiddenMessage `json:"hidden"`
	// Tools are the names of the tools that the run may call.
	Tools []string `json:"tools"`
}

// HiddenMessage is said to the model and shown in no front door.
type HiddenMessage struct {
	// Role is system or user.
	Role Role   `json:"role"`
	Text string `json:"text"`
}

// BeforeRunStartResult takes continue, transform and block.
type BeforeRunStartResult struct {
	Action      Action
	Reason      Reason
	Annotations map[string]string
	// System is the new system prompt; nil leaves it.
	System *string
	// Append are hidden messages that follow the conversation.
	Append []HiddenMessage
	// Tools narrows the tools to these; nil leaves them. A name that the run
	// does not have makes the result unappliable.
	Tools *[]string
}

// BeforeRunStartFunc is a hook at this gate.
type BeforeRunStartFunc = Func[BeforeRunStart, BeforeRunStartResult]

func (r BeforeRunStartResult) answer() answer {
	a := answer{
		action: r.Action, reason: r.Reason, annotations: r.Annotations,
		changes: r.System != nil || len(r.Append) > 0 || r.Tools != nil, size: lenOf(r.System),
	}
	for _, m := range r.Append {
		a.size += len(m.Role) + len(m.Text) + elementSize
	}
	if r.Tools != nil {
		for _, t := range *r.Tools {
			a.size += len(t) + elementSize
		}
	}
	return a
}

func (BeforeRunStart) gate() Gate                { return GateBeforeRunStart }
func (in BeforeRunStart) about() subject         { return subjectOf(in.RunRef) }
func (in BeforeRunStart) barred() BeforeRunStart { return in }

func (in BeforeRunStart) clone() BeforeRunStart {
	in.Messages = copyMessages(in.Messages, asIs)
	in.Hidden = slices.Clone(in.Hidden)
	in.Tools = slices.Clone(in.Tools)
	return in
}

func (in BeforeRunStart) accept(out BeforeRunStartResult) (BeforeRunStart, []change, error) {
	var changes []change
	changes = setText(changes, "system", &in.System, out.System)
	in.Hidden = slices.Clip(in.Hidden)
	for _, m := range out.Append {
		if m.Role != RoleSystem && m.Role != RoleUser {
			return in, nil, fmt.Errorf("a hidden message of role %q: it is system or user", shorten(string(m.Role), 40))
		}
		m.Text = cleanText(m.Text)
		in.Hidden = append(in.Hidden, m)
		changes = append(changes, change{field: "hidden", op: opAdd, path: "/hidden/-", value: m})
	}
	if out.Tools == nil {
		return in, changes, nil
	}
	for _, name := range *out.Tools {
		if !slices.Contains(in.Tools, name) {
			return in, nil, fmt.Errorf("tool %q is not among those of the run: they can only become fewer", shorten(name, 80))
		}
	}
	// The order stays that of the agent, whatever the hook's.
	kept := slices.DeleteFunc(slices.Clone(in.Tools), func(name string) bool { return !slices.Contains(*out.Tools, name) })
	if len(kept) < len(in.Tools) {
		in.Tools = kept
		changes = append(changes, change{field: "tools", op: opReplace, path: "/tools", value: kept})
	}
	return in, changes, nil
}

func (in BeforeRunStart) merge(v Verdict[BeforeRunStart]) BeforeRunStartResult {
	out := BeforeRunStartResult{Action: v.Action, Reason: v.Reason}
	if v.Action == ActionTransform {
		out.System, out.Tools = &v.Value.System, &v.Value.Tools
		out.Append = v.Value.Hidden[len(in.Hidden):]
	}
	return out
}
