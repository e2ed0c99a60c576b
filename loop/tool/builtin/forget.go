package builtin

import (
	"context"
	"fmt"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

type deleteArguments struct {
	Key string `json:"key" jsonschema:"the key that was given to memory_write"`
}

func memoryDelete(s Surroundings) (loop.Tool, error) {
	return define("memory_delete",
		"Forgets what was remembered under a key.",
		func(ctx context.Context, in loop.ToolInput, args deleteArguments) (loop.ToolOutput, error) {
			key, _ := event.CleanText(args.Key)
			ok, err := s.Memories.DeleteMemory(ctx, in.TenantID, key)
			switch {
			case err != nil:
				return loop.ToolOutput{}, &storeError{"the memory could not be deleted", err}
			case !ok:
				return loop.ToolOutput{Content: fmt.Sprintf("nothing is remembered under the key %q", key)}, nil
			}
			return loop.ToolOutput{Content: fmt.Sprintf("forgot what was under the key %q", key)}, nil
		})
}

type clearArguments struct{}

func memoryClear(s Surroundings) (loop.Tool, error) {
	return define("memory_clear",
		"Forgets everything that was ever remembered, in all conversations.",
		func(ctx context.Context, in loop.ToolInput, _ clearArguments) (loop.ToolOutput, error) {
			n, err := s.Memories.ClearMemories(ctx, in.TenantID)
			if err != nil {
				return loop.ToolOutput{}, &storeError{"the memories could not be deleted", err}
			}
			return loop.ToolOutput{Content: fmt.Sprintf("forgot everything: %d keys", n)}, nil
		})
}
