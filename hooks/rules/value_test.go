package rules_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// TestIntegersAreExact: what a rule compares, writes into a reason, copies and
// leaves alone is the number that the model wrote, digit for digit.
func TestIntegersAreExact(t *testing.T) {
	t.Parallel()
	h := set(t, `rules:
  - {id: copy, gate: BeforeToolCall, transform: {arguments: {copy: "{{ call.arguments.n }}", "in": ["{{ [call.arguments.n] }}"]}}}
  - {id: type, gate: BeforeToolCall, ask: "{{ type(call.arguments.n) == int ? 'int' : type(call.arguments.n) == uint ? 'uint' : 'string' }} {{ call.arguments.n }} {{ call.arguments.n == call.arguments.copy }} {{ call.arguments.n == call.arguments.next }}"}
`).Hooks().BeforeToolCall
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SampledFrom([]uint{8, 53, 54, 63, 64, 65, 80}).Draw(t, "bits")
		n := new(big.Int).Lsh(big.NewInt(1), bits)
		n.Add(n, big.NewInt(rapid.Int64Range(-3, 3).Draw(t, "offset")))
		if rapid.Bool().Draw(t, "negative") {
			n.Neg(n)
		}
		next := new(big.Int).Add(n, big.NewInt(1))
		kind := "string"
		switch {
		case n.IsInt64():
			kind = "int"
		case n.IsUint64():
			kind = "uint"
		}
		v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, h, hooks.Position{}, calling("t", fmt.Sprintf(`{ "n": %s, "next":%s}`, n, next)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%s %s true false", kind, n); v.Reason.Text != want {
			t.Fatalf("the reason is %q; want %q", v.Reason.Text, want)
		}
		written := n.String()
		if kind == "string" {
			written = strconv.Quote(written)
		}
		if want := fmt.Sprintf(`{"n":%s,"next":%s,"copy":%s,"in":[[%s]]}`, n, next, written, written); v.Value.Call.Arguments != want {
			t.Fatalf("the arguments are %s; want %s", v.Value.Call.Arguments, want)
		}
	})
}

// TestIntegersWithAPointAreExact where a double would be another number, so that
// none slips past a comparison.
func TestIntegersWithAPointAreExact(t *testing.T) {
	t.Parallel()
	h := set(t, `rules:
  - {id: what, gate: BeforeToolCall, ask: "{{ type(call.arguments.n) == int ? 'int' : type(call.arguments.n) == uint ? 'uint' : type(call.arguments.n) == double ? 'double' : 'string' }} {{ string(call.arguments.n) }}"}
`).Hooks().BeforeToolCall
	endless := "9007199254740993." + strings.Repeat("0", 100)
	for n, want := range map[string]string{
		"9007199254740993.0":      "int 9007199254740993",
		"-9007199254740993.0":     "int -9007199254740993",
		"9.007199254740993e15":    "int 9007199254740993",
		"90071992547409930E-1":    "int 9007199254740993",
		"18446744073709551615.00": "uint 18446744073709551615",
		"18446744073709551616.0":  "string 18446744073709551616",
		"-9223372036854775809.0":  "string -9223372036854775809",
		"9007199254740991.0":      "double 9.007199254740991e+15",
		"100.0":                   "double 100",
		"9007199254740993.5":      "double 9.007199254740994e+15",
		"1e30":                    "double 1e+30",
		"1e-400":                  "double 0",
		"1e400":                   "string 1e400",
		endless:                   "string " + endless,
	} {
		v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, h, hooks.Position{}, calling("t", `{"n": `+n+`}`), nil)
		if err != nil || v.Reason.Text != want {
			t.Errorf("%s: %q, %v; want %q", n, v.Reason.Text, err, want)
		}
	}
}

