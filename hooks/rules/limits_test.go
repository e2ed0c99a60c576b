package rules_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/rules"
)

// fullSize has the tests run into limits that take the race detector minutes.
var fullSize = os.Getenv("AGENTD_FULL_SIZE") != ""

type hostile struct{ rule, arguments, want string }

// allocated is how much memory this process has taken, given back or not.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func when(expression string) string {
	return "rules:\n  - {id: a, gate: BeforeToolCall, block: x, when: " + quoteYAML(expression) + "}\n"
}

func quoteYAML(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func TestHostileFilesAreRefusedCheaply(t *testing.T) { //nolint:paralleltest // what is allocated counts for the whole process
	repeat := strings.Repeat
	for name, c := range map[string]struct{ text, want string }{
		"a long expression":       {when(repeat("true || ", 600) + "true"), "the expression has 4804 bytes; at most 4096 are taken"},
		"nested brackets":         {when(repeat("(", 1000) + "true" + repeat(")", 1000)), "expression recursion limit exceeded: 40"},
		"nested lists":            {when(repeat("[", 1000) + repeat("]", 1000) + " == []"), "expression recursion limit exceeded: 40"},
		"a chain of choices":      {when(repeat("turn>0?1:", 400) + "1 == 1"), "expression recursion limit exceeded: 40"},
		"many nodes":              {when("[" + repeat("1,", 2020) + "1] == []"), "expression node count"},
		"macros in macros":        {when(repeat("[1].all(x,", 30) + "true" + repeat(")", 30)), "comprehension exceeds nesting limit"},
		"loops in loops":          {when("call.arguments.a.all(x, call.arguments.a.all(y, call.arguments.a.all(z, x==y && y==z)))"), "the expression may cost"},
		"repeated repeats":        {when(`call.name.matches("((a{10}b{10}){10}c{10}){10}")`), "the pattern comes to about 4530 instructions"},
		"more repeats":            {when(`call.name.matches("(a{1000}){1000}")`), "invalid repeat count"},
		"repeats to be redacted":  {"rules: [{id: a, gate: AfterToolCall, redact: {pattern: '" + repeat("[a-f]{999}", 90) + "'}}]", "the pattern comes to about"},
		"a long pattern":          {"rules: [{id: a, gate: AfterToolCall, redact: {pattern: '" + repeat("a", 2000) + "'}}]", "the pattern has 2000 bytes"},
		"a pattern of the model":  {when("call.name.matches(call.arguments.p)"), "has to be written out"},
		"a laughing alias":        {"a: &a [x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b]\n", "anchors and aliases"},
		"deep YAML":               {"rules: " + repeat("[", 100_000), "max depth"},
		"wide YAML":               {"rules: [" + repeat("x,", 130_000) + "x]", "the file has too many values"},
		"a long file":             {repeat("#", rules.MaxFileBytes+1), "the file has 262145 bytes"},
		"a long text":             {"rules: [{id: a, gate: BeforeInput, block: " + repeat("x", 20_000) + "}]", "has 20000 bytes; at most 16384"},
		"a long id":               {"rules: [{id: " + repeat("x", 65) + ", gate: BeforeInput, block: x}]", "id has 65 bytes; at most 64"},
		"many expressions":        {"rules: [{id: a, gate: BeforeInput, block: '" + repeat("{{1}}", 65) + "'}]", "more than 64 expressions"},
		"many globs":              {"rules: [{id: a, gate: BeforeToolCall, block: x, tools: [" + repeat("x,", 101) + "]}]", "tools has 101 globs"},
		"many patterns":           {"rules: [{id: a, gate: AfterToolCall, redact: [" + repeat("{pattern: x},", 33) + "]}]", "redact has 33 patterns"},
		"many rules":              {"rules: [" + manyRules(501) + "]", "there are more than 500 rules"},
		"text that is no text":    {"rules: \xff", "the file is not UTF-8"},
		"a line end of few":       {"rules:\r", "U+000D ends a line for some readers"},
		"a line end in a text":    {"# a\r\nrules: [{id: a, gate: BeforeInput, block: \"x\u2028y\"}]", "U+2028 ends a line for some readers"},
		"nothing":                 {" \n", "the file is empty"},
		"two documents":           {"rules: []\n---\nrules: []\n", "expected single document"},
		"something else":          {"[rules]", "expected a file of rules as a mapping, not a list"},
		"rules that are no list":  {"rules: x", "expected rules as a list"},
		"no rules":                {"examples: []", "the file has no key rules"},
		"a comment and no more":   {"# rules\n", "no documents"},
		"a tag":                   {"rules: [{id: !!str a, gate: BeforeInput, block: x}]", "tags such as !!str"},
		"replaced by itself":      {when(`call.name.replace("a", call.name) == ""`), "replace is not offered"},
		"joined by itself":        {when(`[call.name].join(call.name) == ""`), "join is not offered"},
		"split and formatted":     {when(`"%s".format(call.name.split("")) == ""`), "split is not offered"},
		"a constant that is none": {when(`now > timestamp("yesterday")`), "invalid timestamp"},
	} {
		before := allocated()
		_, err := parse(c.text)
		spent := allocated() - before
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.300v\n  want %q", name, err, c.want)
		}
		if spent > 64<<20 {
			t.Errorf("%s: %d MiB were allocated to refuse it", name, spent>>20)
		}
	}
}

