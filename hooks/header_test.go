package hooks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

type (
	headersResult = hooks.BeforeProviderHeadersResult
	header        = hooks.Header
)

// headers are what an adapter begins with.
func headers() hooks.BeforeProviderHeaders {
	return hooks.BeforeProviderHeaders{RunRef: ref, Turn: 1, Attempt: 1, Model: "m", Headers: []header{
		{Name: "Accept", Value: "text/event-stream"}, {Name: "Content-Type", Value: "application/json"}, {Name: "X-Trace-Id", Value: "t-1"},
	}}
}

func setting(set ...header) headersResult {
	return headersResult{Action: hooks.ActionTransform, Set: set}
}

// marked is a value that must not be found anywhere.
const marked = "value-AAAA1111"

// shows reports whether a value is in anything that is stored or shown of a
// decision.
func shows(v hooks.Verdict[hooks.BeforeProviderHeaders], d hooks.Decision) bool {
	return strings.Contains(fmt.Sprintf("%+v %+v %s", d, v.Reason, d.Payload), marked)
}

func TestHeadersAreChangedByName(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		out   headersResult
		want  []header
		patch string
	}{
		"set, replace and remove": {
			headersResult{Action: hooks.ActionTransform, Set: []header{{"x-trace-id", marked}, {"A-FIRST", "1"}}, Remove: []string{"accept", "X-Unknown"}},
			[]header{{"A-First", "1"}, {"Content-Type", "application/json"}, {"X-Trace-Id", marked}},
			`[{"op":"remove","path":"/headers/Accept"},{"op":"add","path":"/headers/A-First"},{"op":"replace","path":"/headers/X-Trace-Id"}]`,
		},
		"twice in one answer": {
			setting(header{"X-a", "1"}, header{"x-A", "2"}),
			append(headers().Headers[:2:2], header{"X-A", "2"}, header{"X-Trace-Id", "t-1"}),
			`[{"op":"add","path":"/headers/X-A"}]`,
		},
		"removed and set again": {
			headersResult{Action: hooks.ActionTransform, Set: []header{{"Accept", "*/*"}}, Remove: []string{"Accept"}},
			append([]header{{"Accept", "*/*"}}, headers().Headers[1:]...),
			`[{"op":"replace","path":"/headers/Accept"}]`,
		},
		"removed and set to the same": {headersResult{Action: hooks.ActionTransform, Set: headers().Headers[:1], Remove: []string{"Accept"}}, headers().Headers, ""},
		"the same with spaces around": {setting(header{"Accept", " \ttext/event-stream "}), headers().Headers, ""},
		"an odd name": {
			setting(header{"~a|c", ""}), append(headers().Headers, header{"~a|c", ""}),
			`[{"op":"add","path":"/headers/~0a|c"}]`,
		},
		"everything that a value may be": {
			setting(header{"X-Trace-Id", "a\tb ~!\"é"[:7]}), append(headers().Headers[:2:2], header{"X-Trace-Id", "a\tb ~!\""}),
			`[{"op":"replace","path":"/headers/X-Trace-Id"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := headers()
			v, d := changed(t, in, c.out)
			expect(t, "headers", v.Value.Headers, c.want)
			expect(t, "patch", d.Payload.Patch, c.patch)
			expect(t, "outcome", []any{d.Outcome, len(d.FieldsChanged) == 1, d.InputSHA256 != d.OutputSHA256}, []any{hooks.OutcomeOK, c.patch != "", c.patch != ""})
			expect(t, "what was asked about", in, headers())
			if shows(v, d) {
				t.Errorf("the decision shows the value: %+v", d)
			}
		})
	}
}

// TestHeadersThatHooksMayNotChange: in any spelling, to set and to remove.
func TestHeadersThatHooksMayNotChange(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Expect", "Host", "HTTP2-Settings", "Keep-Alive", "TE", "Trailer",
		"Transfer-Encoding", "Upgrade", "Api-Key", "Authorization", "Cookie", "Set-Cookie", "X-Api-Key", "X-Goog-Api-Key",
		"Proxy-Authorization", "Proxy-Connection", "Proxy-", "Content_Length", "x_api-KEY",
	} {
		for _, spelled := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			for _, out := range []headersResult{setting(header{spelled, marked}), {Action: hooks.ActionTransform, Remove: []string{spelled}}} {
				v, d := changed(t, headers(), out)
				if v.Action != hooks.ActionBlock || d.Outcome != hooks.OutcomeUnappliable || !strings.Contains(d.Payload.Reason, "hooks may not change it") {
					t.Errorf("%s: %s %s %q; want it refused", spelled, v.Action, d.Outcome, d.Payload.Reason)
				}
				expect(t, "headers", v.Value.Headers, headers().Headers)
				if shows(v, d) {
					t.Errorf("%s: the decision shows the value: %+v", spelled, d)
				}
			}
		}
	}
}

func TestHeadersThatAreNone(t *testing.T) {
	t.Parallel()
	const value, name = "printable ASCII", "a header's name must be"
	for what, c := range map[string]struct {
		header header
		want   string
	}{
		"a second header":   {header{"X-A", marked + "\r\nX-Evil: 1"}, value},
		"a newline":         {header{"X-A", marked + "\n"}, value},
		"a return":          {header{"X-A", "\r" + marked}, value},
		"NUL":               {header{"X-A", marked + "\x00"}, value},
		"DEL":               {header{"X-A", marked + "\x7f"}, value},
		"UTF-8":             {header{"X-A", marked + "é"}, value},
		"Latin-1":           {header{"X-A", marked + "\xe9"}, value},
		"a long value":      {header{"X-A", marked + strings.Repeat("v", hooks.MaxHeaderValue-len(marked)+1)}, "the value has 8193 bytes, of 8192 allowed"},
		"almost a megabyte": {header{"X-A", marked + strings.Repeat("v", 1<<20-200)}, "bytes, of 8192 allowed"},
		"no name":           {header{"", marked}, name},
		"a colon":           {header{"X-A: " + marked, "b"}, name},
		"a space":           {header{"X A", marked}, name},
		"a space behind":    {header{"Authorization ", marked}, name},
		"a return in it":    {header{"X-A\r\nX-Evil", marked}, name},
		"NUL in it":         {header{"X-A\x00", marked}, name},
		"é in it":           {header{"X-é", marked}, name},
		"a pseudo-header":   {header{":authority", marked}, name},
		"a long name":       {header{strings.Repeat("n", hooks.MaxHeaderName+1), marked}, name},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			v, d := changed(t, headers(), setting(c.header))
			if v.Action != hooks.ActionBlock || d.Outcome != hooks.OutcomeUnappliable || !strings.Contains(d.Payload.Reason, c.want) {
				t.Errorf("%s %s %q; want it refused: %s", v.Action, d.Outcome, d.Payload.Reason, c.want)
			}
			expect(t, "headers", v.Value.Headers, headers().Headers)
			err := hooks.CheckHeader(c.header)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), marked) {
				t.Errorf("checked: %v", err)
			}
			if shows(v, d) || strings.ContainsAny(d.Payload.Reason, "\r\n") {
				t.Errorf("the decision shows the value: %+v", d)
			}
		})
	}
	if v, d := changed(t, headers(), setting(header{"X-A", strings.Repeat("v", 1<<20)})); d.Outcome != hooks.OutcomeOversize || v.Action != hooks.ActionBlock {
		t.Errorf("a megabyte: %s %s", v.Action, d.Outcome)
	}
	_, d := changed(t, headers(), headersResult{Action: hooks.ActionTransform, Remove: []string{"X-" + marked + "\n"}})
	if d.Outcome != hooks.OutcomeUnappliable || strings.Contains(d.Payload.Reason, marked) {
		t.Errorf("to remove what is no header: %s %q", d.Outcome, d.Payload.Reason)
	}
	for _, ok := range []header{
		{strings.Repeat("n", hooks.MaxHeaderName), strings.Repeat("v", hooks.MaxHeaderValue)}, {"!#$%&'*+-.^_`|~09azAZ", ""}, {"X-Hosts", "\t ~"},
	} {
		if err := hooks.CheckHeader(ok); err != nil {
			t.Errorf("%.20s: %v", ok.Name, err)
		}
	}
}

