package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/guard"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
)

// memory counts for the examples: what was spent is more than any budget.
type memory map[string]int

func (m memory) TakeSlot(_ context.Context, s guard.Slot) (guard.Taken, error) {
	key := s.Guard + "/" + s.Tool
	if m[key] >= s.Calls {
		return guard.Taken{Used: m[key]}, nil
	}
	m[key]++
	return guard.Taken{OK: true, Used: m[key]}, nil
}

func (memory) Spent(context.Context, guard.Expense) (guard.Spent, error) {
	return guard.Spent{Tokens: 1 << 40, Cost: hooks.MaxMicros}, nil
}

func (memory) Suspected(context.Context, hooks.RunRef, string) (bool, error) { return false, nil }

// TestDocsOfBuiltinsSayWhatThereIs: every example is a config file, and what
// stands under it is what it says.
func TestDocsOfBuiltinsSayWhatThereIs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/builtins.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```(?:\n```text\n(.*?)```)?").FindAllStringSubmatch(string(text), -1)
	lines := 0
	for i, b := range blocks {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("agentd-%d.yaml", i))
		if err := os.WriteFile(path, []byte(b[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		counts := &counters{}
		counts.use(memory{})
		c, err := hookConfig{path: path, counters: counts}.read()
		if err != nil {
			t.Errorf("%v\n%s", err, b[1])
			continue
		}
		for line := range strings.Lines(b[2]) {
			lines++
			about, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " → ")
			if got := exampleSays(t, c.hooks, about, strconv.Itoa(lines)); got != want {
				t.Errorf("%s → %s; the docs say %s", about, got, want)
			}
		}
	}
	if lines < 25 {
		t.Errorf("docs/builtins.md has %d examples in %d blocks", lines, len(blocks))
	}
	for kind := range hookKinds {
		if _, ok := hookKinds[kind].config().(*ruleFiles); !ok && strings.Contains(string(text), "## "+kind+"\n") != isGuard(kind) {
			t.Errorf("docs/builtins.md and the kind %s", kind)
		}
	}
	for _, name := range setting.PatternNames() {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/builtins.md does not name the pattern %s", name)
		}
	}
}

// isGuard reports whether a kind is one of package guard.
func isGuard(kind string) bool {
	return strings.Contains(fmt.Sprintf("%T", hookKinds[kind].config()), "guard.")
}

// exampleSays is what the hooks say of a line of the docs.
func exampleSays(t *testing.T, h hooks.Hooks, line, id string) string {
	t.Helper()
	run := hooks.RunRef{TenantID: "acme", SessionID: "s", RunID: "r", Agent: "demo"}
	kind, rest, _ := strings.Cut(line, " ")
	text, _ := strconv.Unquote(rest)
	switch kind {
	case "message":
		return exampleAt(t, h.BeforeInput, hooks.BeforeInput{Text: text}, func(in hooks.BeforeInput) string { return in.Text })
	case "output":
		return exampleAt(t, h.AfterToolCall, hooks.AfterToolCall{RunRef: run, Content: text}, func(in hooks.AfterToolCall) string { return in.Content })
	case "model":
		return exampleAt(t, h.TransformContext, hooks.TransformContext{RunRef: run}, nil)
	case "call":
		tool, arguments, _ := strings.Cut(rest, " ")
		call := hooks.ToolCall{ID: id, Name: tool, Arguments: arguments}
		if said := exampleAt(t, h.BeforeToolCall, hooks.BeforeToolCall{RunRef: run, Call: call}, nil); said != "continue" {
			return said
		}
		return exampleAt(t, h.BeforeExecute, hooks.BeforeExecute{RunRef: run, Call: call}, nil)
	}
	return "not an example"
}

func exampleAt[In hooks.Input[In, Out], Out hooks.Result](t *testing.T, f hooks.Func[In, Out], in In, text func(In) string) string {
	t.Helper()
	v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, f, hooks.Position{Attempt: 1}, in, nil)
	if err != nil {
		t.Fatal(err)
	}
	said := string(v.Action)
	if v.Reason.Code != "" {
		said += " " + v.Reason.Code
	}
	if v.Action == hooks.ActionTransform && text != nil {
		said += " " + strconv.Quote(text(v.Value))
	}
	return said
}

// TestGuardsThatCountAreClosedWithoutADatabase, and are there for hooks list.
func TestGuardsThatCountAreClosedWithoutADatabase(t *testing.T) {
	t.Parallel()
	dir := configFiles(t, map[string]string{"agentd.yaml": `
hooks:
  - rate_limit: {calls: 1, per: run}
    id: mine
    tools: pay
  - budget: {tokens: 1, per: run}
  - prompt_injection_markers: {action: ask}
`})
	c, err := hookConfig{path: filepath.Join(dir, "agentd.yaml")}.read()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"call pay {}", "model"} {
		if got := exampleSays(t, c.hooks, line, "1"); got != "block hook.error" {
			t.Errorf("%s: %s", line, got)
		}
	}
	if got := exampleSays(t, hooks.Hooks{BeforeExecute: c.hooks.BeforeExecute}, "call pay {}", "1"); got != "block hook.error" {
		t.Errorf("the limit: %s", got)
	}
}

// counted remembers under which names is counted.
type counted struct {
	memory
	seen map[string]bool
}

func (k counted) TakeSlot(ctx context.Context, s guard.Slot) (guard.Taken, error) {
	k.seen[s.Guard] = true
	return k.memory.TakeSlot(ctx, s)
}

// TestLimitsOfAFileCountUnderTheirOwnIDs: the common keys are the hook's before
// it counts.
func TestLimitsOfAFileCountUnderTheirOwnIDs(t *testing.T) {
	t.Parallel()
	dir := configFiles(t, map[string]string{"agentd.yaml": `
hooks:
  - rate_limit: {calls: 1, per: run}
  - {id: second, rate_limit: {calls: 1, per: run}}
  - {id: third, tools: pay, rate_limit: {calls: 1, per: run}}
`})
	counts, k := &counters{}, counted{memory{}, map[string]bool{}}
	counts.use(k)
	c, err := hookConfig{path: filepath.Join(dir, "agentd.yaml"), counters: counts}.read()
	if err != nil {
		t.Fatal(err)
	}
	if got := exampleSays(t, c.hooks, "call pay {}", "1"); got != "continue" || len(k.seen) != 3 {
		t.Errorf("%s, counted under %v", got, k.seen)
	}
}
