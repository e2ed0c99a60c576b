package hooks_test

import (
	"context"
	"errors"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

func TestHookIsAskedOnlyAboutItsScope(t *testing.T) {
	t.Parallel()
	in := zone("-")
	in.TenantID, in.Agent = "acme", "support"
	for name, c := range map[string]struct {
		scope hooks.Scope
		asked bool
	}{
		"everything":              {hooks.Scope{}, true},
		"the tool":                {hooks.Scope{Tools: []string{"refund", "char*"}}, true},
		"another tool":            {hooks.Scope{Tools: []string{"refund", "discharge"}}, false},
		"the agent":               {hooks.Scope{Agents: []string{"sup*"}}, true},
		"another agent":           {hooks.Scope{Agents: []string{"sales"}, Tools: []string{"charge"}}, false},
		"the tenant":              {hooks.Scope{Tenants: []string{"acme"}, Agents: []string{"*"}, Tools: []string{"*"}}, true},
		"another tenant":          {hooks.Scope{Tenants: []string{"acm"}, Agents: []string{"*"}, Tools: []string{"*"}}, false},
		"a glob that is none":     {hooks.Scope{Tools: []string{"[", "x"}}, true},
		"such a one and an agent": {hooks.Scope{Tools: []string{"["}, Agents: []string{"sales"}}, false},
	} {
		v, ds := ask(t, hooks.Named("guard", "1", says(callResult{Action: hooks.ActionBlock}), hooks.Only(c.scope)), in)
		if (len(ds) == 1) != c.asked || (v.Action == hooks.ActionBlock) != c.asked {
			t.Errorf("%s: %s, decisions %v", name, v.Action, told(ds))
		}
		if !c.asked && (v.Value != in || v.Outcome != hooks.OutcomeOK) {
			t.Errorf("%s: verdict %+v", name, v)
		}
	}
}

// TestAScopeIsNarrowedByAnother whatever of the two has which lists, and the option may
// be used again.
func TestAScopeIsNarrowedByAnother(t *testing.T) {
	t.Parallel()
	in := zone("-")
	in.TenantID, in.Agent = "acme", "support"
	again := hooks.AlsoOnly(hooks.Scope{Agents: []string{"support"}, Tools: []string{"ch*"}})
	for name, c := range map[string]struct {
		opts  []hooks.Option
		asked bool
	}{
		"of everything":            {[]hooks.Option{again}, true},
		"of both":                  {[]hooks.Option{hooks.Only(hooks.Scope{Agents: []string{"s*"}, Tools: []string{"charge"}}), again}, true},
		"of another tool":          {[]hooks.Option{hooks.Only(hooks.Scope{Tools: []string{"refund"}}), again}, false},
		"to another agent":         {[]hooks.Option{hooks.Only(hooks.Scope{Agents: []string{"s*"}}), hooks.AlsoOnly(hooks.Scope{Agents: []string{"sales"}})}, false},
		"to another tenant":        {[]hooks.Option{again, hooks.AlsoOnly(hooks.Scope{Tenants: []string{"x"}})}, false},
		"twice, first to another":  {[]hooks.Option{again, hooks.AlsoOnly(hooks.Scope{Agents: []string{"sales"}}), hooks.AlsoOnly(hooks.Scope{Agents: []string{"*"}})}, false},
		"twice, second to another": {[]hooks.Option{again, hooks.AlsoOnly(hooks.Scope{Agents: []string{"*"}}), hooks.AlsoOnly(hooks.Scope{Agents: []string{"sales"}})}, false},
	} {
		h := hooks.Named("guard", "1", says(callResult{Action: hooks.ActionBlock}), c.opts...)
		if _, ds := ask(t, h, in); (len(ds) == 1) != c.asked {
			t.Errorf("%s: decisions %v", name, told(ds))
		}
	}
}

// TestChainIsThatOfTheHooksInScope: a place that is left out would look like a
// row that is missing.
func TestChainIsThatOfTheHooksInScope(t *testing.T) {
	t.Parallel()
	other := hooks.Only(hooks.Scope{Tools: []string{"other"}})
	_, ds := ask(t, hooks.Compose(
		hooks.Named("a", "1", continues(), other), hooks.Named("b", "1", continues(), hooks.InPhase(hooks.PhaseValidate)),
		continues(), hooks.Named("c", "1", continues(), other, hooks.InPhase(hooks.PhaseValidate))), zone("-"))
	expect(t, "decisions", told(ds), []string{"1/2 mutate anonymous/3 continue", "2/2 validate b continue"})
}

func TestScopeOfToolsLeavesNothingOutWhereNoToolIsCalled(t *testing.T) {
	t.Parallel()
	block := func(context.Context, hooks.BeforeInput) (hooks.BeforeInputResult, error) {
		return hooks.BeforeInputResult{Action: hooks.ActionBlock}, nil
	}
	for agent, want := range map[string]hooks.Action{"a": hooks.ActionBlock, "b": hooks.ActionContinue} {
		h := hooks.Named("h", "1", block, hooks.Only(hooks.Scope{Tools: []string{"x"}, Agents: []string{"a"}}))
		v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, h, hooks.Position{}, hooks.BeforeInput{Agent: agent}, nil)
		if err != nil || v.Action != want {
			t.Errorf("agent %s: %s, %v", agent, v.Action, err)
		}
	}
}

