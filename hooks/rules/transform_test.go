package rules_test

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// TestTransformThatIsNoneFails: what an expression comes to is only known when
// it is asked.
func TestTransformThatIsNoneFails(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		`gate: BeforeInput, transform: {text: "{{ [1] }}"}`:                                             "transform.text: expected a text, not [1]",
		`gate: BeforeInput, transform: {text: "{{ null }}"}`:                                            "transform.text: expected a text, not null",
		`gate: AfterToolCall, transform: {is_error: "{{ 1 }}"}`:                                         "transform.is_error: expected true or false, not 1",
		`gate: AfterToolCall, transform: {content: {a: 1}}`:                                             "transform.content: not JSON: unexpected end of JSON input",
		`gate: AfterToolCall, transform: {content: "{{ content_json.x }}"}`:                             "the content is not JSON",
		`gate: BeforeRunStart, transform: {tools: "{{ 1 }}"}`:                                           "transform.tools: expected a list, not 1",
		`gate: BeforeRunStart, transform: {tools: "{{ [[1]] }}"}`:                                       "transform.tools: expected a text, not [1]",
		`gate: BeforeRunStart, transform: {append: "{{ 1 }}"}`:                                          "transform.append: expected a list, not 1",
		`gate: BeforeRunStart, transform: {append: "{{ [1] }}"}`:                                        "transform.append: expected role and text, not 1",
		`gate: BeforeRunStart, transform: {append: "{{ [{'role': 'user', 'text': [1]}] }}"}`:            "transform.append: expected a text, not [1]",
		`gate: BeforeRunStart, transform: {append: "{{ [{'role': 'user', 'txt': 'x'}] }}"}`:             "transform.append: a message has role and text, and no txt",
		`gate: BeforeRunStart, transform: {append: [{role: user, text: "{{ messages[5].text }}"}]}`:     "index out of bounds: 5",
		`gate: BeforeRunStart, transform: {append: "{{ [{'role': 'tool', 'text': 'x'}] }}"}`:            `a hidden message of role "tool"`,
		`gate: BeforeProviderRequest, transform: {body: {x: "{{ body.y }}"}}`:                           "no such key: y",
		`gate: BeforeProviderRequest, transform: {body: {x: ["{{ body.y }}"]}}`:                         "no such key: y",
		`gate: BeforeProviderRequest, transform: {body: {x: "and {{ body.y }}"}}`:                       "no such key: y",
		`gate: BeforeProviderRequest, transform: {body: {x: "{{ 1.0 / 0.0 }}"}}`:                        "infinite",
		`gate: BeforeProviderRequest, transform: {body: {x: "{{ {1: 2, '1': 3} }}"}}`:                   `the member "1" stands twice`,
		`gate: BeforeProviderRequest, transform: {body: {x: "{{ {'b': [b'x']} }}"}}`:                    "a value of type bytes cannot be written",
		`gate: BeforeProviderRequest, when: "dyn('x')", transform: {body: {x: 1}}`:                      "when is of type string; expected true or false",
		`gate: TransformContext, transform: {append: "{{ [] }}"}`:                                       "transform without a field",
		`gate: TransformContext, when: 'dyn(messages[0]).nope == 1', block: x`:                          "no such field",
		`gate: TransformContext, when: 'messages.exists(m, m.calls[0].arguments.x == 1)', block: x`:     "the arguments are not JSON",
		`gate: TransformContext, when: 'has(dyn(messages[0]).nope)', block: x`:                          "no such field",
		`gate: TransformContext, when: 'message{role: "x"}.role == "x"', block: x`:                      "message cannot be made in an expression",
		`gate: TransformContext, when: 'dyn(messages[0]) == 1 || int(dyn(messages[0])) == 1', block: x`: "no",
	} {
		s, err := parse("rules: [{id: a, phase: mutate, " + rule + "}]")
		if err != nil {
			t.Errorf("%s: %v", rule, err)
			continue
		}
		h := s.Hooks()
		var ds []hooks.Decision
		message := hooks.Message{Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: "hi"}, {Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{}}}}
		switch s.Rules()[0].Gate {
		case hooks.GateBeforeInput:
			_, ds = ask(t, h.BeforeInput, hooks.BeforeInput{Text: "x"})
		case hooks.GateAfterToolCall:
			_, ds = ask(t, h.AfterToolCall, hooks.AfterToolCall{})
		case hooks.GateBeforeRunStart:
			_, ds = ask(t, h.BeforeRunStart, hooks.BeforeRunStart{Messages: []hooks.Message{message}})
		case hooks.GateTransformContext:
			_, ds = ask(t, h.TransformContext, hooks.TransformContext{Messages: []hooks.Message{message}})
		default:
			_, ds = ask(t, h.BeforeProviderRequest, hooks.BeforeProviderRequest{Body: "{}"})
		}
		if ds[0].Outcome == hooks.OutcomeOK || !strings.Contains(ds[0].Payload.Reason, want) {
			t.Errorf("%s\n  %s %s\n  want %q", rule, ds[0].Outcome, ds[0].Payload.Reason, want)
		}
	}
}

