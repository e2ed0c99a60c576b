package rules

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// Report is what came of the examples of a [Set].
type Report struct {
	// Examples is how many were run.
	Examples int
	Failures []ExampleFailure
}

// ExampleFailure is an example that came to something else.
type ExampleFailure struct {
	File string
	Line int
	// Rule is the rule that it stands under, "" if it is one of the file.
	Rule string
	// Name is that of the example, "" if it has none.
	Name string
	// Differences are one sentence each.
	Differences []string
}

// Test runs the examples that stand beside the rules: one that stands under a
// rule asks that rule alone, one of a file asks all rules of the set. Each is
// asked like a hook in a run, with its limits. It returns an error only if ctx
// ends.
func (set *Set) Test(ctx context.Context) (Report, error) {
	var rep Report
	for _, r := range set.rules {
		inForce := *r
		inForce.Shadow = false
		for _, e := range r.examples {
			if err := set.try(ctx, &rep, e, []*rule{&inForce}, r); err != nil {
				return rep, err
			}
		}
	}
	for _, e := range set.examples {
		if err := set.try(ctx, &rep, e, set.rules, nil); err != nil {
			return rep, err
		}
	}
	return rep, nil
}

func (set *Set) try(ctx context.Context, rep *Report, e *example, asked []*rule, of *rule) error {
	now := set.clock()
	if !e.now.IsZero() {
		now = func() time.Time { return e.now }
	}
	got, err := e.ask(ctx, hooksOf(asked, now))
	if err != nil {
		return fmt.Errorf("example %s:%d: %w", e.file, e.line, err)
	}
	rep.Examples++
	if diff := e.want.differences(got); len(diff) > 0 {
		f := ExampleFailure{File: e.file, Line: e.line, Name: e.name, Differences: diff}
		if of != nil {
			f.Rule = of.ID
		}
		rep.Failures = append(rep.Failures, f)
	}
	return nil
}

// came is what an example came to.
type came struct {
	action    hooks.Action
	reason    hooks.Reason
	rule      string
	reply     string
	value     value
	decisions []hooks.Decision
}

// ask asks the gate of the example.
func (e *example) ask(ctx context.Context, h hooks.Hooks) (came, error) {
	v := e.in
	switch e.gate.name {
	case hooks.GateBeforeInput:
		return put(ctx, h.BeforeInput, hooks.BeforeInput{TenantID: v.TenantID, SessionID: v.SessionID, InputID: v.input, Agent: v.Agent, Text: v.text}, seeInput)
	case hooks.GateBeforeRunStart:
		return put(ctx, h.BeforeRunStart, hooks.BeforeRunStart{RunRef: v.RunRef, System: v.system, Messages: v.messages, Hidden: v.hidden, Tools: v.tools}, seeRunStart)
	case hooks.GateTransformContext:
		return put(ctx, h.TransformContext, hooks.TransformContext{RunRef: v.RunRef, Turn: v.turn, Attempt: v.attempt, System: v.system, Messages: v.messages}, seeContext)
	case hooks.GateBeforeProviderHeaders:
		return put(ctx, h.BeforeProviderHeaders, hooks.BeforeProviderHeaders{RunRef: v.RunRef, Turn: v.turn, Attempt: v.attempt, Model: v.model, Headers: v.headers}, seeHeaders)
	case hooks.GateBeforeProviderRequest:
		return put(ctx, h.BeforeProviderRequest, hooks.BeforeProviderRequest{RunRef: v.RunRef, Turn: v.turn, Attempt: v.attempt, Model: v.model, Body: v.body}, seeRequest)
	case hooks.GateAfterProviderResponse:
		return put(ctx, h.AfterProviderResponse, hooks.AfterProviderResponse{RunRef: v.RunRef, Turn: v.turn, Attempt: v.attempt, Model: v.model, Status: v.status, Headers: v.headers}, seeResponse)
	case hooks.GateBeforeToolCall:
		return put(ctx, h.BeforeToolCall, hooks.BeforeToolCall{RunRef: v.RunRef, Turn: v.turn, Revision: v.revision, Call: *v.call}, seeCall)
	case hooks.GateBeforeExecute:
		return put(ctx, h.BeforeExecute, hooks.BeforeExecute{RunRef: v.RunRef, Turn: v.turn, Attempt: v.attempt, Call: *v.call}, seeExecute)
	default:
		return put(ctx, h.AfterToolCall, hooks.AfterToolCall{RunRef: v.RunRef, Turn: v.turn, Attempt: v.attempt, Call: *v.call, Content: v.output, IsError: v.isError}, seeOutput)
	}
}

