package guard_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/guard"
)

func TestRequireApprovalByTool(t *testing.T) {
	t.Parallel()
	h := made(t)(guard.RequireApproval(guard.RequireApprovalConfig{Tools: []string{"refund", "delete_*"}}))
	for tool, want := range map[string]hooks.Action{
		"refund": hooks.ActionAsk, "delete_": hooks.ActionAsk, "delete_all": hooks.ActionAsk, "Refund": hooks.ActionContinue, "": hooks.ActionContinue,
	} {
		v, _ := ask(t, h.BeforeToolCall, calling(tool, "{}"))
		if v.Action != want || want == hooks.ActionAsk && (v.Reason.Code != "approval_required" || !strings.Contains(v.Reason.Text, tool)) {
			t.Errorf("%q: %s %+v; want %s", tool, v.Action, v.Reason, want)
		}
	}
	if r := h.Set().Hooks[0]; !r.Pure || r.Phase != hooks.PhaseValidate || r.Config != `{"tools":["refund","delete_*"]}` {
		t.Errorf("registered as %+v", r)
	}
}

func TestRequireApprovalByArgument(t *testing.T) {
	t.Parallel()
	over := guard.Condition{Argument: "/order/amount", GreaterThan: "100"}
	equals := guard.Condition{Argument: "/a", Equals: "x"}
	number := guard.Condition{Argument: "/a", Equals: 12}
	digits := guard.Condition{Argument: "/a", Equals: "7"}
	kelvin := guard.Condition{Argument: "/k", Equals: "no"}
	tenth := guard.Condition{Argument: "/a", Equals: 0.1}
	truth := guard.Condition{Argument: "/a", Equals: true}
	oneOf := guard.Condition{Argument: "/a", OneOf: []any{"x", json.Number("18446744073709551616"), uint8(3), false}}
	matches := guard.Condition{Argument: "/a", Matches: `^ä+$`}
	huge := guard.Condition{Argument: "/a", GreaterThan: "9223372036854775807"}
	below := guard.Condition{Argument: "/a", GreaterThan: "-1.5e2"}
	nested := guard.Condition{Argument: "/l/1/x~1y/m~0n/", Equals: "v"}
	for _, c := range []struct {
		when      guard.Condition
		arguments string
		asks      bool
	}{
		{over, `{"order":{"amount":100}}`, false},
		{over, `{"order":{"amount":100.0}}`, false},
		{over, `{"order":{"amount":1e2}}`, false},
		{over, `{"order":{"amount":-500}}`, false},
		{over, `{"order":{"amount":0}}`, false},
		{over, `{"order":{"amount":100.00000000000000000001}}`, true},
		{over, `{"order":{"amount":1e999999999999999999999}}`, true},
		{over, `{"order":{"amount":1e-999999999999999999999}}`, false},
		{over, `{"order":{"amount":"101"}}`, true},
		{over, `{"order":{"amount":"1"}}`, true},
		{over, `{"order":{"amount":null}}`, true},
		{over, `{"order":{"amount":[1]}}`, true},
		{over, `{"order":{}}`, true},
		{over, `{"order":5}`, true},
		{over, `{"order":{"amount":5,"amount":500}}`, true},
		{over, `{"order":{"amount":5},"order":{}}`, true},
		{over, `{}`, true},
		{over, ``, true},
		{over, `{"order":{"amount":5}`, true},
		{huge, `{"a":9223372036854775807}`, false},
		{huge, `{"a":9223372036854775808}`, true},
		{huge, `{"a":92233720368547758070}`, true},
		{below, `{"a":-150}`, false},
		{below, `{"a":-150.1}`, false},
		{below, `{"a":-149.9}`, true},
		{below, `{"a":-0}`, true},
		{equals, `{"a":"x"}`, true},
		{equals, `{"a":"\u0078"}`, true},
		{equals, `{"a":"X"}`, false},
		{equals, `{"a":1}`, false},
		{equals, `{"a":null}`, true},
		{equals, `{"a":{}}`, true},
		{number, `{"a":12}`, true},
		{number, `{"a":1.2e1}`, true},
		{number, `{"a":12.000}`, true},
		{number, `{"a":"12"}`, true},
		{number, `{"a":" +12.0 "}`, true},
		{number, `{"a":"13"}`, false},
		{number, `{"a":"twelve"}`, false},
		{number, `{"a":13,"A":12}`, true},
		{number, `{"A":12}`, true},
		{number, `{"a":13,"b":{"A":12}}`, false},
		{digits, `{"a":7}`, true},
		{digits, `{"a":8}`, false},
		{kelvin, `{"k":"x","\u212a":"y"}`, true},
		{truth, `{"a":"True"}`, true},
		{truth, `{"a":"no"}`, false},
		{number, `{"a":-12}`, false},
		{tenth, `{"a":0.1}`, true},
		{tenth, `{"a":0.10000000000000001}`, false},
		{truth, `{"a":true}`, true},
		{truth, `{"a":false}`, false},
		{oneOf, `{"a":18446744073709551616}`, true},
		{oneOf, `{"a":3}`, true},
		{oneOf, `{"a":false}`, true},
		{oneOf, `{"a":18446744073709551617}`, false},
		{oneOf, `{"a":"3"}`, true},
		{oneOf, `{"a":"4"}`, false},
		{matches, `{"a":"ää"}`, true},
		{matches, `{"a":"ab"}`, false},
		{matches, `{"a":""}`, false},
		{matches, `{"a":1}`, true},
		{nested, `{"l":[0,{"x/y":{"m~n":{"":"v"}}}]}`, true},
		{nested, `{"l":[0,{"x/y":{"m~n":{"":"w"}}}]}`, false},
		{nested, `{"l":[0]}`, true},
	} {
		h := made(t)(guard.RequireApproval(guard.RequireApprovalConfig{When: []guard.Condition{c.when}}))
		v, ds := ask(t, h.BeforeToolCall, calling("refund", c.arguments))
		if asks := v.Action == hooks.ActionAsk; asks != c.asks || ds[0].Outcome != hooks.OutcomeOK {
			t.Errorf("%+v of %s: %s %s; want to ask: %v", c.when, c.arguments, v.Action, ds[0].Payload.Reason, c.asks)
		}
	}
}

