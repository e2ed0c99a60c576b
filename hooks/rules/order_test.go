package rules_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/rules"
)

// TestOrderIsThatOfTheFiles: by phase, and never by who answers first. The rules
// that come first look at far more than the others.
func TestOrderIsThatOfTheFiles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		texts := []string{"rules:\n", "rules:\n"}
		var mutate, validate []string
		n := rapid.IntRange(2, 5).Draw(t, "rules")
		for i := range n {
			file := i * 2 / n
			slow := rapid.IntRange(0, 5).Draw(t, "work")
			condition := "[" + strings.Repeat("1,", slow) + "1].all(x, [1,2,3].all(y, x + y > 0))"
			id := fmt.Sprintf("r%d", i)
			if rapid.Bool().Draw(t, "changes") {
				mutate = append(mutate, id)
				texts[file] += fmt.Sprintf("  - {id: %s, gate: BeforeToolCall, when: '%s', transform: {arguments: {by: '{{ call.arguments.by }} %s'}}}\n", id, condition, id)
				continue
			}
			validate = append(validate, id)
			texts[file] += fmt.Sprintf("  - {id: %s, gate: BeforeToolCall, when: '%s', ask: '{{ call.arguments.by }}'}\n", id, condition)
		}
		var files []rules.File
		for i, text := range texts {
			if strings.Contains(text, "id") {
				files = append(files, rules.File{Name: fmt.Sprint(i), Text: []byte(text)})
			}
		}
		s, err := rules.Parse(files)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Concat(mutate, validate)
		var listed, asked []string
		for _, r := range s.Rules() {
			listed = append(listed, r.ID)
		}
		v, ds, err := hooks.Ask(context.Background(), &hooks.Asker{}, s.Hooks().BeforeToolCall, hooks.Position{}, calling("t", `{"by":""}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			asked = append(asked, d.RuleID)
		}
		if !slices.Equal(listed, want) || !slices.Equal(asked, want) {
			t.Fatalf("listed %v, asked %v; want %v", listed, asked, want)
		}
		by := strings.TrimSpace(strings.Join(append([]string{""}, mutate...), " "))
		if got := v.Value.Call.Arguments; got != fmt.Sprintf(`{"by":%q}`, " "+by) && len(mutate) > 0 {
			t.Fatalf("arguments %s; want those of %s", got, by)
		}
		if len(validate) > 0 && (v.HookID != validate[0] || strings.TrimSpace(v.Reason.Text) != by) {
			t.Fatalf("decided by %s, who saw %q; want %s and %q", v.HookID, v.Reason.Text, validate[0], by)
		}
	})
}

func TestIDsAreThoseOfOneRuleInAllFiles(t *testing.T) {
	t.Parallel()
	text := []byte("rules:\n  - {id: a, gate: BeforeInput, block: x}\n")
	_, err := rules.Parse([]rules.File{{Name: "one.yaml", Text: text}, {Name: "two.yaml", Text: text}})
	if err == nil || err.Error() != `two.yaml:2:5: the id "a" is that of the rule at one.yaml:2` {
		t.Errorf("%v", err)
	}
}

func TestFailedExamplesAreToldWithWhatDiffers(t *testing.T) {
	t.Parallel()
	s := set(t, `rules:
  - id: a
    gate: BeforeToolCall
    tools: rm
    when: call.arguments.n > 1
    block: "n is {{ call.arguments.n }}"
    examples:
      - name: first
        input: {call: {name: rm, arguments: {n: 1}}}
        expect: {action: block, rule: a, code: c, reason: r}
      - {input: {call: {name: mv}}, expect: block}
      - {input: {call: {name: rm}}, expect: block}
      - {input: {call: {name: rm, arguments: {n: 2}}}, expect: {action: block, outcome: error}}
examples:
  - gate: BeforeToolCall
    input: {call: {name: rm, arguments: {n: 1, l: [1], o: {p: 1}}}}
    expect: {action: continue, value: {arguments: {n: 2, l: [1, 2], o: {p: "1", q: 1, r: null}, gone: null}}}
  - {gate: BeforeInput, input: {text: x}, expect: skip}
`)
	rep, err := s.Test(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range rep.Failures {
		got = append(got, fmt.Sprintf("%s:%d %s %s: %s", f.File, f.Line, f.Rule, f.Name, strings.Join(f.Differences, "; ")))
	}
	want := []string{
		"r.yaml:8 a first: action: expected block, got continue; code: expected c, got nothing; reason: expected r, got nothing; rule: expected a, got nothing",
		"r.yaml:11 a : action: expected block, got continue; no rule was asked: their gates or their tools, agents and tenants do not fit the input",
		"r.yaml:12 a : outcome: expected ok, got error of rule a: error: r.yaml:5:25: no such key: n; where it may be missing, ask with has(...) first",
		"r.yaml:13 a : outcome: expected error, got ok",
		"r.yaml:15  : value.arguments.n: expected 2, got 1; value.arguments.l: expected [1,2], got [1]; value.arguments.o.p: expected \"1\", got 1; value.arguments.o.q: expected 1, got nothing",
	}
	if rep.Examples != 6 || !slices.Equal(got, want) {
		t.Errorf("%d examples, %d failures:\n%s\nwant\n%s", rep.Examples, len(got), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Test(ctx); err == nil {
		t.Error("examples were run although nobody waits")
	}
}

func TestSetWithoutRulesHasNoHooks(t *testing.T) {
	t.Parallel()
	var none rules.Set
	for _, s := range []*rules.Set{&none, set(t, "rules: []")} {
		if h := s.Hooks(); len(h.Set().Hooks) != 0 || h.BeforeInput != nil || s.Rules() != nil {
			t.Errorf("%+v", h.Set())
		}
	}
}
