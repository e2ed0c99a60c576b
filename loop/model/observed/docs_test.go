package observed_test

import (
	"os"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/observe"
)

// TestTheDocumentSaysWhatThereIs: each word that a plugin may be told, and the code of
// the example as it is run here.
func TestTheDocumentSaysWhatThereIs(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	doc := read("../../../docs/lifecycle.md")
	var words []string
	for _, c := range observe.Completions() {
		words = append(words, string(c))
	}
	for _, e := range observe.Errors() {
		words = append(words, string(e))
	}
	words = append(words, "reasoning", "tool_call", "tool_arguments", "finish", "error", "panic", "timeout")
	for _, word := range words {
		if !strings.Contains(doc, "`"+word+"`") {
			t.Errorf("no `%s`", word)
		}
	}
	_, code, _ := strings.Cut(read("example_test.go"), "// refusals counts")
	code, _, _ = strings.Cut(code, "\n\nfunc ExampleWrap")
	if code == "" || !strings.Contains(doc, "// refusals counts"+code) {
		t.Error("its example is another one")
	}
}