func TestHeadersAreLimited(t *testing.T) {
	t.Parallel()
	many := func(n int) []header {
		var out []header
		for i := range n {
			out = append(out, header{fmt.Sprintf("X-%04d", i), ""})
		}
		return out
	}
	room := hooks.MaxHeaders - len(headers().Headers)
	if v, d := changed(t, headers(), setting(many(room)...)); d.Outcome != hooks.OutcomeOK || len(v.Value.Headers) != hooks.MaxHeaders {
		t.Errorf("%d headers: %s", len(v.Value.Headers), d.Outcome)
	}
	for _, n := range []int{room + 1, 2000} {
		if v, d := changed(t, headers(), setting(many(n)...)); d.Outcome != hooks.OutcomeUnappliable || len(v.Value.Headers) != 3 || !strings.Contains(d.Payload.Reason, "more than 64 headers") {
			t.Errorf("%d more: %s %q", n, d.Outcome, d.Payload.Reason)
		}
	}
	if _, d := changed(t, headers(), setting(many(1<<15)...)); d.Outcome != hooks.OutcomeOversize {
		t.Errorf("a list of many empty headers: %s", d.Outcome)
	}
	if _, d := changed(t, headers(), headersResult{Action: hooks.ActionTransform, Remove: make([]string, 1<<15+1)}); d.Outcome != hooks.OutcomeOversize {
		t.Errorf("a list of many empty names: %s", d.Outcome)
	}
	full := headers()
	full.Headers = many(hooks.MaxHeaders)
	v, d := changed(t, full, headersResult{Action: hooks.ActionTransform, Set: []header{{"X-New", "1"}}, Remove: []string{"X-0000"}})
	expect(t, "one for another", []any{d.Outcome, len(v.Value.Headers), v.Value.Headers[63].Name}, []any{hooks.OutcomeOK, 64, "X-New"})
}

