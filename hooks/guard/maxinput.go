package guard

import (
	"context"
	"fmt"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
)

// MaxInputBytesConfig says how long a user's message may be.
type MaxInputBytesConfig struct {
	// Bytes is the most that are taken, of the text in UTF-8: a letter may have
	// up to four.
	Bytes int `json:"bytes" yaml:"bytes"`
}

// MaxInputBytes refuses a user's message that is longer, with the code
// input_too_long. It is pure, and judges the message as other hooks have left
// it.
func MaxInputBytes(c MaxInputBytesConfig, opts ...hooks.Option) (hooks.Hooks, error) {
	if c.Bytes < 1 {
		return hooks.Hooks{}, setting.Errorf("max_input_bytes", "bytes", "is %d; expected a number of at least 1", c.Bytes)
	}
	limit := func(_ context.Context, in hooks.BeforeInput) (hooks.BeforeInputResult, error) {
		if len(in.Text) <= c.Bytes {
			return hooks.BeforeInputResult{Action: hooks.ActionContinue}, nil
		}
		return hooks.BeforeInputResult{Action: hooks.ActionBlock, Reason: hooks.Reason{
			Code: "input_too_long", Text: fmt.Sprintf("The message has %d bytes; at most %d are allowed.", len(in.Text), c.Bytes),
		}}, nil
	}
	return hooks.Hooks{BeforeInput: hooks.Named("max-input-bytes", "1", limit, given(c, hooks.PhaseValidate, opts, hooks.Pure())...)}, nil
}
