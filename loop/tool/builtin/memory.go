package builtin

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

const (
	// maxPreview is how much of a memory memory_search shows, in bytes.
	maxPreview = 500

	defaultResults = 20
	maxResults     = 50
)

// Memories stores what agents remember, per tenant. Implementations are safe
// for concurrent use.
type Memories interface {
	// ReadMemory returns what is kept under a key; ok is false if nothing is.
	ReadMemory(ctx context.Context, tenantID, key string) (content string, ok bool, err error)
	// WriteMemory keeps content under a key, in place of what was there. Both
	// are valid text without U+0000, and no longer than [loop.MaxMemoryKey] and
	// [loop.MaxMemoryContent].
	WriteMemory(ctx context.Context, tenantID, key, content string) error
	// SearchMemories returns up to limit memories that fit the query, the best
	// first. An empty query fits all, the last written first.
	SearchMemories(ctx context.Context, tenantID, query string, limit int) ([]loop.Memory, error)
	// DeleteMemory forgets what is kept under a key; ok is false if nothing was.
	DeleteMemory(ctx context.Context, tenantID, key string) (ok bool, err error)
	// ClearMemories forgets all keys of the tenant and says how many they were.
	ClearMemories(ctx context.Context, tenantID string) (n int64, err error)
}

// storeError hides the text of a store's error, which may name hosts and
// tables, from the model. The cause stays in the chain.
type storeError struct {
	problem string
	err     error
}

func (e *storeError) Error() string { return e.problem }
func (e *storeError) Unwrap() error { return e.err }

type readArguments struct {
	Key string `json:"key" jsonschema:"the key that was given to memory_write"`
}

func memoryRead(s Surroundings) (loop.Tool, error) {
	return define("memory_read",
		"Reads back what was remembered under a key, in this or an earlier conversation.",
		func(ctx context.Context, in loop.ToolInput, args readArguments) (loop.ToolOutput, error) {
			key, _ := event.CleanText(args.Key)
			content, ok, err := s.Memories.ReadMemory(ctx, in.TenantID, key)
			switch {
			case err != nil:
				return loop.ToolOutput{}, &storeError{"the memory could not be read", err}
			case !ok:
				return loop.ToolOutput{Content: fmt.Sprintf("nothing is remembered under the key %q", key)}, nil
			}
			return loop.ToolOutput{Content: content}, nil
		})
}

type writeArguments struct {
	Key     string `json:"key" jsonschema:"a short name to find it by"`
	Content string `json:"content" jsonschema:"what to remember; it takes the place of what was remembered under the key before"`
}

func memoryWrite(s Surroundings) (loop.Tool, error) {
	return define("memory_write",
		"Remembers a text under a key for later conversations.",
		func(ctx context.Context, in loop.ToolInput, args writeArguments) (loop.ToolOutput, error) {
			key, _ := event.CleanText(args.Key)
			content, _ := event.CleanText(args.Content)
			switch {
			case strings.TrimSpace(key) == "":
				return loop.ToolOutput{}, fmt.Errorf("key: must not be blank")
			case len(key) > loop.MaxMemoryKey:
				return loop.ToolOutput{}, fmt.Errorf("key: has %d bytes, at most %d are possible", len(key), loop.MaxMemoryKey)
			case len(content) > loop.MaxMemoryContent:
				return loop.ToolOutput{}, fmt.Errorf("content: has %d bytes, at most %d are possible", len(content), loop.MaxMemoryContent)
			}
			if err := s.Memories.WriteMemory(ctx, in.TenantID, key, content); err != nil {
				return loop.ToolOutput{}, &storeError{"the memory could not be written", err}
			}
			return loop.ToolOutput{Content: fmt.Sprintf("remembered under the key %q", key)}, nil
		})
}

type searchArguments struct {
	Query string `json:"query,omitempty" jsonschema:"words to look for; everything is listed if it is left out"`
	Limit int    `json:"limit,omitempty" jsonschema:"how many to list, 20 if it is left out and at most 50"`
}

func memorySearch(s Surroundings) (loop.Tool, error) {
	return define("memory_search",
		"Lists what was remembered, in this or earlier conversations, with its keys. Long memories are shortened; memory_read gives the whole text.",
		func(ctx context.Context, in loop.ToolInput, args searchArguments) (loop.ToolOutput, error) {
			query, _ := event.CleanText(args.Query)
			limit := args.Limit
			if limit <= 0 {
				limit = defaultResults
			}
			found, err := s.Memories.SearchMemories(ctx, in.TenantID, query, min(limit, maxResults))
			if err != nil {
				return loop.ToolOutput{}, &storeError{"the memories could not be searched", err}
			}
			return loop.ToolOutput{Content: list(found)}, nil
		})
}

func list(found []loop.Memory) string {
	if len(found) == 0 {
		return "nothing was found"
	}
	var b strings.Builder
	for i, m := range found {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(m.Key + ": " + event.Shorten(m.Content, maxPreview))
	}
	return b.String()
}
