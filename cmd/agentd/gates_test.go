package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop"
)

func TestGateFlags(t *testing.T) {
	t.Parallel()
	g, err := gateFlags{hookFlags: hookFlags{DenyTools: []string{"rm", " memory_* "}, MaxInputBytes: 9}, ToolPermissions: []string{"a=ask", "*=deny"}}.gates()
	if err != nil {
		t.Fatal(err)
	}
	var registered []string
	for _, h := range g.first.hooks.Set().Hooks {
		registered = append(registered, string(h.Gate)+" "+h.ID+" "+h.Config)
	}
	if want := []string{`BeforeInput max-input-bytes {"bytes":9}`, `BeforeToolCall deny-tools {"tools":["rm","memory_*"]}`}; !slices.Equal(registered, want) {
		t.Errorf("registered %q, want %q", registered, want)
	}
	if want := []loop.Permission{{Tools: "a", Mode: loop.PermissionAsk}, {Tools: "*", Mode: loop.PermissionDeny}}; !slices.Equal(g.permissions, want) {
		t.Errorf("permissions %v, want %v", g.permissions, want)
	}
	none, err := gateFlags{hookFlags: hookFlags{DenyTools: []string{""}}, ToolPermissions: []string{" "}}.gates()
	if err != nil || none.first.hooks.BeforeToolCall != nil || none.first.hooks.BeforeInput != nil || none.permissions != nil {
		t.Errorf("of nothing: %+v, %v", none, err)
	}
}

func TestOnlyDevHasAHookByItself(t *testing.T) {
	t.Parallel()
	var c cli
	parser, err := kong.New(&c, defaults)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse([]string{"dev"}); err != nil || !slices.Equal(c.Dev.DenyTools, []string{"memory_clear"}) {
		t.Errorf("dev denies %q, %v", c.Dev.DenyTools, err)
	}
	if _, err := parser.Parse([]string{"serve"}); err != nil {
		t.Fatal(err)
	}
	if g, err := c.Serve.gates(); err != nil || g.first.hooks.BeforeToolCall != nil || g.first.hooks.BeforeInput != nil || len(g.permissions) != 2 {
		t.Errorf("serve has %+v, %v", g, err)
	}
}

func TestGateFlagsThatAreWrong(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`--deny-tools: "a["`:                 {"--deny-tools", "b,a["},
		`--max-input-bytes: is -1`:           {"--max-input-bytes=-1"},
		`--tool-permissions: "x"`:            {"--tool-permissions", "y=ask,x"},
		`--tool-permissions: "x=maybe"`:      {"--tool-permissions", "x=maybe"},
		`--tool-permissions: "[=ask"`:        {"--tool-permissions", "[=ask"},
		`--tool-permissions: "=ask" is none`: {"--tool-permissions", "=ask"},
	} {
		for _, command := range []string{"serve", "dev"} {
			var out bytes.Buffer
			err := run(t.Context(), append([]string{command}, args...), nil, &out, &out)
			var exit *exitError
			if !errors.As(err, &exit) || exit.code != exitUsage || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %v: %v, want %s", command, args, err, want)
			}
		}
	}
}

func TestAnAnswerSaysWhatMakesItLess(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]*agentdv1.Decision{
		"continue":                             {Action: "continue", Outcome: "ok", Effective: true},
		"transform arguments,system":           {Action: "transform", Outcome: "ok", Effective: true, FieldsChanged: []string{"arguments", "system"}},
		"block (failed: timeout)":              {Action: "block", Outcome: "timeout", Effective: true},
		"continue (failed open: panic)":        {Action: "continue", Outcome: "panic", FailedOpen: true, Effective: true},
		"ask (without effect)":                 {Action: "ask", Outcome: "ok"},
		"would ask (shadow)":                   {Action: "ask", Outcome: "ok", FailurePolicy: "shadow"},
		"would block (failed: panic) (shadow)": {Action: "block", Outcome: "panic", FailurePolicy: "shadow"},
	} {
		if got := answerOf(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := reasonOfDecision(&agentdv1.Decision{ReasonCode: "c", PayloadErased: true}); got != "c: (erased)" {
		t.Errorf("erased: %q", got)
	}
	if got := latency(&agentdv1.Decision{LatencyUs: 1500}); got != (1500 * time.Microsecond).String() {
		t.Errorf("latency %q", got)
	}
}

func TestExplainOfAnUnknownEventAndOfHooksThatWereNotAsked(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	run := &agentdv1.Run{Id: "r", SessionId: "s", Agent: "a", Status: agentdv1.RunStatus_RUN_STATUS_WAITING, Turns: 1}
	events := []*agentdv1.Event{{Seq: 3, Type: "tool.painted", DataJson: `{"call_id": 7}`}}
	decisions := []*agentdv1.Decision{
		{Gate: "BeforeToolCall", Turn: 1, Attempt: 1, ToolName: "t", HookId: "guard", Action: "block", Outcome: "ok", Effective: true, ChainLength: 3, EventSeq: 9, PatchJson: `[]`},
		{Gate: "AfterLunch", Turn: 1, Attempt: 2, HookId: "cook", Action: "continue", Outcome: "ok", Effective: true, ChainLength: 1, EventSeq: 1},
	}
	if err := explain(&out, run, events, decided{list: decisions}, false); err != nil {
		t.Fatal(err)
	}
	const want = `run r of session s
agent a: waiting, 1 turn, 2 decisions

  #3     tool.painted
? BeforeToolCall turn 1 attempt 1
    guard: block [0s]
      changed: []
    (2 hooks behind it not asked)
? AfterLunch turn 1 attempt 2
    cook: continue [0s]
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}