// TestHeadersThatAreNoneFail: the ledger does not tell why, since a value might
// be in it.
func TestHeadersThatAreNoneFail(t *testing.T) {
	t.Parallel()
	for _, headers := range []string{`"{{ 1 }}"`, `{X-A: "{{ [1] }}"}`, `{X-A: [1]}`} {
		s := set(t, "rules: [{id: a, gate: BeforeProviderHeaders, transform: {headers: "+headers+"}}]")
		_, ds := ask(t, s.Hooks().BeforeProviderHeaders, hooks.BeforeProviderHeaders{})
		if ds[0].Outcome != hooks.OutcomeError || ds[0].Payload.Reason != "error" {
			t.Errorf("%s: %s %s", headers, ds[0].Outcome, ds[0].Payload.Reason)
		}
	}
}

func TestMessagesAreComparedAndLookedAtWithoutTheirType(t *testing.T) {
	t.Parallel()
	h := set(t, `rules:
  - id: a
    gate: TransformContext
    when: >-
      messages[0] == messages[1] && messages[0] != messages[2] && dyn(messages[0]).role == "user"
      && has(dyn(messages[0]).role) && type(messages[0]) == type(dyn(messages[1])) && [dyn(messages[0]), 1][0].text == "a"
    block: x
  - {id: b, gate: TransformContext, when: true, block: 'never reached: {{ r"\" }}'}
`).Hooks().TransformContext
	said := func(s string) hooks.Message {
		return hooks.Message{Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: s}}}
	}
	v, ds := ask(t, h, hooks.TransformContext{Messages: []hooks.Message{said("a"), said("a"), said("b")}})
	if v.Action != hooks.ActionBlock || v.HookID != "a" {
		t.Errorf("%s, %s", v.Action, ds[0].Payload.Reason)
	}
	v, _ = ask(t, h, hooks.TransformContext{Messages: []hooks.Message{said("a"), said("b"), said("b")}})
	if v.HookID != "b" || v.Reason.Text != `never reached: \` {
		t.Errorf("%s: %s", v.HookID, v.Reason.Text)
	}
}

func TestLongReasonIsCutAndStillARefusal(t *testing.T) {
	t.Parallel()
	h := set(t, "rules: [{id: a, gate: BeforeToolCall, block: 'ü{{ call.arguments.s }}'}]").Hooks().BeforeToolCall
	v, ds := ask(t, h, calling("t", `{"s":"`+strings.Repeat("ü", 5000)+`"}`))
	if v.Action != hooks.ActionBlock || ds[0].Outcome != hooks.OutcomeOK || v.Reason.Text != strings.Repeat("ü", 2048)+"…" {
		t.Errorf("%s, %s, %d bytes", v.Action, ds[0].Outcome, len(v.Reason.Text))
	}
}
