package webhook

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// keysOf are the names of a struct in the order in which they are written.
func keysOf(t reflect.Type) (keys []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			keys = append(keys, name)
		}
	}
	return keys
}

// TestDocsSayWhatIsSentAndTaken: the tables of every gate.
func TestDocsSayWhatIsSentAndTaken(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	code := func(words []string) string {
		if len(words) == 0 {
			return "–"
		}
		return "`" + strings.Join(words, "` `") + "`"
	}
	has := func(line string) {
		t.Helper()
		if !strings.Contains(string(text), line) {
			t.Errorf("docs/webhooks.md does not say: %s", line)
		}
	}
	inputs := []any{
		hooks.BeforeInput{}, hooks.BeforeRunStart{}, hooks.TransformContext{}, headersSent{}, hooks.BeforeProviderRequest{},
		headersSent{Status: 200}, hooks.BeforeToolCall{}, hooks.BeforeExecute{}, hooks.AfterToolCall{},
	}
	answers := []any{inputReply{}, runStartReply{}, contextReply{}, headersReply{}, requestReply{}, plainReply{}, callReply{}, plainReply{}, outputReply{}}
	for i, g := range gateNames {
		input := keysOf(reflect.TypeOf(inputs[i]))
		sent := map[string]any{}
		if err := json.Unmarshal([]byte(encode(inputs[i])), &sent); err != nil {
			t.Fatal(err)
		}
		var always []string
		for _, k := range input {
			if _, ok := sent[k]; ok {
				always = append(always, k)
			}
		}
		has(fmt.Sprintf("\n| %#q | %s |\n", string(g), code(always)))
		has(fmt.Sprintf("| %s |\n", code(keysOf(reflect.TypeOf(answers[i]))[len(keysOf(reflect.TypeFor[head]())):])))
	}
	for _, k := range append(keysOf(reflect.TypeFor[question]()), keysOf(reflect.TypeFor[head]())...) {
		has("`" + k + "`")
	}
	for _, c := range []string{
		CodeConnect, CodeTLS, CodeRefusedAddress, CodeConnectionLost, CodeRedirect, CodeMalformed, CodeWrongID, CodeOversize, CodeQueueFull, CodeCircuitOpen,
	} {
		has(fmt.Sprintf("| %#q", c))
	}
	has(fmt.Sprintf("`concurrency` | how many questions are under way at once, %d |", DefaultConcurrency))
	has(fmt.Sprintf("`queue` | how many more wait for that, %d;", DefaultQueue))
	has(fmt.Sprintf("`{failures: %d, open: %s}`", DefaultBreakerFailures, DefaultBreakerOpen))
}