// TestLaterHookSeesTheHeadersAsTheyWillBe: sorted and in canonical form, in a
// copy that it may scribble on.
func TestLaterHookSeesTheHeadersAsTheyWillBe(t *testing.T) {
	t.Parallel()
	var seen []header
	first := func(_ context.Context, in hooks.BeforeProviderHeaders) (headersResult, error) {
		in.Headers[0].Value = "scribbled"
		return setting(header{"zz", "1"}, header{"AA", "2"}), nil
	}
	check := func(_ context.Context, in hooks.BeforeProviderHeaders) (headersResult, error) {
		seen = slices.Clone(in.Headers)
		in.Headers[0] = header{"Scribbled", ""}
		return headersResult{Action: hooks.ActionContinue}, nil
	}
	in := headers()
	v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, hooks.Compose(hooks.Named("check", "1", check, hooks.InPhase(hooks.PhaseValidate)), hooks.Named("first", "1", first)), at(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := append(append([]header{{"Aa", "2"}}, headers().Headers...), header{"Zz", "1"})
	slices.SortFunc(want, func(a, b header) int { return strings.Compare(a.Name, b.Name) })
	expect(t, "seen", seen, want)
	expect(t, "headers", v.Value.Headers, want)
	expect(t, "what was asked about", in, headers())
	expect(t, "chain", []any{ds[1].InputSHA256 == ds[0].OutputSHA256, ds[1].InputSHA256 == ds[1].OutputSHA256}, []any{true, true})

	v, d := changed(t, headers(), setting(header{"X-A", "1"}), hooks.InPhase(hooks.PhaseValidate))
	expect(t, "a validating hook", []any{d.Outcome, v.Value.Headers}, []any{hooks.OutcomeIllegalAction, headers().Headers})
}

// TestWhatAHeaderHookSaysWhenItFailsIsNotRecorded: it may be a value. What is
// said of its answer here is, and so is its code.
func TestWhatAHeaderHookSaysWhenItFailsIsNotRecorded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hook hooks.BeforeProviderHeadersFunc
		want []any // outcome, code, reason
	}{
		"error": {
			func(context.Context, hooks.BeforeProviderHeaders) (headersResult, error) {
				return setting(header{"X-A", marked}), errors.New("cannot set " + marked)
			},
			[]any{hooks.OutcomeError, "hook.error", "error"},
		},
		"error with a code": {
			func(context.Context, hooks.BeforeProviderHeaders) (headersResult, error) {
				return headersResult{}, &hooks.Failure{Outcome: hooks.OutcomeUnavailable, Code: "vault_down", Err: errors.New(marked)}
			},
			[]any{hooks.OutcomeUnavailable, "vault_down", "unavailable"},
		},
		"panic": {
			func(context.Context, hooks.BeforeProviderHeaders) (headersResult, error) {
				panic(header{"X-A", marked})
			},
			[]any{hooks.OutcomePanic, "hook.panic", "panic"},
		},
		"a transform without a change": {
			func(context.Context, hooks.BeforeProviderHeaders) (headersResult, error) { return setting(), nil },
			[]any{hooks.OutcomeMalformed, "hook.malformed", "malformed: transform without a field"},
		},
		"a change without a transform": {
			func(context.Context, hooks.BeforeProviderHeaders) (headersResult, error) {
				return headersResult{Action: hooks.ActionContinue, Set: []header{{"X-A", marked}}}, nil
			},
			[]any{hooks.OutcomeMalformed, "hook.malformed", "malformed: continue with changed fields"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, hooks.Named("h", "1", c.hook), at(), headers(), nil)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, "decision", []any{ds[0].Outcome, ds[0].ReasonCode, ds[0].Payload.Reason}, c.want)
			expect(t, "verdict", []any{v.Action, v.Reason.Code}, []any{hooks.ActionBlock, c.want[1]})
			if shows(v, ds[0]) {
				t.Errorf("the decision shows the value: %+v", ds[0])
			}
		})
	}
}
