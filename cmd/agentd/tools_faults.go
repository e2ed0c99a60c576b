//go:build faults

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
)

// effectsFile names the file in which the tools of a build with the tag
// "faults" take effect. Whoever kills the process counts its lines.
const effectsFile = "AGENTD_EFFECTS"

func init() {
	if path := os.Getenv(effectsFile); path != "" {
		extraTools = append(extraTools, &countedTool{path: path, name: "charge"}, &countedTool{path: path, name: "pay"}, &countedTool{path: path, name: "denied"},
			&countedTool{path: path, name: "put", idempotent: true})
	}
}

// countedTool takes effect by adding a line to a file, some time after it is
// entered and some time before it returns.
type countedTool struct {
	path, name string
	idempotent bool
}

// Spec implements [loop.Tool].
func (t *countedTool) Spec() loop.ToolSpec {
	return loop.ToolSpec{
		Name: t.name, Description: "Takes effect once.", Idempotent: t.idempotent,
		Schema: json.RawMessage(`{"type": "object", "properties": {"before_ms": {"type": "integer"}, "after_ms": {"type": "integer"}}, "additionalProperties": false}`),
	}
}

// countedArguments say how long a call takes.
type countedArguments struct {
	Before int `json:"before_ms"`
	After  int `json:"after_ms"`
}

// Validate implements [loop.Tool].
func (t *countedTool) Validate(arguments json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.DisallowUnknownFields()
	return d.Decode(&countedArguments{})
}

// Call implements [loop.Tool].
func (t *countedTool) Call(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
	var args countedArguments
	if err := json.Unmarshal(in.Arguments, &args); err != nil {
		return loop.ToolOutput{}, err
	}
	if err := sleep(ctx, args.Before); err != nil {
		return loop.ToolOutput{}, err
	}
	f, err := os.OpenFile(t.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return loop.ToolOutput{}, err
	}
	// One write, so that lines of several processes do not mix.
	_, err = fmt.Fprintf(f, "%s %s %s %d %s\n", t.name, in.RunID, in.CallID, in.Attempt, in.Arguments)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return loop.ToolOutput{}, err
	}
	if err := sleep(ctx, args.After); err != nil {
		return loop.ToolOutput{}, err
	}
	return loop.ToolOutput{Content: fmt.Sprintf("%s took effect in attempt %d", t.name, in.Attempt)}, nil
}

func sleep(ctx context.Context, ms int) error {
	timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