func put[In hooks.Input[In, Out], Out hooks.Result](ctx context.Context, f hooks.Func[In, Out], in In, see func(In) *vars) (came, error) {
	verdict, decisions, err := hooks.Ask(ctx, &hooks.Asker{}, f, hooks.Position{Attempt: 1}, in, nil)
	if err != nil {
		return came{}, err
	}
	left := see(verdict.Value)
	if left.call == nil {
		left.call = &hooks.ToolCall{}
	}
	return came{
		action: verdict.Action, reason: verdict.Reason, rule: verdict.HookID, reply: verdict.Reply, value: shown(left), decisions: decisions,
	}, nil
}

// differences says what came otherwise than it was expected.
func (w expectation) differences(got came) []string {
	var out []string
	differ := func(what, want, is string) {
		if want != is {
			out = append(out, fmt.Sprintf("%s: expected %s, got %s", what, orNothing(want), orNothing(is)))
		}
	}
	action := string(got.action)
	if len(got.decisions) == 0 && w.action == doSkip {
		action = doSkip
	}
	differ("action", w.action, action)
	if len(got.decisions) == 0 && w.action != doSkip {
		out = append(out, "no rule was asked: their gates or their tools, agents and tenants do not fit the input")
	}
	if w.rule != "" {
		differ("rule", w.rule, got.rule)
	}
	for what, pair := range map[string][2]string{"code": {w.code, got.reason.Code}, "reason": {w.reason, got.reason.Text}, "reply": {w.reply, got.reply}} {
		if pair[0] != "" {
			differ(what, pair[0], pair[1])
		}
	}
	slices.Sort(out[min(len(out), 1):])
	out = append(out, w.failed(got)...)
	if w.value != nil {
		out = append(out, compare("value", *w.value, got.value)...)
	}
	return out
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return yamlfile.Cut(s, 200)
}

// failed tells of the rules that failed otherwise than it was expected.
func (w expectation) failed(got came) []string {
	var out []string
	met := w.outcome == hooks.OutcomeOK
	for _, d := range got.decisions {
		switch {
		case d.Outcome == hooks.OutcomeOK, d.Shadow():
		case d.Outcome == w.outcome:
			met = true
		default:
			out = append(out, fmt.Sprintf("outcome: expected %s, got %s of rule %s: %s", w.outcome, d.Outcome, d.RuleID, orNothing(d.Payload.Reason)))
		}
	}
	if !met && len(out) == 0 {
		out = append(out, fmt.Sprintf("outcome: expected %s, got ok", w.outcome))
	}
	return out
}

// compare tells where got is not what is wanted. Members that are not wanted are
// not looked at; null wants one not to be there.
func compare(at string, want, got value) []string {
	switch {
	case want.object != nil && got.object != nil:
		var out []string
		for _, m := range want.object.members {
			i := got.object.index(m.name)
			switch {
			case i >= 0:
				out = append(out, compare(at+"."+m.name, m.value, got.object.members[i].value)...)
			case !m.value.isNull():
				out = append(out, fmt.Sprintf("%s.%s: expected %s, got nothing", at, m.name, yamlfile.Cut(m.value.String(), 200)))
			}
		}
		return out
	case want.isArray && got.isArray && len(want.array) == len(got.array):
		var out []string
		for i := range want.array {
			out = append(out, compare(fmt.Sprintf("%s[%d]", at, i), want.array[i], got.array[i])...)
		}
		return out
	}
	if same(want, got) {
		return nil
	}
	return []string{fmt.Sprintf("%s: expected %s, got %s", at, yamlfile.Cut(want.String(), 200), yamlfile.Cut(got.String(), 200))}
}

// same compares what is no pair of objects or of lists of one length.
func same(want, got value) bool {
	if want.object != nil || got.object != nil || want.isArray || got.isArray {
		return false
	}
	a, isText := want.text()
	b, alsoText := got.text()
	if isText && alsoText {
		return a == b
	}
	return want.raw == got.raw
}