func TestRequireApprovalNeedsAllThatIsGiven(t *testing.T) {
	t.Parallel()
	h := made(t)(guard.RequireApproval(guard.RequireApprovalConfig{
		Tools: []string{"refund"}, Reason: "A lot of money.",
		When: []guard.Condition{{Argument: "/amount", GreaterThan: "10"}, {Argument: "/currency", Equals: "EUR"}},
	}))
	for arguments, want := range map[string]hooks.Action{
		`{"amount":11,"currency":"EUR"}`: hooks.ActionAsk,
		`{"amount":10,"currency":"EUR"}`: hooks.ActionContinue,
		`{"amount":11,"currency":"USD"}`: hooks.ActionContinue,
		`{"currency":"EUR"}`:             hooks.ActionAsk,
		`{"currency":"USD"}`:             hooks.ActionContinue,
	} {
		v, _ := ask(t, h.BeforeToolCall, calling("refund", arguments))
		if v.Action != want || want == hooks.ActionAsk && v.Reason.Text != "A lot of money." {
			t.Errorf("%s: %s %q; want %s", arguments, v.Action, v.Reason.Text, want)
		}
	}
}

func TestRequireApprovalByTimeOfDay(t *testing.T) {
	t.Parallel()
	night := guard.DaytimeConfig{Zone: "Europe/Berlin", From: "22:00", To: "06:00", Weekdays: []string{"fri", "sat"}}
	office := guard.DaytimeConfig{Zone: "America/New_York", From: "09:00", To: "17:30", Weekdays: []string{"mon"}}
	sunday := guard.DaytimeConfig{Zone: "Pacific/Auckland", Weekdays: []string{"sun"}}
	gap := guard.DaytimeConfig{Zone: "Europe/Berlin", From: "02:00", To: "03:00"}
	full := guard.DaytimeConfig{Zone: "UTC", From: "08:00", To: "08:00", Weekdays: []string{"mon"}}
	for _, c := range []struct {
		during guard.DaytimeConfig
		at     string
		asks   bool
	}{
		{night, "2026-03-06T20:59:59Z", false}, // Friday, in winter one hour ahead
		{night, "2026-03-06T21:00:00Z", true},
		{night, "2026-03-07T04:59:59Z", true}, // Saturday's morning is of Friday's night
		{night, "2026-03-07T05:00:00Z", false},
		{night, "2026-03-08T04:30:00Z", true},  // Sunday's morning is of Saturday's
		{night, "2026-03-08T21:30:00Z", false}, // Sunday's night is not
		{night, "2026-03-06T04:00:00Z", false}, // and Friday's morning is of Thursday's
		{night, "2026-07-03T19:59:59Z", false}, // in summer two hours ahead
		{night, "2026-07-03T20:00:00Z", true},
		{office, "2026-03-02T14:00:00Z", true}, // Monday
		{office, "2026-03-02T22:29:59Z", true},
		{office, "2026-03-02T22:30:00Z", false},
		{office, "2026-03-09T13:00:00Z", true}, // the clocks went forward on Sunday
		{office, "2026-03-09T12:59:59Z", false},
		{sunday, "2026-03-07T11:00:00Z", true}, // it is still Saturday in London
		{sunday, "2026-03-07T10:59:59Z", false},
		{sunday, "2026-03-08T10:59:59Z", true},
		{sunday, "2026-03-08T11:00:00Z", false},
		{gap, "2026-03-29T00:59:59Z", false}, // 01:59:59, and the next second is 03:00
		{gap, "2026-03-29T01:00:00Z", false},
		{gap, "2026-10-25T00:30:00Z", true}, // 02:30 twice
		{gap, "2026-10-25T01:30:00Z", true},
		{gap, "2026-10-25T02:00:00Z", false},
		{full, "2026-03-02T07:59:59Z", false},
		{full, "2026-03-02T08:00:00Z", true},
		{full, "2026-03-03T07:59:59Z", true},
		{full, "2026-03-03T08:00:00Z", false},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		h := made(t)(guard.RequireApproval(guard.RequireApprovalConfig{During: &c.during, Now: func() time.Time { return at }}))
		v, _ := ask(t, h.BeforeToolCall, calling("refund", "{}"))
		if asks := v.Action == hooks.ActionAsk; asks != c.asks {
			t.Errorf("%+v at %s: %s; want to ask: %v", c.during, c.at, v.Action, c.asks)
		}
		if h.Set().Hooks[0].Pure {
			t.Error("a hook that looks at the clock says that it is pure")
		}
		if c.asks && !strings.Contains(v.Reason.Text, strings.ReplaceAll(c.during.Zone, "_", " ")) {
			t.Errorf("reason %q", v.Reason.Text)
		}
	}
}

