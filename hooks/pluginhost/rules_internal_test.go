package pluginhost

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// taking is a rule that takes a pattern out.
func taking(id, pattern string) *pluginv1.StreamRule {
	return &pluginv1.StreamRule{Id: id, Rule: &pluginv1.StreamRule_Redact{Redact: &pluginv1.Redact{Patterns: []string{pattern}}}}
}

func halts(id string, h *pluginv1.Halt) *pluginv1.StreamRule {
	return &pluginv1.StreamRule{Id: id, Rule: &pluginv1.StreamRule_Halt{Halt: h}}
}

func ruled(id string, rules ...*pluginv1.StreamRule) *pluginv1.BootstrapResponse {
	return &pluginv1.BootstrapResponse{Id: id, Version: "1", StreamRules: rules}
}

func TestARuleThatCannotBeCarriedOutIsRefused(t *testing.T) {
	t.Parallel()
	redact := func(r *pluginv1.Redact) *pluginv1.StreamRule {
		return &pluginv1.StreamRule{Id: "r", Rule: &pluginv1.StreamRule_Redact{Redact: r}}
	}
	with := func(change func(*pluginv1.StreamRule)) *pluginv1.StreamRule {
		r := taking("r", "a")
		change(r)
		return r
	}
	var many []*pluginv1.StreamRule
	for i := range maxRules + 1 {
		many = append(many, taking(fmt.Sprint("r", i), "a"))
	}
	for want, rules := range map[string][]*pluginv1.StreamRule{
		"it has 33 stream rules, of 32 that a plugin may have":                     many,
		`stream rule "R": its id must have 1 to 64 lower-case letters`:             {taking("R", "a")},
		`stream rule "a:b": its id must have`:                                      {taking("a:b", "a")},
		`stream rule "r": there are two`:                                           {taking("r", "a"), taking("s", "a"), taking("r", "b")},
		`stream rule "r": it is neither redact nor halt`:                           {{Id: "r"}},
		`stream rule "r": there is no lane 0`:                                      {with(func(r *pluginv1.StreamRule) { r.Lanes = []pluginv1.Lane{0} })},
		`stream rule "r": there is no lane 4`:                                      {with(func(r *pluginv1.StreamRule) { r.Lanes = []pluginv1.Lane{1, 4} })},
		`stream rule "r": it has 4 lanes`:                                          {with(func(r *pluginv1.StreamRule) { r.Lanes = []pluginv1.Lane{1, 1, 1, 1} })},
		`stream rule "r": "[" is no glob`:                                          {with(func(r *pluginv1.StreamRule) { r.Agents = []string{"["} })},
		`stream rule "r": "" is no glob`:                                           {with(func(r *pluginv1.StreamRule) { r.Tenants = []string{"a", ""} })},
		`stream rule "r": it has no pattern and no set`:                            {redact(&pluginv1.Redact{Replacement: "x"})},
		`stream rule "r": it has 33 patterns; at most 32`:                          {redact(&pluginv1.Redact{Patterns: slices.Repeat([]string{"a"}, 33)})},
		`stream rule "r": sets[1]: "secret" is none of personal, secrets, api_key`: {redact(&pluginv1.Redact{Sets: []string{"secrets", "secret"}})},
		`stream rule "r": patterns[1]: no regular expression`:                      {redact(&pluginv1.Redact{Sets: []string{"secrets"}, Patterns: []string{"a", "("}})},
		`stream rule "r": patterns[0]: the pattern matches the empty text`:         {redact(&pluginv1.Redact{Patterns: []string{"a*"}})},
		`stream rule "r": patterns[0]: the pattern has 1025 bytes`:                 {redact(&pluginv1.Redact{Patterns: []string{strings.Repeat("a", 1025)}})},
		`stream rule "r": replacement: must be a text of at most 256 bytes`:        {redact(&pluginv1.Redact{Patterns: []string{"a"}, Replacement: strings.Repeat("a", 257)})},
		`stream rule "r": pattern: no regular expression`:                          {halts("r", &pluginv1.Halt{Pattern: "("})},
		`stream rule "r": pattern: the pattern is found where there is nothing`:    {halts("r", &pluginv1.Halt{})},
		`stream rule "r": reason: must be a text of at most 1000 bytes`:            {halts("r", &pluginv1.Halt{Pattern: "a", Reason: strings.Repeat("a", 1001)})},
		`stream rule "r": on_stop: there is no policy 9`:                           {halts("r", &pluginv1.Halt{Pattern: "a", OnStop: 9})},
	} {
		if _, err := compileRules("p", rules); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v; want one that begins with %q", err, want)
		}
	}
}

