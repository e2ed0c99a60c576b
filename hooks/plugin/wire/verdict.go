package wire

import (
	"errors"
	"fmt"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
)

var actions = []hooks.Action{
	pluginv1.Action_ACTION_UNSPECIFIED: "",
	pluginv1.Action_ACTION_CONTINUE:    hooks.ActionContinue,
	pluginv1.Action_ACTION_TRANSFORM:   hooks.ActionTransform,
	pluginv1.Action_ACTION_ASK:         hooks.ActionAsk,
	pluginv1.Action_ACTION_HANDLED:     hooks.ActionHandled,
	pluginv1.Action_ACTION_TERMINATE:   hooks.ActionTerminate,
	pluginv1.Action_ACTION_BLOCK:       hooks.ActionBlock,
	pluginv1.Action_ACTION_WITHHOLD:    hooks.ActionWithhold,
}

// action is unspecified for a word that is none, which is no answer.
func action(a hooks.Action) pluginv1.Action {
	for i, word := range actions {
		if word == a {
			return pluginv1.Action(i)
		}
	}
	return pluginv1.Action_ACTION_UNSPECIFIED
}

// actionOf is "" for a number that is none.
func actionOf(a pluginv1.Action) hooks.Action {
	if a < 0 || int(a) >= len(actions) {
		return ""
	}
	return actions[a]
}

func verdict(a hooks.Action, r hooks.Reason, annotations map[string]string) *pluginv1.Verdict {
	v := &pluginv1.Verdict{Action: action(a)}
	if r != (hooks.Reason{}) {
		v.Reason = &pluginv1.Reason{Code: Text(r.Code), Text: Text(r.Text), Rule: Text(r.Rule)}
	}
	if len(annotations) > 0 {
		v.Annotations = make(map[string]string, len(annotations))
		for k, value := range annotations {
			v.Annotations[Text(k)] = Text(value)
		}
	}
	return v
}

func reasonOf(v *pluginv1.Verdict) hooks.Reason {
	r := v.GetReason()
	return hooks.Reason{Code: r.GetCode(), Text: r.GetText(), Rule: r.GetRule()}
}

var outcomes = []hooks.Outcome{
	pluginv1.FailureOutcome_FAILURE_OUTCOME_UNSPECIFIED: hooks.OutcomeError,
	pluginv1.FailureOutcome_FAILURE_OUTCOME_ERROR:       hooks.OutcomeError,
	pluginv1.FailureOutcome_FAILURE_OUTCOME_PANIC:       hooks.OutcomePanic,
	pluginv1.FailureOutcome_FAILURE_OUTCOME_TIMEOUT:     hooks.OutcomeTimeout,
	pluginv1.FailureOutcome_FAILURE_OUTCOME_UNAVAILABLE: hooks.OutcomeUnavailable,
}

// maxFailure bounds what is told of a failure, in bytes.
const maxFailure = 4 << 10

// Failed is the answer of a plugin whose check could not be made. An outcome that a
// plugin cannot know of is an error.
func Failed(err error) *pluginv1.EvaluateResponse {
	out := &pluginv1.Failure{Outcome: pluginv1.FailureOutcome_FAILURE_OUTCOME_ERROR}
	told := err
	var f *hooks.Failure
	if errors.As(err, &f) && f != nil {
		for i, o := range outcomes {
			if o == f.Outcome && i > 0 {
				out.Outcome = pluginv1.FailureOutcome(i)
			}
		}
		out.Code = Text(f.Code)
		if f.Err != nil {
			told = f.Err
		}
	}
	out.Text = Shorten(told.Error(), maxFailure)
	return &pluginv1.EvaluateResponse{Result: &pluginv1.EvaluateResponse_Failure{Failure: out}}
}

// failure is what a plugin said of its own failure. Who asked may not know any
// other outcome than these from it.
func failure(f *pluginv1.Failure) error {
	outcome := hooks.OutcomeError
	if o := f.GetOutcome(); o > 0 && int(o) < len(outcomes) {
		outcome = outcomes[o]
	}
	return &hooks.Failure{Outcome: outcome, Code: f.GetCode(), Err: errors.New(Shorten(f.GetText(), maxFailure))}
}

// Shorten makes s text of at most limit bytes.
func Shorten(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return Text(s)
}

func malformed(format string, args ...any) error {
	return &hooks.Failure{Outcome: hooks.OutcomeMalformed, Err: fmt.Errorf(format, args...)}
}