func manyRules(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{id: r%d, gate: BeforeInput, block: x},\n", i)
	}
	return b.String()
}

func TestOnlyTheFirstErrorsAreTold(t *testing.T) {
	t.Parallel()
	_, err := parse("rules: [" + strings.Repeat("{},", 400) + "]")
	var told *rules.Errors
	if !errors.As(err, &told) || len(told.List) != rules.MaxErrors || told.More != 400-rules.MaxErrors || !strings.HasSuffix(err.Error(), "\nand 380 more") {
		t.Errorf("%v", err)
	}
	var one *rules.Error
	if !errors.As(err, &one) || one.Line != 1 || one.Column != 9 {
		t.Errorf("the first: %+v", one)
	}
}

func TestFilesThatAreNotThereOrTooManyAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := rules.Load([]string{filepath.Join(t.TempDir(), "none.yaml")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	long := filepath.Join(t.TempDir(), "long.yaml")
	if err := os.WriteFile(long, make([]byte, rules.MaxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	many := make([]string, rules.MaxFiles+50)
	for i := range many {
		many[i] = long
	}
	_, err := rules.Load(many[:1])
	if err == nil || !strings.Contains(err.Error(), "long.yaml: the file has 262145 bytes") {
		t.Errorf("%v", err)
	}
	if _, err = rules.Load([]string{"testdata"}); err == nil {
		t.Error("a folder was read")
	}
	files := make([]rules.File, rules.MaxFiles+1)
	for i := range files {
		files[i] = rules.File{Name: fmt.Sprint(i), Text: []byte("rules: []")}
	}
	if _, err := rules.Parse(files); err == nil || !strings.Contains(err.Error(), "100: there are more than 100 files") {
		t.Errorf("%v", err)
	}
}

// TestHostileRulesMeetTheirLimitsAndHarmNoOther: each is asked before a guard,
// which has to have its say.
func TestHostileRulesMeetTheirLimitsAndHarmNoOther(t *testing.T) { //nolint:paralleltest // what is allocated counts for the whole process
	const guard = "  - {id: guard, gate: BeforeToolCall, block: 'no'}\n"
	doubled := strings.Repeat(".map(x, x"+strings.Repeat(" + x", 30)+")", 3)
	numbers := `{"a":[1` + strings.Repeat(",1", 4999) + `]}`
	text := `{"s":"` + strings.Repeat("a", 1<<20) + `"}`
	cases := map[string]hostile{
		"texts in loops":        {"when: 'call.arguments.a.exists(x, call.arguments.s.contains(\"b\"))'", `{"a":[1` + strings.Repeat(",1", 999) + `],` + text[1:], "cost limit"},
		"lists that double":     {"when: 'size([call.arguments.a]" + doubled + "[0]) < 0'", numbers, "limit"},
		"as a reason":           {"ask: '{{ call.arguments.s }}" + strings.Repeat("{{ call.arguments.s }}", 9) + "'", text, "more than 8388608 bytes"},
		"more than it looks at": {"when: 'turn > 0'", strings.Repeat(" ", 8<<20) + "{}", "more than a rule looks at: 8388610 bytes, of 8388608"},
		"deep JSON":             {"when: 'call.arguments.x == 1'", `{"x":` + strings.Repeat("[", 101) + strings.Repeat("]", 101) + `}`, "nested more than 100 deep"},
		"a member twice":        {"when: 'call.arguments.x == 1'", `{"x":1,"x":2}`, `the member "x" stands twice`},
		"no JSON":               {"when: 'call.arguments.x == 1'", `{"x":`, "the arguments are not JSON: unexpected end of JSON input"},
		"more than JSON":        {"when: 'call.arguments.x == 1'", `{"x":1} {}`, "after top-level value"},
		"no text":               {"when: 'call.arguments.x == 1'", "{\"x\":\"\xff\"}", "not UTF-8"},
		"no answer":             {"when: 'call.arguments.x'", `{"x":1}`, "when is of type int; expected true or false"},
		"infinity":              {"ask: '{{ 1.0 / 0.0 }}'", `{}`, "infinite"},
		"bytes":                 {`ask: '{{ call.arguments.map(k, bytes(k)) }}'`, `{"x":1}`, "a value of type bytes cannot be written"},
		"a key that is none":    {`ask: '{{ {1: 2, "1": 3} }}'`, `{}`, ""},
		"an object that is one": {"transform: {arguments: '{{ call.arguments.x }}'}", `{"x":1}`, "transform.arguments: expected an object, not 1"},
		"a target that is none": {"transform: {arguments: {x: 1}}", `[1]`, "no JSON object: [1]"},
	}
	if fullSize {
		maps.Copy(cases, map[string]hostile{
			"loops in loops":    {"when: 'call.arguments.a.all(x, call.arguments.a.all(y, x + y > 0))'", numbers, "cost limit"},
			"texts that double": {"when: 'size([call.arguments.s]" + doubled + "[0]) < 0'", text, "limit"},
			"written out":       {"when: 'true', transform: {arguments: {x: '{{ [[1,2,3,4,5,6,7,8]]" + doubled + " }}'}}", `{}`, "JSON of more than 200000 values"},
			"many values":       {"when: 'call.arguments[0] == 1'", "[" + strings.Repeat("1,", 200_000) + "1]", "JSON of more than 200000 values"},
		})
	}
	for name, c := range cases {
		if !strings.Contains(c.rule, "ask") && !strings.Contains(c.rule, "transform") {
			c.rule += ", ask: x"
		}
		s, err := parse("rules:\n  - {id: hostile, gate: BeforeToolCall, phase: mutate, on_failure: open, timeout: 30s, " + c.rule + "}\n" + guard)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		before := allocated()
		v, ds := ask(t, s.Hooks().BeforeToolCall, calling("rm", c.arguments))
		spent := allocated() - before
		if c.want != "" && (ds[0].Outcome != hooks.OutcomeError || !strings.Contains(ds[0].Payload.Reason, c.want)) {
			t.Errorf("%s: %s %.300s\n  want %q", name, ds[0].Outcome, ds[0].Payload.Reason, c.want)
		}
		if v.Action != hooks.ActionBlock || v.HookID != "guard" {
			t.Errorf("%s: the guard was not heard: %s of %s", name, v.Action, v.HookID)
		}
		// With the race detector a text is copied to be counted.
		if spent > 256<<20 && name != "texts in loops" {
			t.Errorf("%s: %d MiB were allocated", name, spent>>20)
		}
	}
}

func TestExpressionEndsWithItsTime(t *testing.T) {
	t.Parallel()
	h := set(t, "rules: [{id: slow, gate: BeforeToolCall, timeout: 1ms, block: x, when: 'call.arguments.a.all(x, call.arguments.a.all(y, x + y > 0))'}]").Hooks()
	a := hooks.Asker{}
	v, ds, err := hooks.Ask(t.Context(), &a, h.BeforeToolCall, hooks.Position{}, calling("rm", `{"a":[1`+strings.Repeat(",1", 800)+`]}`), nil)
	if err != nil || v.Action != hooks.ActionBlock || ds[0].Outcome != hooks.OutcomeTimeout {
		t.Errorf("%s, %+v, %v", v.Action, ds, err)
	}
}

func TestRedactionIsBounded(t *testing.T) {
	t.Parallel()
	sizes := map[int]string{1000: ""}
	if fullSize {
		sizes = map[int]string{1000: "", 100_000: "oversize", 100_001: "found more than 100000 times"}
	}
	h := set(t, "rules:\n  - {id: a, gate: AfterToolCall, redact: {pattern: x, with: "+strings.Repeat("y", 256)+"}}\n").Hooks()
	for n, want := range sizes {
		_, ds := ask(t, h.AfterToolCall, hooks.AfterToolCall{Content: strings.Repeat("x", n)})
		if want == "" && ds[0].Outcome != hooks.OutcomeOK || want != "" && ds[0].Outcome == hooks.OutcomeOK {
			t.Errorf("%d: %s", n, ds[0].Outcome)
		}
	}
}
