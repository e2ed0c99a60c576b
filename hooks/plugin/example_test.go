package plugin_test

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

var simple = plugin.Config{
	ID: "simple", Events: []string{"BeforeToolCall", "OnRunEnd"},
	OnEvent: func(ctx context.Context, e plugin.PluginEvent) (plugin.EventResult, error) {
		if e.Type == "BeforeToolCall" && bytes.Contains(e.Payload, []byte("refund")) {
			return plugin.EventResult{Block: true, Reason: "Nobody refunds here."}, nil
		}
		return plugin.EventResult{}, nil
	},
}

func TestTheDocumentedSimplePluginDoesWhatItSays(t *testing.T) {
	t.Parallel()
	p := told(t, simple)
	for tool, want := range map[string]hooks.Action{"refund": hooks.ActionBlock, "look": hooks.ActionContinue} {
		if a, err := answer(t, p, wire.BeforeToolCall, hooks.BeforeToolCall{Call: hooks.ToolCall{Name: tool}}); err != nil || a.Action != want {
			t.Errorf("%s: %+v, %v", tool, a, err)
		}
	}
}

// TestDocumentedGoIsSomeThatCompiles: what the document shows is part of what is
// compiled.
func TestDocumentedGoIsSomeThatCompiles(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read("../../docs/plugins.md"), -1)
	sources := []string{"../../examples/plugins/policy/main.go", "example_test.go", "../../examples/plugins/redact/main.go"}
	if len(blocks) != len(sources) {
		t.Fatalf("%d blocks of Go", len(blocks))
	}
	for i, source := range sources {
		if !strings.Contains(read(source), blocks[i][1]) {
			t.Errorf("%s has nothing like\n%s", source, blocks[i][1])
		}
	}
}
