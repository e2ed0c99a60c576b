package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// configFiles writes files into a directory of their own and returns it.
func configFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const rulesOfShop = `
  - id: %s
    gate: BeforeToolCall
    block: "no"
    examples: [{input: {}, expect: block}]
`

func shopRule(id string) string { return strings.ReplaceAll(rulesOfShop, "%s", id) }

func TestHooksOfAFileStandInItsOrderBehindTheFlags(t *testing.T) {
	t.Parallel()
	dir := configFiles(t, map[string]string{
		"agentd.yaml": `
rules:` + shopRule("here") + `
hooks:
  - rules: [policies/a.yaml, policies/b.yaml]
  - deny_tools: {tools: [rm, mv]}
    agents: demo
    tenants: [a, b]
    on_failure: open
    timeout: 300ms
  - deny_tools: {tools: dd}
    id: no-dd
  - max_input_bytes: {bytes: 9}
examples:
  - {gate: BeforeToolCall, input: {}, expect: {action: block, rule: here}}
`,
		"policies/a.yaml": "rules:" + shopRule("a"),
		"policies/b.yaml": "rules:" + shopRule("b"),
	})
	code, out, said := runAgentd(t, options{dir: dir}, "hooks", "list", "--deny-tools", "x")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	var got []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		id, _, _ := strings.Cut(fields[3], "@")
		got = append(got, strings.Join([]string{fields[0], fields[1], id, fields[5], fields[6], strings.Join(fields[9:], " ")}, " "))
	}
	want := []string{
		"GATE # HOOK ON FAILURE SHADOW ONLY DEFINED",
		"BeforeInput 1 max-input-bytes closed 2s - agentd.yaml:17",
		"BeforeToolCall 1 deny-tools closed 2s - --deny-tools",
		"BeforeToolCall 2 here closed 2s - agentd.yaml:3",
		"BeforeToolCall 3 a closed 2s - policies/a.yaml:2",
		"BeforeToolCall 4 b closed 2s - policies/b.yaml:2",
		"BeforeToolCall 5 deny-tools open 300ms agents=demo tenants=a,b agentd.yaml:10",
		"BeforeToolCall 6 no-dd closed 2s - agentd.yaml:15",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("printed\n%s\nwhich is\n%s", out, strings.Join(got, "\n"))
	}

	code, out, said = runAgentd(t, options{dir: dir}, "hooks", "list", "--json")
	if code != 0 || strings.Count(out, "\n") != 6 || !strings.Contains(out, `"only":{"tenants":["a","b"],"agents":["demo"]},"defined":"agentd.yaml:10"}`) {
		t.Errorf("exit code %d, said %s, printed\n%s", code, said, out)
	}
	if code, out, _ = runAgentd(t, options{dir: dir}, "hooks", "test"); code != 0 || out != "3 rules, 4 examples, 0 failures\n" {
		t.Errorf("exit code %d, printed\n%s", code, out)
	}
}

func TestRulesOfACheckedFileAreThoseOfTheFile(t *testing.T) {
	t.Parallel()
	dir := configFiles(t, map[string]string{"c.yaml": "hooks: [{rules: a.yaml}]\nrules: []\n", "a.yaml": "rules:" + shopRule("a")})
	c, err := hookConfig{path: filepath.Join(dir, "c.yaml")}.read()
	if err != nil {
		t.Fatal(err)
	}
	v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, c.hooks.BeforeToolCall, hooks.Position{}, hooks.BeforeToolCall{Call: hooks.ToolCall{Arguments: "{}"}}, nil)
	if err != nil || v.Action != hooks.ActionBlock || v.Reason.Rule != "a" {
		t.Errorf("verdict %+v, %v", v, err)
	}
}

