package guard_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/guard"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
)

func redacting(t testing.TB, patterns ...string) hooks.Hooks {
	t.Helper()
	return made(t)(guard.Redact(guard.RedactConfig{Patterns: patterns, With: "█"}))
}

func TestRedactKnowsItsPatterns(t *testing.T) {
	t.Parallel()
	pem := "-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128\n\nMIIE\n-----END RSA PRIVATE KEY-----"
	for _, c := range []struct{ pattern, text, want string }{
		{"email", "to a.b+c@mail.example.org, please", "to █, please"},
		{"email", "ö@example.org a@b @x.de user@host", "ö@example.org a@b @x.de user@host"},
		{"ipv4", "10.0.0.1 and 256.1.1.1 and 1.2.3", "█ and 256.1.1.1 and 1.2.3"},
		{"credit_card", "4111 1111 1111 1111, 4111-1111-1111-1112", "█, 4111-1111-1111-1112"},
		{"credit_card", "4111111111111111 12", "█ 12"},
		{"credit_card", "1234 4111 1111 1111 1111", "1234 █"},
		{"credit_card", "0000 0000 0000 0000", "0000 0000 0000 0000"},
		{"iban", "DE89 3704 0044 0532 0130 00 please pay", "█ please pay"},
		{"iban", "de89370400440532013000 DE88370400440532013000", "█ DE88370400440532013000"},
		{"us_ssn", "123-45-6789 1123-45-6789", "█ 1123-45-6789"},
		{"aws_key", "AKIAIOSFODNN7EXAMPLE", "█"},
		{"api_key", "sk-abcdefghijklmnop1234 ghp_" + strings.Repeat("a", 36), "█ █"},
		{"bearer", "Authorization: Bearer abcdef0123456789 and bearer of news", "Authorization: █ and bearer of news"},
		{"bearer", "authorization: Basic dXNlcjpwYXNzd29yZA==", "█"},
		{"jwt", "eyJhbGciOi.eyJzdWIiOi.c2ln", "█"},
		{"private_key", "a " + pem + " b", "a █ b"},
		{"private_key", pem[:60], "█"},
		{"url_login", "postgres://me:secret@db/x", "█db/x"},
		{"phone", "call +49 (0)30 1234567 or 555-010-9999, not 12345 or 2026-07-01", "call █ or █, not 12345 or 2026-07-01"},
		{"ipv6", "2001:db8::ff00:42:8329 at 12:30:45 in std::byte", "█ at 12:30:45 in std::byte"},
		{"secrets", "glpat-abcdefghij0123456789 of a@example.org", "█ of a@example.org"},
		{"personal", "glpat-abcdefghij0123456789 of a@example.org", "glpat-abcdefghij0123456789 of █"},
	} {
		v, _ := ask(t, redacting(t, c.pattern).BeforeInput, saying(c.text))
		if v.Value.Text != c.want {
			t.Errorf("%s of %q\n got %q\nwant %q", c.pattern, c.text, v.Value.Text, c.want)
		}
	}
	if n := len(setting.PatternNames()); n != 15 {
		t.Errorf("%d patterns; test the new ones here", n)
	}
}

func TestRedactIsEverywhereAndLeavesNoValueInTheLedger(t *testing.T) {
	t.Parallel()
	h := made(t)(guard.Redact(guard.RedactConfig{Patterns: []string{"email"}, Matching: []string{`ACME-\d+`}}))
	const text, want = "ACME-77 to a@example.org", "[redacted] to [redacted]"
	check := func(where, got string, ds []hooks.Decision) {
		t.Helper()
		expect(t, where, got, want)
		d := ds[0]
		if d.Action != hooks.ActionTransform || strings.Contains(d.Payload.Patch, "redacted]") || !strings.Contains(d.Payload.Patch, "sha256") ||
			d.Payload.Annotations != `{"email":"1","matching[0]":"1"}` {
			t.Errorf("%s: %s, patch %s, annotations %s", where, d.Action, d.Payload.Patch, d.Payload.Annotations)
		}
	}
	in, ds := ask(t, h.BeforeInput, saying(text))
	check("message", in.Value.Text, ds)
	out, ds := ask(t, h.AfterToolCall, returning(text))
	check("output", out.Value.Content, ds)
	said := hooks.TransformContext{RunRef: run, Messages: []hooks.Message{{Parts: []hooks.Part{{Type: hooks.PartText, Text: text}}}}}
	model, ds := ask(t, h.TransformContext, said)
	check("context", model.Value.Messages[0].Text(), ds)
	if said.Messages[0].Text() != text {
		t.Error("the loop's own messages were changed")
	}
	for _, r := range h.Set().Hooks {
		if !r.Pure || !r.Redacting || r.Phase != hooks.PhaseMutate {
			t.Errorf("registered as %+v", r)
		}
	}
	if v, ds := ask(t, h.BeforeInput, saying("")); v.Action != hooks.ActionContinue || ds[0].Payload.Annotations != "" {
		t.Errorf("of an empty text: %s %+v", v.Action, ds[0].Payload)
	}
}