// TestMergeChangesWhatThePatchNames and nothing else: every other member stands
// in the result as the model wrote it.
func TestMergeChangesWhatThePatchNames(t *testing.T) {
	t.Parallel()
	h := set(t, `rules: [{id: a, gate: BeforeToolCall, transform: {arguments: {a: 1, b: null, c: {d: null, e: x}}}}]`).Hooks().BeforeToolCall
	for given, want := range map[string]string{
		`{}`: `{"a":1,"c":{"e":"x"}}`,
		`{"z":"\u00e9\ud800","b":2,"y":1.50e1,"c":{"d":0,"f":[1, {"b":2.0}]}}`: `{"z":"\u00e9\ud800","y":1.50e1,"c":{"f":[1,{"b":2.0}],"e":"x"},"a":1}`,
		`{"c":[1],"a":{"b":2}}`: `{"c":{"e":"x"},"a":1}`,
	} {
		v, _ := ask(t, h, calling("t", given))
		if v.Value.Call.Arguments != want {
			t.Errorf("%s\n  became %s\n  want   %s", given, v.Value.Call.Arguments, want)
		}
	}
}

// TestRedactionLeavesNothingToBeFound, wherever in a conversation it stands, and
// leaves the arguments of calls JSON.
func TestRedactionLeavesNothingToBeFound(t *testing.T) {
	t.Parallel()
	h := set(t, `rules: [{id: a, gate: TransformContext, redact: {pattern: "key-[a-z0-9]+", with: "*"}}]`).Hooks().TransformContext
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.SampledFrom([]string{"key-abc1", "key-", " ", "x", "\"", "\\", "ü", "\n", "{", "key-Z"})).Draw(t, "text")
		secret := strings.Join(text, "")
		arguments, err := json.Marshal(map[string]any{"a": []string{secret}, "n": json.Number("9007199254740993"), secret: 1, secret + "key-abc12": 2})
		if err != nil {
			t.Fatal(err)
		}
		in := hooks.TransformContext{Messages: []hooks.Message{
			{Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: secret}, {Type: hooks.PartReasoning, Text: secret}}},
			{Role: hooks.RoleAssistant, Parts: []hooks.Part{{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{Arguments: string(arguments)}}}},
			{Role: hooks.RoleTool, Parts: []hooks.Part{{Type: hooks.PartToolResult, ToolResult: &hooks.ToolResult{Content: secret}}}},
		}}
		v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, h, hooks.Position{}, in, nil)
		if err != nil {
			t.Fatal(err)
		}
		found := true // in a name, at least
		if (v.Action == hooks.ActionTransform) != found {
			t.Fatalf("%s of %q", v.Action, secret)
		}
		shown, err := json.Marshal([]any{v.Value, ds[0].Payload})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(shown), "key-abc1") {
			t.Fatalf("it is still there: %s", shown)
		}
		got := v.Value.Messages[1].Parts[0].ToolCall.Arguments
		if !json.Valid([]byte(got)) || !strings.Contains(got, `9007199254740993`) {
			t.Fatalf("arguments %s", got)
		}
		if regexp.MustCompile("key-[a-z0-9]+").MatchString(secret) == (v.Value.Messages[2].Parts[0].ToolResult.Content == secret) {
			t.Fatalf("the result is %q; it was %q", v.Value.Messages[2].Parts[0].ToolResult.Content, secret)
		}
	})
}

func TestNamesThatBecomeOneStayTwo(t *testing.T) {
	t.Parallel()
	h := set(t, `rules: [{id: a, gate: TransformContext, redact: {pattern: "key-[a-z]", with: "*"}}]`).Hooks().TransformContext
	v, _ := ask(t, h, hooks.TransformContext{Messages: []hooks.Message{
		{Parts: []hooks.Part{{ToolCall: &hooks.ToolCall{Arguments: `{"key-a":1,"key-b":2}`}}, {ToolCall: &hooks.ToolCall{Arguments: `{"key-a`}}}},
	}})
	parts := v.Value.Messages[0].Parts
	if parts[0].ToolCall.Arguments != `{"*":1,"*_":2}` || parts[1].ToolCall.Arguments != `{"*` {
		t.Errorf("%s, %s", parts[0].ToolCall.Arguments, parts[1].ToolCall.Arguments)
	}
}