// TestWhatIsWrongWithAConfigFileIsToldWithItsPlaces by everything that reads one,
// and before anything starts.
func TestWhatIsWrongWithAConfigFileIsToldWithItsPlaces(t *testing.T) {
	t.Parallel()
	const text = `hooks:
  - deny_tool: {tools: [memory_clear]}
  - deny_tools: {tols: a}
  - max_input_bytes: {bytes: 9}
    tools: x
  - rules: [nope.yaml, bad.yaml]
    id: x
  - deny_tools: {tools: "a["}
    max_input_bytes: {bytes: 1}
  - {id: x}
  - x
  - deny_tools: {tools: a}
    phase: late
  - deny_tools: {tools: a}
  - deny_tools: {}
  - max_input_bytes: {bytes: 0}
  - require_approval: {when: [{argument: /a, equals: 1}, {argument: a, equals: 1}]}
hoks: 1
rules: 7
`
	const want = `agentd.yaml:2:5: a hook has no key "deny_tool"; expected one of …
agentd.yaml:2:5: the hook has no kind; expected one of …
agentd.yaml:3:18: deny_tools has no key "tols"; expected one of tools
agentd.yaml:5:12: max_input_bytes is about no tool call, so it has no tools
agentd.yaml:6:12: nope.yaml cannot be read: no such file or directory
agentd.yaml:7:9: rules takes no id here; expected shadow
agentd.yaml:8:5: the hook is deny_tools and max_input_bytes; expected one of them
agentd.yaml:8:25: tools[0]: "a[" is no glob, such as memory_*
agentd.yaml:10:5: the hook has no kind; expected one of …
agentd.yaml:11:5: expected a hook as a mapping, not "x"
agentd.yaml:13:12: deny_tools takes no phase here; expected id, tools, agents, tenants, on_failure, timeout, shadow
agentd.yaml:14:5: the id "deny-tools" of the hook at agentd.yaml:14 is that of the hook at agentd.yaml:12; give one of them another id
agentd.yaml:15:17: tools: names no tool; expected globs such as memory_*
agentd.yaml:16:30: bytes: is 0; expected a number of at least 1
agentd.yaml:17:69: when[1].argument: "a" is no JSON pointer such as /amount
agentd.yaml:18:1: the config file has no key "hoks"; expected one of …
agentd.yaml:19:8: expected rules as a list, not "7"
bad.yaml:3:3: a file of rules has no key "hooks"; expected one of examples, rules
bad.yaml:3:3: the file has no key rules
`
	dir := configFiles(t, map[string]string{"agentd.yaml": text, "bad.yaml": "# x\n\n  hooks: []\n"})
	for _, args := range [][]string{
		{"hooks", "list"}, {"hooks", "test"}, {"serve"}, {"dev"}, {"hooks", "test", "--config", filepath.Join(".", "agentd.yaml")},
	} {
		code, out, said := runAgentd(t, options{dir: dir}, args...)
		if got := withoutLists(said); code != exitUsage || out != "" || got != withoutLists("agentd: "+want) {
			t.Errorf("%v: exit code %d, printed %q, said\n%s", args, code, out, said)
		}
	}
}

var listOfKeys = regexp.MustCompile(`(?m)expected one of .*$`)

// withoutLists takes out the names of kinds and keys, of which more come.
func withoutLists(s string) string { return listOfKeys.ReplaceAllString(s, "expected one of …") }

func TestAConfigFileThatIsNamedHasToBeThere(t *testing.T) {
	t.Parallel()
	dir := configFiles(t, map[string]string{"empty.yaml": " "})
	for file, want := range map[string]string{
		"gone.yaml":  "gone.yaml: the file cannot be read: no such file or directory",
		".":          ".: the file cannot be read: is a directory",
		"empty.yaml": "empty.yaml: the file is empty; expected a mapping with keys such as hooks and rules",
	} {
		if code, _, said := runAgentd(t, options{dir: dir, env: []string{"AGENTD_CONFIG=" + file}}, "hooks", "list"); code != exitUsage || said != "agentd: "+want+"\n" {
			t.Errorf("%s: exit code %d, said %q", file, code, said)
		}
	}
	if code, out, said := runAgentd(t, options{dir: dir}, "hooks", "list"); code != 0 || !strings.Contains(out, "no hook is registered") {
		t.Errorf("without a file: exit code %d, %s%s", code, out, said)
	}
	if code, _, said := runAgentd(t, options{dir: dir}, "hooks", "test"); code != exitUsage || !strings.Contains(said, "which config file?") {
		t.Errorf("without a file: exit code %d, said %q", code, said)
	}
}

