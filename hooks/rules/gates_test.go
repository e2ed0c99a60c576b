package rules_test

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/rules"
)

func TestTheExamplesOfTheShopHold(t *testing.T) {
	t.Parallel()
	s, err := rules.Load([]string{"testdata/shop.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	passes(t, s, 10)
}

// TestEveryGateTakesItsActions: each of them once, with every variable of its
// gate in the condition.
func TestEveryGateTakesItsActions(t *testing.T) {
	t.Parallel()
	s, err := rules.Load([]string{"testdata/gates.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	passes(t, s, 30)
	listed := map[hooks.Gate]int{}
	for _, r := range s.Rules() {
		listed[r.Gate]++
	}
	if len(listed) != 9 {
		t.Errorf("rules at %v", listed)
	}
}

func TestRuleIsRegisteredAsItSays(t *testing.T) {
	t.Parallel()
	s := set(t, `rules:
  - {id: guard, description: d, gate: BeforeToolCall, tools: ["rm*"], agents: support, tenants: [acme, x], when: turn > 0, block: no, timeout: 150ms, on_failure: open, phase: mutate}
  - {id: late, gate: BeforeToolCall, when: now > timestamp("2026-01-01T00:00:00Z"), block: no}
  - {id: clean, gate: AfterToolCall, redact: {pattern: secret}}
  - {id: answer, gate: AfterProviderResponse, when: status == 429, block: no}
`)
	registered := map[string]hooks.Registration{}
	for _, r := range s.Hooks().Set().Hooks {
		registered[r.ID] = r
	}
	guard := registered["guard"]
	if guard.Kind != hooks.KindRule || guard.Phase != hooks.PhaseMutate || guard.OnFailure != hooks.FailOpen || guard.TimeLimit.String() != "150ms" || !guard.Pure ||
		guard.Only == nil || len(guard.Only.Tenants) != 2 || guard.Only.Agents[0] != "support" || guard.Only.Tools[0] != "rm*" {
		t.Errorf("guard: %+v", guard)
	}
	if late := registered["late"]; late.Pure || late.Only != nil || late.Phase != hooks.PhaseValidate || late.OnFailure != hooks.FailClosed {
		t.Errorf("late: %+v", late)
	}
	if clean := registered["clean"]; !clean.Redacting || clean.Phase != hooks.PhaseMutate {
		t.Errorf("clean: %+v", clean)
	}
	if a := registered["answer"]; a.OnFailure != hooks.FailOpen {
		t.Errorf("answer: %+v", a)
	}
	for _, r := range s.Rules() {
		h := registered[r.ID]
		if len(r.Digest) != 64 || h.Digest != r.Digest || h.Version != r.Digest[:12] || h.Version != r.Version || h.Config == "" || h.Pure != r.Pure {
			t.Errorf("%s: %+v, registered %+v", r.ID, r, h)
		}
	}
}

// TestDigestIsThatOfTheWords: not of comments, examples and white space.
func TestDigestIsThatOfTheWords(t *testing.T) {
	t.Parallel()
	digest := func(text string) string { return set(t, text).Rules()[0].Digest }
	a := digest("rules:\n- id: a\n  gate: BeforeInput\n  when: text == \"x\"\n  block: no\n")
	b := digest("rules:\n  # why\n  - id: a # who\n    gate: BeforeInput\n    when: 'text == \"x\"'\n    block: \"no\"\n    examples: [{input: {text: x}, expect: block}]\n")
	c := digest("rules:\n- id: a\n  gate: BeforeInput\n  when: text == \"y\"\n  block: no\n")
	if a != b || a == c {
		t.Errorf("digests %s, %s, %s", a, b, c)
	}
}

func TestRulesThatLookAtTimeAreNotPure(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]bool{
		`call.arguments.x == 1 && timestamp("2026-01-01T00:00:00Z").getHours() == 0`: true,
		`timestamp(call.arguments.t).getHours() == 0`:                                true,
		`now.getHours() == 0`:  false,
		`.now.getHours() == 0`: false,
		`timestamp(call.arguments.t).getHours("Europe/Berlin") == 0`:                                false,
		`call.arguments.t.getSeconds("Europe/Berlin") == 0`:                                         false,
		`[timestamp(call.arguments.t)].exists(t, t.getDayOfWeek("Asia/Tokyo") == 0)`:                false,
		`[1].exists(tenant, tenant == 1)`:                                                           true,
		`call.arguments.now == 1 || call.name == "now" || {"now": 1}.now == 1 || "now" in {"a": 1}`: true,
	} {
		if got := set(t, when(expression)).Rules()[0].Pure; got != want {
			t.Errorf("%s: pure is %v", expression, got)
		}
	}
	if set(t, "rules: [{id: a, gate: BeforeInput, block: 'at {{ now }}'}]").Rules()[0].Pure {
		t.Error("a rule that tells the time is pure")
	}
}

func TestAValueOfAnotherTypeIsToldAsOne(t *testing.T) {
	t.Parallel()
	_, ds := ask(t, set(t, when(`call.arguments.n > 5`)).Hooks().BeforeToolCall, calling("pay", `{"n": "6"}`))
	if reason := ds[0].Payload.Reason; !strings.Contains(reason, "no such overload: a value there is of another type; where it may be, ask with type(...) == int") {
		t.Errorf("reason %q", reason)
	}
	_, ds = ask(t, set(t, when(`type(call.arguments.n) == int && call.arguments.n > 5`)).Hooks().BeforeToolCall, calling("pay", `{"n": "6"}`))
	if ds[0].Outcome != hooks.OutcomeOK || ds[0].Action != hooks.ActionContinue {
		t.Errorf("asked for its type first: %s, %s: %s", ds[0].Outcome, ds[0].Action, ds[0].Payload.Reason)
	}
}

func TestRuleThatDoesNotFitLeavesNoRow(t *testing.T) {
	t.Parallel()
	h := set(t, `rules:
  - {id: other, gate: BeforeToolCall, tools: mv, block: no}
  - {id: elsewhere, gate: BeforeToolCall, tenants: initech, block: no}
  - {id: holds-not, gate: BeforeToolCall, tools: rm, when: turn > 1, block: no}
  - {id: fails, gate: BeforeToolCall, agents: "s*", when: call.arguments.x == 1, block: no, on_failure: open}
  - {id: asks, gate: BeforeToolCall, ask: "sure?"}
`).Hooks()
	v, ds := ask(t, h.BeforeToolCall, calling("rm", `{}`))
	var got []string
	for _, d := range ds {
		if d.RuleID != d.HookID || d.HookKind != hooks.KindRule {
			t.Errorf("row of %s names the rule %q of kind %s", d.HookID, d.RuleID, d.HookKind)
		}
		got = append(got, d.RuleID+" "+string(d.Action)+" "+string(d.Outcome))
	}
	want := []string{"holds-not continue ok", "fails continue error", "asks ask ok"}
	if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || v.Action != hooks.ActionAsk || !ds[1].FailedOpen {
		t.Errorf("rows %q, %s", got, v.Action)
	}
	if want := "error: r.yaml:5:73: no such key: x; where it may be missing, ask with has(...) first"; ds[1].Payload.Reason != want {
		t.Errorf("reason %q\n  want %q", ds[1].Payload.Reason, want)
	}
}
