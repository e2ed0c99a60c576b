package rules_test

import (
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

const tried = `
rules:
  - {id: real, gate: BeforeToolCall, tools: refund, when: call.arguments.amount > 1000, block: too much}
  - id: tried
    gate: BeforeToolCall
    tools: refund
    when: call.arguments.amount > 100
    block: "{{ call.arguments.amount }} is more than 100."
    shadow: true
    examples:
      - {input: {call: {name: refund, arguments: {amount: 250}}}, expect: {action: block, rule: tried, reason: 250 is more than 100.}}
      - {input: {call: {name: refund, arguments: {}}}, expect: {action: block, outcome: error}}
examples:
  - {gate: BeforeToolCall, input: {call: {name: refund, arguments: {amount: 250}}}, expect: continue}
  - {gate: BeforeToolCall, input: {call: {name: refund, arguments: {amount: 2500}}}, expect: {action: block, rule: real}}
`

// TestShadowRuleIsTestedAsIfItWereInForce: by its own examples. Those of the file
// are about what is in force.
func TestShadowRuleIsTestedAsIfItWereInForce(t *testing.T) {
	t.Parallel()
	s := set(t, tried)
	passes(t, s, 4)
	v, ds := ask(t, s.Hooks().BeforeToolCall, calling("refund", `{"amount":250}`))
	if v.Action != hooks.ActionContinue || len(ds) != 2 || ds[1].Action != hooks.ActionBlock || !ds[1].Shadow() || ds[1].RuleID != "tried" {
		t.Errorf("%+v, %+v", v, ds)
	}
	v, ds = ask(t, set(t, `rules: [{id: r, gate: BeforeToolCall, when: call.arguments.x > 1, block: no, shadow: true}]`).Hooks().BeforeToolCall, calling("refund", `{}`))
	if v.Action != hooks.ActionContinue || ds[0].Outcome != hooks.OutcomeError {
		t.Errorf("a shadow that fails: %+v, %+v", v, ds)
	}
	passes(t, set(t, `
rules: [{id: r, gate: BeforeToolCall, when: call.arguments.x > 1, block: "no", shadow: true}]
examples: [{gate: BeforeToolCall, input: {call: {name: a}}, expect: continue}]`), 1)
}

// TestRuleThatIsPutInForceIsTheOneThatWasTried, to the digest.
func TestRuleThatIsPutInForceIsTheOneThatWasTried(t *testing.T) {
	t.Parallel()
	of := func(more string) (hooks.Registration, bool) {
		s := set(t, `rules: [{id: r, gate: BeforeInput, block: no way`+more+`}]`)
		return s.Hooks().Set().Hooks[0], s.Rules()[0].Shadow
	}
	shadow, says := of(", shadow: true")
	if !shadow.Shadow || !says || !shadow.Pure {
		t.Errorf("%+v, %v", shadow, says)
	}
	for _, more := range []string{"", ", shadow: false"} {
		inForce, says := of(more)
		if inForce.Shadow || says || inForce.Digest != shadow.Digest || inForce.Version != shadow.Version || inForce.Config != shadow.Config {
			t.Errorf("%+v\n%+v", inForce, shadow)
		}
	}
	if _, err := parse(`rules: [{id: r, gate: BeforeInput, block: no way, shadow: "yes"}]`); err == nil || err.Error() != `r.yaml:1:59: shadow is "yes"; expected true or false` {
		t.Errorf("%v", err)
	}
}
