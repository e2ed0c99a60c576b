package guard

import (
	"context"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
)

// DenyToolsConfig says which tools may not be called.
type DenyToolsConfig struct {
	// Tools are globs, see [hooks.MatchName], at least one: a call of a
	// tool whose name one of them matches is refused. Names are compared as they
	// are, with their case.
	Tools []string `json:"tools" yaml:"tools"`
}

// DenyTools refuses calls by the name of their tool, with the code tool_denied.
// It is pure, and judges the call as it will run: a hook that changes arguments
// is asked before it.
//
// An agent's permissions can deny tools too, and are asked first. This hook is
// for what should stand in the ledger, or hold for some tenants or agents only.
func DenyTools(c DenyToolsConfig, opts ...hooks.Option) (hooks.Hooks, error) {
	const kind = "deny_tools"
	if len(c.Tools) == 0 {
		return hooks.Hooks{}, setting.Errorf(kind, "tools", "names no tool; expected globs such as memory_*")
	}
	if err := setting.CheckGlobs(kind, "tools", c.Tools); err != nil {
		return hooks.Hooks{}, err
	}
	deny := func(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
		glob, hit := oneMatches(c.Tools, in.Call.Name)
		if !hit {
			return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
		}
		return hooks.BeforeToolCallResult{Action: hooks.ActionBlock, Reason: hooks.Reason{
			Code: "tool_denied", Rule: shorten(glob, maxRule), Text: "The tool " + shorten(in.Call.Name, maxShown) + " is not allowed here.",
		}}, nil
	}
	return hooks.Hooks{BeforeToolCall: hooks.Named("deny-tools", "1", deny, given(c, hooks.PhaseValidate, opts, hooks.Pure())...)}, nil
}
