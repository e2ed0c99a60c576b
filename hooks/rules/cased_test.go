package rules_test

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// TestAMemberInOtherLettersIsNotPassedOver: an expression that looks for a member
// of the arguments fails where a tool may read another one as that.
func TestAMemberInOtherLettersIsNotPassedOver(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		"call.arguments.amount > 100",
		"has(call.arguments.amount) && call.arguments.amount > 100",
		`"amount" in call.arguments && call.arguments["amount"] > 100`,
		`call.arguments[["amount"][0]] > 100`,
		"call.arguments.?amount.orValue(0) > 100",
		`call.arguments[?"amount"].orValue(0) > 100`,
		"[call.arguments].exists(a, has(a.amount) && a.amount > 100)",
		"call.arguments.exists(k, k == 'amount' && call.arguments[k] > 100) || has(call.arguments.amount) && call.arguments.amount > 100",
	} {
		h := set(t, when(expression)).Hooks().BeforeToolCall
		for arguments, want := range map[string]hooks.Outcome{
			`{"amount":5}`:                            hooks.OutcomeOK,
			`{"amount":5,"Amounts":500}`:              hooks.OutcomeOK,
			`{"amount":5,"Amount":500}`:               hooks.OutcomeError,
			`{"Amount":500,"amount":5}`:               hooks.OutcomeError,
			`{"AMOUNT":500}`:                          hooks.OutcomeError,
			`{"AMOUNT":500,"Amount":5}`:               hooks.OutcomeError,
			`{"amount":5,"Amount":1,"aMOUNT":500}`:    hooks.OutcomeError,
			`{"amount":5,"\u0041mount":500}`:          hooks.OutcomeError,
			`{"amount":5,"\u0061mount":500}`:          hooks.OutcomeError, // stands twice
			`{"amount":500}`:                          "block",
			`{"\u0061mount":500}`:                     "block",
			`{"amount":5e2, "other":{"AMOUNT":1000}}`: "block",
		} {
			v, ds := ask(t, h, calling("charge", arguments))
			switch {
			case want == hooks.OutcomeOK && v.Action == hooks.ActionContinue:
			case want == "block" && v.Action == hooks.ActionBlock && ds[0].Outcome == hooks.OutcomeOK:
			case want == hooks.OutcomeError && v.Action == hooks.ActionBlock && ds[0].Outcome == want:
			default:
				t.Errorf("%s of %s: %s %s %s; want %s", expression, arguments, v.Action, ds[0].Outcome, ds[0].Payload.Reason, want)
			}
		}
	}
}

// TestAllOfTheArgumentsCanBeLookedThrough: what asks for no member by its name sees
// them all as they are.
func TestAllOfTheArgumentsCanBeLookedThrough(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]hooks.Action{
		`call.arguments.all(k, k.lowerAscii() != "amount")`:                                    hooks.ActionContinue,
		`call.arguments.exists(k, k.lowerAscii() == "amount")`:                                 hooks.ActionBlock,
		`size(call.arguments) == 3`:                                                            hooks.ActionBlock,
		`type(call.arguments) == map`:                                                          hooks.ActionBlock,
		`call.arguments == {"n": {"a": 1}, "amount": 5, "x": [{}]}`:                            hooks.ActionBlock,
		`{"n": {"a": 1}, "amount": 5, "x": [{}]} == call.arguments && call.arguments.n.a == 1`: hooks.ActionBlock,
		`has(call.arguments.zone)`:                                                             hooks.ActionContinue,
		`call.arguments.x[0] == {}`:                                                            hooks.ActionBlock,
		`call.arguments.?zone.hasValue()`:                                                      hooks.ActionContinue,
		`!("zone" in call.arguments) && "amount" in call.arguments && !(1 in call.arguments)`:  hooks.ActionBlock,
	} {
		if v, ds := ask(t, set(t, when(expression)).Hooks().BeforeToolCall, calling("charge", `{"n":{"a":1},"amount":5,"x":[{}]}`)); v.Action != want || ds[0].Outcome != hooks.OutcomeOK {
			t.Errorf("%s: %s %s %s; want %s", expression, v.Action, ds[0].Outcome, ds[0].Payload.Reason, want)
		}
	}
	v, ds := ask(t, set(t, when("call.arguments.zone == 'x'")).Hooks().BeforeToolCall, calling("charge", "{}"))
	if v.Action != hooks.ActionBlock || !strings.Contains(ds[0].Payload.Reason, "no such key: zone; where it may be missing") {
		t.Errorf("a missing one: %s %s", v.Action, ds[0].Payload.Reason)
	}
	reason := set(t, "rules: [{id: a, gate: BeforeToolCall, block: '{{ call.arguments }}'}]").Hooks().BeforeToolCall
	if v, _ := ask(t, reason, calling("charge", `{"A":1,"a":2}`)); v.Reason.Text != `{"A":1,"a":2}` {
		t.Errorf("%q", v.Reason.Text)
	}
}

// TestAChangeBesideAMemberInOtherLettersIsNone: it would be undone by what the
// model wrote.
func TestAChangeBesideAMemberInOtherLettersIsNone(t *testing.T) {
	t.Parallel()
	h := set(t, `rules: [{id: cap, gate: BeforeToolCall, transform: {arguments: {amount: 100, to: {country: DE}, debug: null}}}]`).Hooks().BeforeToolCall
	for arguments, want := range map[string]string{
		`{"amount":5}`:                           `{"amount":100,"to":{"country":"DE"}}`,
		`{"amount":5,"Debugs":1,"to":{"x":"y"}}`: `{"amount":100,"Debugs":1,"to":{"x":"y","country":"DE"}}`,
		`{"amount":5,"Amount":500}`:              "",
		`{"AMOUNT":500}`:                         "",
		`{"Debug":true}`:                         "",
		`{"to":{"Country":"FR"}}`:                "",
		`{"to":[{"Country":"FR"}]}`:              `{"to":{"country":"DE"},"amount":100}`,
	} {
		v, ds := ask(t, h, calling("charge", arguments))
		switch {
		case want == "" && v.Action == hooks.ActionBlock && strings.Contains(ds[0].Payload.Reason, "in other letters"):
		case want != "" && v.Value.Call.Arguments == want:
		default:
			t.Errorf("%s: %s %s %s; want %q", arguments, v.Action, v.Value.Call.Arguments, ds[0].Payload.Reason, want)
		}
	}
}
