package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// Tool is a tool of the plugin. Models see it under a name that has the plugin's
// before it.
type Tool struct {
	// Name is 1 to 64 letters, digits, dashes and underscores.
	Name string
	// Description is for the model.
	Description string
	// Schema is the JSON Schema of the arguments, an object schema. The host lets no
	// others through.
	Schema json.RawMessage
	// Idempotent declares that running it twice with the same CallID has the effect of
	// running it once. Only such a tool is run again after a crash.
	Idempotent bool
	// Run runs it. An error, or a panic, is a failed call whose text the model does not
	// see: what it is to know of a failure is an output. Run is called from several
	// goroutines at once and should return soon after ctx ends.
	//
	// Progress tells people how far it is, until Run returns. It does not wait: of many
	// in short time some are left out. It may be called from several goroutines at once.
	Run func(ctx context.Context, in ToolInput, progress func(text string)) (ToolOutput, error)
}

// ToolInput is one execution of a tool. It has passed all gates and approvals.
type ToolInput struct {
	// CallID is agentd's id for the call: the same on every attempt, and so the key to
	// hand to whatever the tool calls.
	CallID string
	// Attempt counts from 1.
	Attempt int
	// Run is whose it is.
	Run hooks.RunRef
	// Arguments are one JSON document that fits the schema.
	Arguments json.RawMessage
}

// ToolOutput is what a tool gave back.
type ToolOutput struct {
	// Content is text for the model; JSON is text, too. The host stores 1 MiB.
	Content string
	// IsError marks a content that reports a failure.
	IsError bool
}

func (t Tool) spec() (*pluginv1.ToolSpec, error) {
	switch schema := bytes.TrimSpace(t.Schema); {
	case !toolPattern.MatchString(t.Name):
		return nil, fmt.Errorf("tool %q: the name is not 1 to 64 letters, digits, dashes and underscores", t.Name)
	case t.Run == nil:
		return nil, fmt.Errorf("tool %q: it has no Run", t.Name)
	case !json.Valid(schema) || schema[0] != '{':
		return nil, fmt.Errorf("tool %q: the schema is not a JSON object", t.Name)
	}
	return &pluginv1.ToolSpec{
		Name: t.Name, Description: wire.Text(t.Description), SchemaJson: wire.Text(string(t.Schema)), Idempotent: t.Idempotent,
	}, nil
}