func TestEveryGateHasASubject(t *testing.T) {
	t.Parallel()
	none := hooks.Only(hooks.Scope{Tenants: []string{"nobody"}})
	h := everywhere(t)
	for name, err := range map[string]error{
		"input": askOnly(t, h.BeforeInput, hooks.BeforeInput{}, none), "run start": askOnly(t, h.BeforeRunStart, hooks.BeforeRunStart{}, none),
		"context": askOnly(t, h.TransformContext, hooks.TransformContext{}, none), "headers": askOnly(t, h.BeforeProviderHeaders, hooks.BeforeProviderHeaders{}, none),
		"request": askOnly(t, h.BeforeProviderRequest, hooks.BeforeProviderRequest{}, none), "answer": askOnly(t, h.AfterProviderResponse, hooks.AfterProviderResponse{}, none),
		"call": askOnly(t, h.BeforeToolCall, call{}, none), "execute": askOnly(t, h.BeforeExecute, hooks.BeforeExecute{}, none),
		"output": askOnly(t, h.AfterToolCall, hooks.AfterToolCall{}, none),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func askOnly[In hooks.Input[In, Out], Out hooks.Result](t *testing.T, f hooks.Func[In, Out], in In, only hooks.Option) error {
	t.Helper()
	_, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, hooks.Named("h", "1", f, only), hooks.Position{}, in, nil)
	if err == nil && len(ds) > 0 {
		err = errors.New("it was asked")
	}
	return err
}

func TestScopeStandsInTheHookSet(t *testing.T) {
	t.Parallel()
	of := func(opts ...hooks.Option) hooks.HookSet {
		return hooks.Hooks{BeforeToolCall: hooks.Named("a", "1", continues(), opts...)}.Set()
	}
	scope := hooks.Scope{Tools: []string{"rm"}}
	narrow := of(hooks.Only(scope))
	expect(t, "scope", *narrow.Hooks[0].Only, scope)
	if narrow.Digest == of().Digest || narrow.Digest == of(hooks.Only(hooks.Scope{Tools: []string{"mv"}})).Digest {
		t.Error("another scope has the same digest")
	}
}

func TestDecisionsOfARuleNameItWhateverBecameOfIt(t *testing.T) {
	t.Parallel()
	fails := func(context.Context, call) (callResult, error) { return callResult{}, errors.New("no such key") }
	named := says(callResult{Action: hooks.ActionContinue, Reason: hooks.Reason{Rule: "inner"}})
	_, ds := ask(t, hooks.Compose(
		hooks.Named("ok", "1", continues(), hooks.OfKind(hooks.KindRule)), hooks.Named("names", "1", named, hooks.OfKind(hooks.KindRule)),
		hooks.Named("go", "1", continues()), hooks.Named("broken", "1", fails, hooks.OfKind(hooks.KindRule))), zone("-"))
	var got []string
	for _, d := range ds {
		got = append(got, d.RuleID)
	}
	expect(t, "rules", got, []string{"ok", "inner", "", "broken"})
}

func TestScopeCoversByTenantAndAgentWhateverItsTools(t *testing.T) {
	t.Parallel()
	s := &hooks.Scope{Tenants: []string{"acme*"}, Agents: []string{"support", "sales/*"}, Tools: []string{"none"}}
	for _, c := range []struct {
		scope         *hooks.Scope
		tenant, agent string
		want          bool
	}{
		{nil, "any", "any", true},
		{&hooks.Scope{}, "any", "any", true},
		{s, "acme", "support", true},
		{s, "acme-eu", "sales/eu", true},
		{s, "other", "support", false},
		{s, "acme", "other", false},
	} {
		if got := c.scope.Covers(c.tenant, c.agent); got != c.want {
			t.Errorf("%v covers %s of %s: %v", c.scope, c.agent, c.tenant, got)
		}
	}
}

// TestAHookThatIsAboutSomethingElseCostsNothing: every gate of every run passes it.
func TestAHookThatIsAboutSomethingElseCostsNothing(t *testing.T) { //nolint:paralleltest // it counts allocations
	other, in := hooks.Only(hooks.Scope{Tools: []string{"no_*"}}), zone("-")
	f := hooks.Compose(
		hooks.Named("a", "1", says(callResult{Action: hooks.ActionBlock}), other),
		hooks.Named("b", "1", says(callResult{Action: hooks.ActionBlock}), other),
	)
	asker := &hooks.Asker{}
	n := testing.AllocsPerRun(100, func() {
		if v, ds, err := hooks.Ask(t.Context(), asker, f, hooks.Position{}, in, nil); v.Action != hooks.ActionContinue || len(ds) != 0 || err != nil {
			t.Errorf("%s, %d decisions, %v", v.Action, len(ds), err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWhoIsNotAskedIsKnownBefore(t *testing.T) {
	t.Parallel()
	f := hooks.Compose(
		hooks.Named("a", "1", continues(), hooks.Only(hooks.Scope{Agents: []string{"support"}, Tools: []string{"memory_*"}})),
		hooks.Named("b", "1", continues(), hooks.Only(hooks.Scope{Tools: []string{"charge"}})),
	)
	for _, c := range []struct {
		agent, tool string
		want        bool
	}{{"support", "memory_write", true}, {"support", "look", false}, {"other", "memory_write", false}, {"other", "charge", true}} {
		in := hooks.BeforeToolCall{RunRef: hooks.RunRef{Agent: c.agent}, Call: hooks.ToolCall{Name: c.tool}}
		_, decisions, err := hooks.Ask(t.Context(), &hooks.Asker{}, f, hooks.Position{}, in, nil)
		if got := hooks.Asks(f, in); got != c.want || len(decisions) > 0 != c.want || err != nil {
			t.Errorf("%s, %s: %t, and %d decisions, %v", c.agent, c.tool, got, len(decisions), err)
		}
	}
	if hooks.Asks[hooks.BeforeToolCall](nil, hooks.BeforeToolCall{}) {
		t.Error("nobody is asked")
	}
}