func TestRequireApprovalHasAClockOfItsOwn(t *testing.T) {
	t.Parallel()
	h := made(t)(guard.RequireApproval(guard.RequireApprovalConfig{During: &guard.DaytimeConfig{Zone: "UTC"}}))
	if v, _ := ask(t, h.BeforeToolCall, calling("refund", "{}")); v.Action != hooks.ActionAsk {
		t.Errorf("on every day: %s", v.Action)
	}
}

func TestRequireApprovalRefusesAConfigThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	when := func(c guard.Condition) guard.RequireApprovalConfig {
		return guard.RequireApprovalConfig{When: []guard.Condition{{Argument: "/ok", Equals: "a"}, c}}
	}
	during := func(d guard.DaytimeConfig) guard.RequireApprovalConfig {
		return guard.RequireApprovalConfig{During: &d}
	}
	for _, c := range []struct {
		field  string
		config guard.RequireApprovalConfig
	}{
		{"", guard.RequireApprovalConfig{}},
		{"", guard.RequireApprovalConfig{When: make([]guard.Condition, 101)}},
		{"tools[0]", guard.RequireApprovalConfig{Tools: []string{"["}}},
		{"when[1].argument", when(guard.Condition{Argument: "amount", Equals: "a"})},
		{"when[1].argument", when(guard.Condition{Equals: "a"})},
		{"when[1]", when(guard.Condition{Argument: "/a"})},
		{"when[1]", when(guard.Condition{Argument: "/a", Equals: 1, Matches: "a"})},
		{"when[1].greater_than", when(guard.Condition{Argument: "/a", GreaterThan: "ten"})},
		{"when[1].greater_than", when(guard.Condition{Argument: "/a", GreaterThan: "1e"})},
		{"when[1].greater_than", when(guard.Condition{Argument: "/a", GreaterThan: "1."})},
		{"when[1].greater_than", when(guard.Condition{Argument: "/a", GreaterThan: "1e2e3"})},
		{"when[1].matches", when(guard.Condition{Argument: "/a", Matches: "("})},
		{"when[1].equals", when(guard.Condition{Argument: "/a", Equals: []string{"a"}})},
		{"when[1].one_of[1]", when(guard.Condition{Argument: "/a", OneOf: []any{1, nil}})},
		{"when[1].one_of", when(guard.Condition{Argument: "/a", OneOf: []any{}})},
		{"during.zone", during(guard.DaytimeConfig{})},
		{"during.zone", during(guard.DaytimeConfig{Zone: "Local"})},
		{"during.zone", during(guard.DaytimeConfig{Zone: "Mars/Olympus_Mons"})},
		{"during.weekdays[1]", during(guard.DaytimeConfig{Zone: "UTC", Weekdays: []string{"mon", "Tuesday"}})},
		{"during.from", during(guard.DaytimeConfig{Zone: "UTC", To: "10:00"})},
		{"during.from", during(guard.DaytimeConfig{Zone: "UTC", From: "9:00", To: "10:00"})},
		{"during.to", during(guard.DaytimeConfig{Zone: "UTC", From: "09:00", To: "24:00"})},
	} {
		h, err := guard.RequireApproval(c.config)
		refused(t, h, err, c.field)
	}
}
