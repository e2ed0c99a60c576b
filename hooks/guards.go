package hooks

import (
	"context"
	"fmt"
	"path"
	"strings"
)

// DenyTools refuses calls of the tools whose name matches one of globs, in the
// syntax of [path.Match]. A glob that is not well-formed matches nothing that
// it should, so the hook fails, and the call is refused for that.
func DenyTools(globs ...string) BeforeToolCallFunc {
	deny := func(_ context.Context, in BeforeToolCall) (BeforeToolCallResult, error) {
		for _, g := range globs {
			hit, err := path.Match(g, in.Call.Name)
			if err != nil {
				return BeforeToolCallResult{}, fmt.Errorf("match %q: %w", g, err)
			}
			if hit {
				return BeforeToolCallResult{Action: ActionBlock, Reason: Reason{
					Code: "tool_denied", Rule: shorten(g, maxCode), Text: "The tool " + shorten(in.Call.Name, 80) + " is not allowed here.",
				}}, nil
			}
		}
		return BeforeToolCallResult{Action: ActionContinue}, nil
	}
	return Named("deny-tools", "1", deny, InPhase(PhaseValidate), OfKind(KindHost), WithConfig(strings.Join(globs, " ")))
}

// MaxInputBytes refuses a user's message of more than n bytes.
func MaxInputBytes(n int) BeforeInputFunc {
	limit := func(_ context.Context, in BeforeInput) (BeforeInputResult, error) {
		if len(in.Text) <= n {
			return BeforeInputResult{Action: ActionContinue}, nil
		}
		return BeforeInputResult{Action: ActionBlock, Reason: Reason{
			Code: "input_too_long", Text: fmt.Sprintf("The message has %d bytes; at most %d are allowed.", len(in.Text), n),
		}}, nil
	}
	return Named("max-input-bytes", "1", limit, InPhase(PhaseValidate), OfKind(KindHost), WithConfig(fmt.Sprint(n)))
}