// TestRulesAreObserversOfTheirPlugin in the order of the plugins, and then as each has
// told them.
func TestRulesAreObserversOfTheirPlugin(t *testing.T) {
	t.Parallel()
	first := up((&fake{}).serve(t, Manifest{ID: "b.", Version: "2"}), ruled("b.",
		&pluginv1.StreamRule{
			Id: "tickets", Agents: []string{"a*"}, Tenants: []string{"t"}, Lanes: []pluginv1.Lane{pluginv1.Lane_LANE_TEXT},
			Rule: &pluginv1.StreamRule_Redact{Redact: &pluginv1.Redact{Patterns: []string{`ACME-\d+`}, Sets: []string{"email"}, Replacement: "[ticket]"}},
		},
		halts("canary", &pluginv1.Halt{Pattern: "canary", Reason: "no", OnStop: pluginv1.StopPolicy_STOP_POLICY_FALLBACK}),
	))
	second := up((&fake{}).serve(t, Manifest{ID: "a", Version: "1"}), ruled("a", halts("canary", &pluginv1.Halt{Pattern: "x"})))
	c := newService(t, nil).caller([]*Plugin{first, down("never"), second})
	set, err := stream.NewSet(c.Observers()...)
	if err != nil {
		t.Fatal(err)
	}
	list := set.Hooks()
	if len(list) != 6 {
		t.Fatalf("hooks %+v", list)
	}
	for i, want := range []string{
		`b.:tickets@2 stop true &{[t] [a*] [] <nil>} {"class":"*","on_stop":"end_turn","chunk_time":100000000,"hold_bytes":-1,"hold_time":-1,` +
			`"config":{"patterns":["email"],"matching":["ACME-\\d+"],"with":"[ticket]","lanes":["text"]}}`,
		`b.:canary@2 detach false <nil> {"class":"*","on_stop":"fallback","chunk_time":2000000,"hold_bytes":65536,"hold_time":2000000000,` +
			`"config":{"patterns":["canary"],"lanes":["text","reasoning","tool_arguments"],"reason":"no"}}`,
		`a:canary@1 detach false <nil> {"class":"*","on_stop":"end_turn","chunk_time":2000000,"hold_bytes":65536,"hold_time":2000000000,` +
			`"config":{"patterns":["x"],"lanes":["text","reasoning","tool_arguments"]}}`,
	} {
		h := list[i]
		if got := fmt.Sprintf("%s@%s %s %t %v %s", h.ID, h.Version, h.OnFailure, h.Redacting, h.Only, h.Config); got != want {
			t.Errorf("observer %d\n got %s\nwant %s", i, got, want)
		}
		if h.Gate != hooks.GateOnChunk || h.Kind != hooks.KindObserver || h.Digest != "sha256:00" {
			t.Errorf("observer %d: %+v", i, h)
		}
	}
}

// TestRulesStayWithoutAProcess: they are data, known from the first one.
func TestRulesStayWithoutAProcess(t *testing.T) {
	t.Parallel()
	p := up((&fake{}).serve(t, policyManifest), ruled("policy", taking("r", "a")))
	c := newService(t, nil).caller([]*Plugin{p})
	p.process, p.status.State = nil, StateDown
	if got := c.Observers(); len(got) != 1 || got[0].ID != "policy:r" {
		t.Errorf("observers %+v", got)
	}
	p.answer = ruled("policy")
	if got := c.Observers(); len(got) != 1 {
		t.Errorf("they are compiled anew: %+v", got)
	}
}
