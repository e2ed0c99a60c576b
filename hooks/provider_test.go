package hooks_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

type requestResult = hooks.BeforeProviderRequestResult

func request(body string) hooks.BeforeProviderRequest {
	return hooks.BeforeProviderRequest{RunRef: ref, Turn: 1, Attempt: 1, Model: "m", Body: body}
}

func sending(body string) requestResult {
	return requestResult{Action: hooks.ActionTransform, Body: &body}
}

// TestBodyIsReplacedByteForByteAndToldByMember: what is sent are the hook's
// bytes; the ledger says which members differ.
func TestBodyIsReplacedByteForByteAndToldByMember(t *testing.T) {
	t.Parallel()
	const old = `{"model":"m","n":1,"stream":true,"a/b":{"x":[1, 2]}}`
	for name, c := range map[string]struct{ old, body, patch string }{
		"members": {
			old, "{ \"stream\":true,\n\"n\": 9007199254740993, \"a/b\":{\"x\":[1, 2]}, \"~t\":\"<\\u0000é\u2028>\", \"z\":null }\n",
			`[{"op":"remove","path":"/body/model"},{"op":"replace","path":"/body/n","value":9007199254740993},` +
				`{"op":"add","path":"/body/z","value":null},{"op":"add","path":"/body/~0t","value":"<\u0000é` + "\u2028" + `>"}]`,
		},
		"bytes within a member": {old, strings.Replace(old, "[1, 2]", "[1,2]", 1), `[{"op":"replace","path":"/body/a~1b","value":{"x":[1,2]}}]`},
		"bytes between members": {old, "\t" + old + "\n", `[{"op":"replace","path":"/body"}]`},
		"a space in front":      {old, strings.Replace(old, `"n":1`, `"n": 1`, 1), `[{"op":"replace","path":"/body"}]`},
		"order":                 {`{"a":1,"b":2}`, `{"b":2,"a":1}`, `[{"op":"replace","path":"/body"}]`},
		"nothing":               {old, old, ""},
		"all":                   {`{"a":1}`, `{}`, `[{"op":"remove","path":"/body/a"}]`},
		"of what is no object":  {`[1]`, `{"a":1}`, `[{"op":"add","path":"/body/a","value":1}]`},
		"a name twice below":    {`{"a":{}}`, `{"a":{"b":1,"b":2}}`, `[{"op":"replace","path":"/body/a","value":{"b":1,"b":2}}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, d := changed(t, request(c.old), sending(c.body))
			expect(t, "body", v.Value, request(c.body))
			expect(t, "patch", d.Payload.Patch, c.patch)
			expect(t, "row", []any{d.Outcome, len(d.FieldsChanged) == 1, d.InputSHA256 != d.OutputSHA256}, []any{hooks.OutcomeOK, c.patch != "", c.patch != ""})
		})
	}
}

func TestBodyMustBeOneJSONObject(t *testing.T) {
	t.Parallel()
	const object, twice = "unappliable: new body: not a JSON object", "unappliable: new body: the member %s stands twice"
	for body, want := range map[string]string{
		"": object, " ": object, "null": object, "[]": object, `"{}"`: object, "{": object, `{"a":1}x`: object, `{"a":1}{}`: object,
		"{'a':1}": object, "\uFEFF{}": object, `{"a":"` + "\n" + `"}`: object, `{"a":1,}`: object,
		"{\"a\":\"\xff\"}":    "unappliable: new body: not valid UTF-8",
		`{"a":1,"b":2,"a":1}`: strings.Replace(twice, "%s", `"a"`, 1), `{"a":1,"\u0061":2}`: strings.Replace(twice, "%s", `"a"`, 1),
		strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000): object,
	} {
		v, d := changed(t, request(`{"a":0}`), sending(body))
		expect(t, "refused", []any{v.Action, d.Outcome, d.Payload.Reason, v.Value.Body}, []any{hooks.ActionBlock, hooks.OutcomeUnappliable, want, `{"a":0}`})
	}
	v, d := changed(t, request(`{}`), sending(`{"a":1}`), hooks.InPhase(hooks.PhaseValidate))
	expect(t, "a validating hook", []any{d.Outcome, v.Value.Body}, []any{hooks.OutcomeIllegalAction, `{}`})
}

func TestBodyHasALargerReplyLimit(t *testing.T) {
	t.Parallel()
	body := func(n int) requestResult { return sending(`{"a":"` + strings.Repeat("x", n-8) + `"}`) }
	if v, d := changed(t, request("{}"), body(2<<20)); d.Outcome != hooks.OutcomeOK || len(v.Value.Body) != 2<<20 {
		t.Errorf("2 MiB: %s", d.Outcome)
	}
	if _, d := changed(t, request("{}"), body(8<<20+1)); d.Outcome != hooks.OutcomeOversize {
		t.Errorf("over 8 MiB: %s", d.Outcome)
	}
}

func TestRedactingBodyHookStoresPathsAndDigests(t *testing.T) {
	t.Parallel()
	_, d := changed(t, request(`{"user":"Ann","a":1}`), sending(`{"user": "[hidden]"}`), hooks.Redacting())
	// The digest is that of the JSON text "[hidden]", quotes included.
	expect(t, "patch", d.Payload.Patch, `[{"op":"remove","path":"/body/a"},`+
		`{"op":"replace","path":"/body/user","sha256":"a97ae687941257455e111625463f70082d55c9daaaf671e7c8365a6faa22fba4","bytes":10}]`)
	_, d = changed(t, request(`{"a":1}`), sending(`{ "a":1}`), hooks.Redacting())
	expect(t, "patch", d.Payload.Patch, `[{"op":"replace","path":"/body"}]`)
}

func response() hooks.AfterProviderResponse {
	return hooks.AfterProviderResponse{RunRef: ref, Turn: 1, Attempt: 1, Model: "m", Status: 200, Headers: []header{{"X-Request-Id", "r-1"}}}
}

// TestAnswerGateOpensWhenAHookFails: unless the hook says otherwise; and
// everywhere the row says so.
func TestAnswerGateOpensWhenAHookFails(t *testing.T) {
	t.Parallel()
	type result = hooks.AfterProviderResponseResult
	broken := func(context.Context, hooks.AfterProviderResponse) (result, error) {
		return result{}, errors.New("boom")
	}
	fine := func(_ context.Context, in hooks.AfterProviderResponse) (result, error) {
		in.Headers[0].Value = "scribbled"
		return result{Action: hooks.ActionContinue}, nil
	}
	for name, c := range map[string]struct {
		hook hooks.AfterProviderResponseFunc
		want string
		rows []string
	}{
		"without a name": {hooks.Compose(broken, fine), "continue", []string{"1/2 mutate anonymous/1 continue error open", "2/2 mutate anonymous/2 continue"}},
		"with a name":    {hooks.Named("h", "1", broken), "continue", []string{"1/1 mutate h continue error open"}},
		"closed":         {hooks.Compose(hooks.Named("h", "1", broken, hooks.OnFailureClosed()), fine), "block", []string{"1/2 mutate h block error"}},
		"opened again":   {hooks.Named("h", "1", broken, hooks.OnFailureClosed(), hooks.OnFailureOpen()), "continue", []string{"1/1 mutate h continue error open"}},
		"a change": {hooks.Named("h", "1", func(context.Context, hooks.AfterProviderResponse) (result, error) {
			return result{Action: hooks.ActionTransform}, nil
		}), "continue", []string{"1/1 mutate h continue illegal_action open"}},
		"a block": {hooks.Named("h", "1", func(context.Context, hooks.AfterProviderResponse) (result, error) {
			return result{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "c"}}, nil
		}), "block", []string{"1/1 mutate h block"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := response()
			v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, c.hook, at(), in, nil)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, "decisions", told(ds), c.rows)
			expect(t, "verdict", []any{string(v.Action), v.Value, in}, []any{c.want, response(), response()})
			if want := map[bool]hooks.FailurePolicy{true: hooks.FailClosed, false: hooks.FailOpen}[name == "closed"]; ds[0].FailurePolicy != want {
				t.Errorf("policy %s; want %s", ds[0].FailurePolicy, want)
			}
			if strings.Contains(c.rows[0], "error") && ds[0].Payload.Reason != "error: boom" {
				t.Errorf("auditors read %q", ds[0].Payload.Reason)
			}
		})
	}
}
