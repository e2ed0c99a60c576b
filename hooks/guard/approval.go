package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
)

// RequireApprovalConfig says which calls a person has to say yes to. What is
// given has to hold together.
type RequireApprovalConfig struct {
	// Tools are globs, see [hooks.MatchName]; empty is every tool.
	Tools []string `json:"tools,omitempty" yaml:"tools"`
	// When are conditions on the arguments, which have to hold all; empty is
	// whatever they are.
	When []Condition `json:"when,omitempty" yaml:"when"`
	// During is the time at which people are asked; nil is always.
	During *DaytimeConfig `json:"during,omitempty" yaml:"during"`
	// Reason is shown to whoever is asked, in place of what the guard says.
	Reason string `json:"reason,omitempty" yaml:"reason"`
	// Now is the clock for During; nil is time.Now.
	Now func() time.Time `json:"-" yaml:"-"`
}

// RequireApproval lets a person decide about calls, with the code
// approval_required. It judges the call as it will run. What people are asked
// with, and who may answer, is as for every approval.
//
// A config without During is pure; with it, the answer depends on the clock.
func RequireApproval(c RequireApprovalConfig, opts ...hooks.Option) (hooks.Hooks, error) {
	const kind = "require_approval"
	if len(c.Tools) == 0 && len(c.When) == 0 && c.During == nil {
		return hooks.Hooks{}, setting.Errorf(kind, "", "would ask about every call; say so with tools: [\"*\"], or give when or during")
	}
	if err := setting.CheckGlobs(kind, "tools", c.Tools); err != nil {
		return hooks.Hooks{}, err
	}
	if len(c.When) > maxListed || len(c.Reason) > maxText {
		return hooks.Hooks{}, setting.Errorf(kind, "", "has more than %d conditions, or a reason of more than %d bytes", maxListed, maxText)
	}
	a := approval{config: c}
	for i, w := range c.When {
		cond, err := w.compile(kind, fmt.Sprintf("when[%d]", i))
		if err != nil {
			return hooks.Hooks{}, err
		}
		a.when = append(a.when, cond)
	}
	var own []hooks.Option
	if c.During == nil {
		own = append(own, hooks.Pure())
	} else {
		during, err := c.During.compile(kind, "during")
		if err != nil {
			return hooks.Hooks{}, err
		}
		a.during = &during
		if a.config.Now == nil {
			a.config.Now = time.Now
		}
	}
	return hooks.Hooks{BeforeToolCall: hooks.Named("require-approval", "1", a.ask, given(c, hooks.PhaseValidate, opts, own...)...)}, nil
}

type approval struct {
	config RequireApprovalConfig
	when   []condition
	during *daytime
}

func (a *approval) ask(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
	none := hooks.BeforeToolCallResult{Action: hooks.ActionContinue}
	why := "Calls of " + shorten(in.Call.Name, maxShown) + " need a person's yes"
	if len(a.config.Tools) > 0 {
		if _, hit := oneMatches(a.config.Tools, in.Call.Name); !hit {
			return none, nil
		}
	}
	if a.during != nil {
		now := a.config.Now()
		if !a.during.covers(now) {
			return none, nil
		}
		why += ", since it is " + a.during.clock(now)
	}
	for _, c := range a.when {
		holds, unknown := c.met(in.Call.Arguments)
		switch {
		case !holds:
			return none, nil
		case unknown != nil:
			why += fmt.Sprintf(", since of %s nobody can say (%v)", quoted(c.about), unknown)
		default:
			why += fmt.Sprintf(", since %s is %s", quoted(c.about), c.argues)
		}
	}
	if a.config.Reason != "" {
		why = a.config.Reason
	} else {
		why += "."
	}
	return hooks.BeforeToolCallResult{Action: hooks.ActionAsk, Reason: hooks.Reason{Code: "approval_required", Text: why}}, nil
}