func TestHooksTestTellsWhichExampleFails(t *testing.T) {
	t.Parallel()
	dir := configFiles(t, map[string]string{
		"agentd.yaml": "hooks: [{rules: r.yaml}]\n",
		"r.yaml":      "rules:" + shopRule("a") + "examples:\n  - {name: all, gate: BeforeToolCall, input: {}, expect: continue}\n",
		"none.yaml":   "hooks: [{deny_tools: {tools: x}}]\n",
	})
	code, out, _ := runAgentd(t, options{dir: dir}, "hooks", "test")
	if want := "r.yaml:7: an example of all rules: all\n    action: expected continue, got block\n1 rule, 2 examples, 1 failure\n"; code != exitFailure || out != want {
		t.Errorf("exit code %d, printed\n%s", code, out)
	}
	code, out, _ = runAgentd(t, options{dir: dir}, "hooks", "test", "--config", "none.yaml")
	if code != 0 || !strings.HasPrefix(out, "0 rules, no examples: nothing was tested") {
		t.Errorf("exit code %d, printed %q", code, out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (hooksTestCmd{configFlags{filepath.Join(dir, "agentd.yaml")}}).Run(ctx, &std{out: &strings.Builder{}}); err == nil {
		t.Error("a test that was ended has passed")
	}
}

func TestTheConfigDocumentIsRightAndHasEveryKey(t *testing.T) {
	t.Parallel()
	text := document(t, "docs/config.md")
	_, rest, _ := strings.Cut(text, "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	dir := configFiles(t, map[string]string{"agentd.yaml": example, "policies/refunds.yaml": "rules:" + shopRule("a")})
	c, err := hookConfig{path: filepath.Join(dir, "agentd.yaml")}.read()
	if err != nil || len(c.listed()) != 4 || len(c.observed) != 3 {
		t.Errorf("%d hooks, %d observers, %v", len(c.listed()), len(c.observed), err)
	}
	for name := range observerKinds {
		if !strings.Contains(text, "\n| `"+name+"` |") {
			t.Errorf("kind %s of observers is missing", name)
		}
	}
	for name := range observerKeys {
		if _, rest, _ := strings.Cut(text, "\n## Observers\n"); !regexp.MustCompile("(?m)^\\| [^|]*`" + name + "`").MatchString(rest) {
			t.Errorf("key %s of observers is missing", name)
		}
	}
	for name := range hookKinds {
		if !strings.Contains(text, "\n| `"+name+"` |") {
			t.Errorf("kind %s is missing", name)
		}
	}
	for name := range commonKeys {
		if !regexp.MustCompile("(?m)^\\| [^|]*`" + name + "`").MatchString(text) {
			t.Errorf("key %s is missing", name)
		}
	}
}

func TestConfigsThatCannotBeMeantAreRefused(t *testing.T) {
	t.Parallel()
	many := func(n int, one string) string { return "[" + strings.Repeat(one+", ", n) + "]" }
	dir := configFiles(t, map[string]string{"r.yaml": "rules: []\n", "x.yaml": "rules:" + shopRule("deny-tools")})
	for text, want := range map[string]string{
		"hooks: " + many(501, "{rules: []}"):                                           "there are more than 500 hooks",
		"hooks: [{rules: " + many(101, "r.yaml") + "}]":                                "there are more than 100 files of rules",
		"hooks: {deny_tools: {tools: x}}":                                              "expected hooks as a list, not a mapping",
		"hooks: [{deny_tools: {tools: x}}]\nrules:" + shopRule("deny-tools"):           `c.yaml:3:3: the id "deny-tools" of the hook at `,
		"hooks: [{deny_tools: {tools: x}}, {rules: x.yaml}]":                           `c.yaml:1:35: the id "deny-tools" of the hook at `,
		"hooks: [{deny_tools: {tools: x}, on_failure: maybe}]":                         "on_failure is \"maybe\"; expected one of closed, open",
		"hooks: [{deny_tools: {tools: x}, timeout: 31s}]":                              "expected a time from 1ms to 30s",
		"hooks: [{deny_tools: {tools: x}, shadow: 1}]":                                 "shadow is \"1\"; expected true or false",
		"hooks: [{deny_tools: {tools: x}, id: a b}]":                                   "expected letters, digits",
		"hooks: [{deny_tools: {tools: x}, tenants: []}]":                               "tenants has 0 globs",
		"hooks: [{require_approval: {when: [{argument: /a, greater_than: x}]}}]":       "greater_than is \"x\"; expected a number",
		"hooks: [{require_approval: {tools: x, during: {zone: Europe/Nowhere}}}]":      "during.zone: ",
		"hooks: [{redact: {patterns: [emial]}}]":                                       "patterns[0]: \"emial\" is none of",
		"hooks: [{redact: {patterns: [email]}, agents: x, tools: x, phase: validate}]": "redact takes no phase here",
	} {
		path := filepath.Join(dir, "c.yaml")
		replaceConfig(t, path, text)
		if _, err := (hookConfig{path: path}).read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v\nwant %s", text, err, want)
		}
	}
}

func TestGuardsAreConfiguredInTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(configFiles(t, map[string]string{"c.yaml": `
hooks:
  - require_approval:
      tools: pay
      when: [{argument: /amount, greater_than: 100.50}, {argument: /to, one_of: [a, 1, true]}]
      reason: Really?
    id: big-payments
    on_failure: closed
  - redact: {patterns: email, with: "[mail]", in: message}
    shadow: true
  - rules: r.yaml
    shadow: true
`, "r.yaml": "rules:" + shopRule("a")}), "c.yaml")
	c, err := hookConfig{path: path}.read()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range c.listed() {
		got = append(got, strings.Join([]string{string(h.Gate), h.ID, yesNo(h.Shadow), h.Config[:min(len(h.Config), 150)]}, " "))
	}
	want := []string{
		`BeforeInput redact yes {"patterns":["email"],"with":"[mail]","in":["message"]}`,
		`BeforeToolCall big-payments no {"tools":["pay"],"when":[{"argument":"/amount","greater_than":100.50},{"argument":"/to","one_of":["a",1,true]}],"reason":"Really?"}`,
		`BeforeToolCall a yes {"id":"a","gate":"BeforeToolCall","block":"no"}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("registered\n%s", strings.Join(got, "\n"))
	}
}
