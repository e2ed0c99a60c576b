// Command policy is a plugin that lets the model remember everything but one thing.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin"
)

// forbidden is the key under which nothing may be written.
const forbidden = "name"

func decide(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
	var arguments struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal([]byte(in.Call.Arguments), &arguments); err != nil {
		return hooks.BeforeToolCallResult{}, err // a failed check is no yes
	}
	if arguments.Key == forbidden {
		return hooks.BeforeToolCallResult{
			Action: hooks.ActionBlock,
			Reason: hooks.Reason{Code: "forbidden_key", Text: "Nothing may be remembered under the key " + forbidden + "."},
		}, nil
	}
	return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
}

func main() {
	err := plugin.Serve(plugin.Config{
		ID: "policy", Version: "1",
		Hooks: hooks.Hooks{BeforeToolCall: decide},
		On:    map[hooks.Gate]plugin.On{hooks.GateBeforeToolCall: {Tools: []string{"memory_write"}}},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
