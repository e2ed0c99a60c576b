package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// hostileConfigs are the texts of config files that nobody should have, and what is
// said of each.
func hostileConfigs() map[string][2]string {
	repeat := strings.Repeat
	bomb := "a: &a [x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'j'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, repeat(fmt.Sprintf("*%c,", c-1), 8))
	}
	deny := "hooks: [{deny_tools: {tools: x}}]"
	return map[string][2]string{
		"ten megabytes":          {repeat("# x\n", 10<<18), "at most 262144 are read"},
		"a bomb of anchors":      {bomb, "alias"},
		"a merge of itself":      {"hooks: &h\n  - <<: *h\n", "alias"},
		"deep lists":             {"hooks: " + repeat("[", 50_000), "depth"},
		"deep mappings":          {repeat("{a: ", 50_000), "depth"},
		"deep lines":             {repeat("- ", 20_000) + "x", "depth"},
		"a NUL":                  {"hooks: []\x00\n", "agentd.yaml"},
		"a NUL in a text":        {"hooks: [{deny_tools: {tools: \"a\\0\"}}]\nrules: [{id: x}]", "the rule has no gate"},
		"a NUL alone":            {"\x00", "agentd.yaml"},
		"bytes that are no text": {"hooks: [{deny_tools: {tools: \xff\xfe}}]", "is not UTF-8"},
		"half a surrogate":       {"hooks: [{deny_tools: {tools: \xed\xa0\x80}}]", "is not UTF-8"},
		"UTF-16":                 {"\xff\xfeh\x00o\x00o\x00k\x00s\x00", "is not UTF-8"},
		"lines of old Macs":      {"hooks: []\rrules: []", "U+000D ends a line for some readers"},
		"two documents":          {deny + "\n---\nhooks: []\n", "single document"},
		"a second end":           {deny + "\n...\nhooks: []\n", "agentd.yaml"},
		"a directive":            {"%TAG ! tag:x,2000:\n---\n" + "hooks: !x []\n", "agentd.yaml"},
		"a key twice":            {deny + "\nhooks: []\n", "stands twice"},
		"a key twice, escaped":   {deny + "\n\"h\\x6foks\": []\n", "stands twice"},
		"a key that is a list":   {"? [hooks]\n: []\n", "expected a text as the key"},
		"null":                   {"~", "expected the config file as a mapping"},
		"only a byte order mark": {"\ufeff", "agentd.yaml"},
		"tabs":                   {"hooks:\n\t- deny_tools: {tools: x}\n", "agentd.yaml"},
		"wide":                   {"hooks: [" + repeat("x,", 60_000) + "x]", "too many values"},
		"many hooks":             {"hooks:\n" + manyHooks(501), "more than 500 hooks"},
		"a number with zeros":    {"hooks: [{max_input_bytes: {bytes: 0x10}}]", "expected a number"},
		"a number that wraps":    {"hooks: [{max_input_bytes: {bytes: 18446744073709551617}}]", "expected a number"},
		"yes for a key":          {"hooks: [{deny_tools: {tools: x}, shadow: yes}]", "expected true or false"},
		"a limit of years":       {"hooks: [{deny_tools: {tools: x}, timeout: 9999999h}]", "expected a time"},
		"a policy in other case": {"hooks: [{deny_tools: {tools: x}, on_failure: Open}]", "expected one of closed, open"},
		"exponential CEL":        {"rules: [{id: a, gate: BeforeToolCall, block: x, when: '" + repeat("[1,2,3].all(x, ", 8) + "true" + repeat(")", 8) + "'}]", "nesting limit"},
		"a giant literal":        {"rules: [{id: a, gate: BeforeToolCall, block: x, when: 'call.name == \"" + repeat("x", 5000) + "\"'}]", "at most 4096 are taken"},
		"a catastrophic pattern": {"rules: [{id: a, gate: BeforeToolCall, block: x, when: 'call.name.matches(\"((a{100}){100}){100}\")'}]", "agentd.yaml"},
	}
}

func manyHooks(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  - {deny_tools: {tools: x}, id: h%d}\n", i)
	}
	return b.String()
}

func TestAHostileConfigFileIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range hostileConfigs() {
		path := filepath.Join(configFiles(t, map[string]string{"agentd.yaml": c[0]}), "agentd.yaml")
		got, err := hookConfig{path: path}.read()
		if err == nil || !strings.Contains(err.Error(), c[1]) || len(err.Error()) > 20_000 {
			t.Errorf("%s: %.300v\nwant %q", name, err, c[1])
		}
		if got == nil || len(got.parts) != 0 || len(got.hooks.Set().Hooks) != 0 {
			t.Errorf("%s: hooks came of it", name)
		}
	}
	// What is written on other systems is read: the same hooks come of it.
	plain := configured1(t, "hooks:\n  - deny_tools: {tools: x}\n").Set().Digest
	for name, text := range map[string]string{
		"a byte order mark": "\ufeffhooks:\n  - deny_tools: {tools: x}\n",
		"lines of Windows":  "hooks:\r\n  - deny_tools: {tools: x}\r\n",
	} {
		if got := configured1(t, text).Set().Digest; got != plain {
			t.Errorf("%s: other hooks come of it", name)
		}
	}
}

// TestAPlaceThatIsNoFileIsRefusedAtOnce, as the config file and as one that it names.
func TestAPlaceThatIsNoFileIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, link := range [][2]string{{"loop", "pool"}, {"pool", "loop"}, {"gone", "nowhere"}, {"topipe", "pipe"}} {
		if err := os.Symlink(link[1], at(link[0])); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"pipe": "is no regular file", "topipe": "is no regular file", ".": "is a directory", "loop": "too many levels", "gone": "no such file", "/dev/zero": "is no regular file",
	} {
		path := at(name)
		if filepath.IsAbs(name) {
			path = name
		}
		if _, err := (hookConfig{path: path}).read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", name, err, want)
		}
		config := filepath.Join(configFiles(t, map[string]string{"agentd.yaml": "hooks: [{rules: '" + path + "'}]\n"}), "agentd.yaml")
		if _, err := (hookConfig{path: config}).read(); err == nil || !strings.Contains(err.Error(), "cannot be read: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s as a file of rules: %v; want %s", name, err, want)
		}
	}
	many := "hooks:\n" + strings.Repeat("  - rules: r.yaml\n", 400)
	config := filepath.Join(configFiles(t, map[string]string{"agentd.yaml": many, "r.yaml": "rules: []\n"}), "agentd.yaml")
	if _, err := (hookConfig{path: config}).read(); err == nil || !strings.Contains(err.Error(), "there are more than 100 files of rules") {
		t.Errorf("many files: %.300v", err)
	}
}

// TestAnExpensivePolicyStopsNobodyElse: what is expensive in the run of one tenant is
// stopped within its limit, and the run of another, which the same hooks are asked
// about meanwhile, goes on.
func TestAnExpensivePolicyStopsNobodyElse(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	pairs := "call.arguments.list.all(x, call.arguments.list.all(y, x == y || x != y))"
	expensive := configured1(t, "rules:\n"+
		"  - {id: pairs, gate: BeforeToolCall, timeout: 5ms, when: '"+pairs+"', block: x, tools: charge}\n"+
		"  - {id: harmless, gate: BeforeToolCall, timeout: 30s, when: 'call.arguments.n == 2', block: x, tools: look}\n")
	long := `{"list": [` + strings.Repeat("1,", 1500) + `1]}`
	hostile := make([]*policed, 3)
	ended := make(chan error, len(hostile))
	for i := range hostile {
		p := s.newPoliced(t, expensive, [2]string{"charge", long})
		p.job = p.Start(t, p.Session(t), "go")
		hostile[i] = p
		go func() { ended <- p.Engine.Advance(t.Context(), p.job, loop.Holder{WorkerID: looptest.NewID()}) }()
	}
	p := s.newPoliced(t, expensive, [2]string{"look", `{"n":1}`})
	if run := p.goes(); run.Status != loop.RunCompleted || len(p.all()) != 1 {
		t.Errorf("beside it the run is %s, the tool ran with %q", run.Status, p.all())
	}
	for range hostile {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range hostile {
		p.wantClosed(s, "pairs", "pairs", hooks.KindRule, hooks.OutcomeTimeout)
	}
}
