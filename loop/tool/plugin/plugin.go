// Package plugin makes tools of the loop of those that plugins have.
package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
	"github.com/seed-2ca4966b/agentd/loop"
)

// Tools are those of a generation's plugins, as they are whenever the result is
// called: see [loop.InForce]. What went wrong with a call is told in log, and the model
// is told no more than what it has to know.
func Tools(caller *pluginhost.Caller, log *slog.Logger) func() []loop.Tool {
	return func() []loop.Tool {
		tools := caller.Tools()
		out := make([]loop.Tool, 0, len(tools))
		for _, t := range tools {
			out = append(out, &tool{Tool: t, log: log})
		}
		return out
	}
}

type tool struct {
	*pluginhost.Tool
	log *slog.Logger
}

var (
	_ loop.Tool      = (*tool)(nil)
	_ loop.Available = (*tool)(nil)
)

// Spec implements loop.Tool.
func (t *tool) Spec() loop.ToolSpec {
	return loop.ToolSpec{Name: t.Name, Description: t.Description, Schema: t.Schema, Idempotent: t.Idempotent}
}

// Validate implements loop.Tool.
func (t *tool) Validate(arguments json.RawMessage) error { return t.Tool.Validate(arguments) }

// The errors that models are told.
var (
	errAway    = errors.New("the tool is not there at the moment, and nothing was done: its plugin is not running")
	errCrash   = errors.New("the tool's plugin ended before the tool answered: it may have taken effect")
	errTimeout = errors.New("the tool did not answer in time: it may have taken effect")
	errFailed  = errors.New("the tool failed: it may have taken effect")
)

// Call implements loop.Tool.
func (t *tool) Call(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
	progress := in.Progress
	if progress == nil {
		progress = func(string) {}
	}
	out, err := t.Execute(ctx, pluginhost.Execution{
		CallID: in.CallID, Attempt: in.Attempt, Arguments: in.Arguments,
		Run: hooks.RunRef{TenantID: in.TenantID, SessionID: in.SessionID, RunID: in.RunID, Agent: in.Agent},
	}, progress)
	if err == nil {
		return loop.ToolOutput{Content: out.Content, IsError: out.IsError}, nil
	}
	if ctx.Err() != nil {
		return loop.ToolOutput{}, ctx.Err()
	}
	t.log.Warn("the tool of a plugin failed", "plugin", t.Plugin(), "tool", t.Name, "call", in.CallID, "run", in.RunID, "session", in.SessionID, "error", err)
	return loop.ToolOutput{}, shown(err)
}

// shown is what the model is told of an error.
func shown(err error) error {
	var f *hooks.Failure
	if !errors.As(err, &f) {
		return errFailed
	}
	switch f.Outcome {
	case hooks.OutcomeUnavailable:
		return errAway
	case hooks.OutcomeCrash:
		return errCrash
	case hooks.OutcomeTimeout:
		return errTimeout
	default:
		return errFailed
	}
}