func TestRedactOnlyWhereItIsTold(t *testing.T) {
	t.Parallel()
	h := made(t)(guard.Redact(guard.RedactConfig{Patterns: []string{"email"}, In: []string{guard.InToolOutput}}))
	if h.BeforeInput != nil || h.TransformContext != nil || h.AfterToolCall == nil {
		t.Errorf("registered at %+v", h.Set().Hooks)
	}
}

// context redacts the arguments and the result of a call.
func inContext(t testing.TB, h hooks.Hooks, arguments string) string {
	t.Helper()
	in := hooks.TransformContext{RunRef: run, Messages: []hooks.Message{{Parts: []hooks.Part{
		{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{Arguments: arguments}},
		{Type: hooks.PartToolResult, ToolResult: &hooks.ToolResult{Content: arguments}},
	}}}}
	v, _ := ask(t, h.TransformContext, in)
	return v.Value.Messages[0].Parts[0].ToolCall.Arguments
}

func TestRedactKeepsTheJSONOfArguments(t *testing.T) {
	t.Parallel()
	h := made(t)(guard.Redact(guard.RedactConfig{Matching: []string{"x+", `\d{16}`}, With: "\""}))
	for arguments, want := range map[string]string{
		`{"a": "x", "b": [1, true, null, {"c": "yxxz"}]}`: `{"a": "\"", "b": [1, true, null, {"c": "y\"z"}]}`,
		`{"x":1,"xx":2,"z":3}`:                            `{"\"":1,"\"_":2,"z":3}`,
		`{"n": 4111111111111111, "m": 1e400}`:             `{"n": "\"", "m": 1e400}`,
		`{"html": "<a&b>x"}`:                              `{"html": "<a&b>\""}`,
		`{"same": 1.0 , "b":"\u00e4"}`:                    `{"same": 1.0 , "b":"\u00e4"}`,
		`"x"`:                                             `"\""`, `[]`: `[]`, ``: ``, `{"broken": "x`: `{"broken": """`, `{}{"x":1}`: `{}{""":1}`,
	} {
		got := inContext(t, h, arguments)
		want = strings.ReplaceAll(want, `"broken": """`, `"broken": ""`)
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", arguments, got, want)
		}
	}
}

func TestRedactThatCannotCleanIsClosed(t *testing.T) {
	t.Parallel()
	h := made(t)(guard.Redact(guard.RedactConfig{Matching: []string{"a"}, With: strings.Repeat("b", 256)}, hooks.TimeLimit(time.Minute)))
	for _, n := range []int{80_000, 200_000} {
		v, ds := ask(t, h.BeforeInput, saying(strings.Repeat("a", n)))
		expect(t, "what cannot be cleaned", []any{v.Action, ds[0].Outcome}, []any{hooks.ActionBlock, hooks.OutcomeError})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.BeforeInput(ctx, saying("a")); err == nil {
		t.Error("it answers when its time is over")
	}
}

func TestRedactRefusesAConfigThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	for field, c := range map[string]guard.RedactConfig{
		"patterns":    {},
		"patterns[1]": {Patterns: []string{"email", "e-mail"}},
		"matching[0]": {Matching: []string{"a*"}},
		"matching[1]": {Matching: []string{"a", "("}},
		"matching[2]": {Matching: []string{"a", "b", ""}},
		"matching[3]": {Matching: []string{"a", "b", "c", "((a{100}){100}){100}"}},
		"with":        {Matching: []string{"a"}, With: strings.Repeat("x", 257)},
		"in[0]":       {Matching: []string{"a"}, In: []string{"system"}},
		"":            {Matching: make([]string, 33)},
	} {
		h, err := guard.Redact(c)
		refused(t, h, err, field)
	}
}

func FuzzRedact(f *testing.F) {
	for _, s := range []string{`{"a":"x@example.org"}`, "4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00", "\xff", `{"x":[1,{"y":null}]}`} {
		f.Add(s)
	}
	h := redacting(f, setting.PatternNames()...)
	f.Fuzz(func(t *testing.T, s string) {
		once, _ := ask(t, h.BeforeInput, saying(s))
		if twice, _ := ask(t, h.BeforeInput, saying(once.Value.Text)); twice.Value.Text != once.Value.Text && once.Action == hooks.ActionTransform {
			if third, _ := ask(t, h.BeforeInput, twice.Value); third.Value.Text != twice.Value.Text {
				t.Errorf("%q, %q, %q", once.Value.Text, twice.Value.Text, third.Value.Text)
			}
		}
		got := inContext(t, h, s)
		if utf8.ValidString(s) && json.Valid([]byte(s)) && !json.Valid([]byte(got)) {
			t.Errorf("%q is no JSON any more: %q", s, got)
		}
	})
}
