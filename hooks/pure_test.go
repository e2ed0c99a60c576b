package hooks_test

import (
	"context"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

func TestGateIsPureOnlyIfAllOfItsHooksAre(t *testing.T) {
	t.Parallel()
	never := func(context.Context, call) (callResult, error) { panic("ran") }
	pure, next, other := hooks.Named("p", "1", never, hooks.Pure()), hooks.Named("n", "1", never, hooks.Pure()), hooks.Named("o", "1", never)
	for name, c := range map[string]struct {
		f    hooks.BeforeToolCallFunc
		want bool
	}{
		"no hook":                  {nil, true},
		"a func":                   {never, false},
		"declared":                 {pure, true},
		"not declared":             {other, false},
		"a func that is declared":  {hooks.Named("", "", never, hooks.Pure()), true},
		"two":                      {hooks.Compose(pure, next), true},
		"one of two":               {hooks.Compose(pure, other), false},
		"and a func":               {hooks.Compose(never, pure), false},
		"nested":                   {hooks.Compose(pure, hooks.Compose(pure, other)), false},
		"sets":                     {hooks.Hooks{BeforeToolCall: pure}.Then(hooks.Hooks{BeforeToolCall: pure}).BeforeToolCall, true},
		"a set behind":             {hooks.Hooks{BeforeToolCall: pure}.Then(hooks.Hooks{BeforeToolCall: other}).BeforeToolCall, false},
		"a set without":            {hooks.Hooks{BeforeToolCall: pure}.Then(hooks.Hooks{}).BeforeToolCall, true},
		"the name around counts":   {hooks.Named("n", "1", hooks.Compose(pure, next)), false},
		"and what it declares":     {hooks.Named("n", "1", hooks.Compose(pure, other), hooks.Pure()), true},
		"a name around a pure one": {hooks.Named("n", "1", pure), false},
	} {
		if got := hooks.IsPure(c.f); got != c.want {
			t.Errorf("%s: pure is %v", name, got)
		}
	}
}

// TestPureStandsInTheSetAndOnlyWhereItIsDeclared: the digests of other sets are
// what they were.
func TestPureStandsInTheSetAndOnlyWhereItIsDeclared(t *testing.T) {
	t.Parallel()
	of := func(opts ...hooks.Option) hooks.HookSet {
		return hooks.Hooks{BeforeToolCall: hooks.Named("a", "1", continues(), opts...)}.Set()
	}
	// That of the list without the word.
	const before = "bba92540be5fd77009cf72d1113b43f59c659a375a5476fcd6ceae21d7581531"
	plain, pure := of(), of(hooks.Pure())
	if plain.Digest != before || plain.Hooks[0].Pure {
		t.Errorf("the set without it: %+v", plain)
	}
	if !pure.Hooks[0].Pure || pure.Digest == before {
		t.Errorf("the set with it: %+v", pure)
	}
	if _, ds := ask(t, hooks.Named("a", "1", continues(), hooks.Pure()), zone("-")); !strings.HasPrefix(told(ds)[0], "1/1 mutate a continue") {
		t.Errorf("decisions %v", told(ds))
	}
}

func TestHooksThatAreNotAskedMakeNoGateImpure(t *testing.T) {
	t.Parallel()
	f := hooks.Compose(
		hooks.Named("a", "1", continues(), hooks.Only(hooks.Scope{Agents: []string{"support"}, Tools: []string{"memory_*"}})),
		hooks.Named("b", "1", continues(), hooks.Pure()),
	)
	support, other := hooks.RunRef{Agent: "support"}, hooks.RunRef{Agent: "other"}
	for _, c := range []struct {
		run   hooks.RunRef
		tools []string
		want  bool
	}{
		{other, []string{"memory_write"}, true}, {support, []string{"look"}, true}, {other, nil, true},
		{support, []string{"look", "memory_write"}, false}, {support, nil, false},
	} {
		if got := hooks.IsPureAbout(f, c.run, c.tools...); got != c.want {
			t.Errorf("%s, %q: %t", c.run.Agent, c.tools, got)
		}
	}
	if !hooks.IsPureAbout[hooks.BeforeToolCall](nil, support) {
		t.Error("nobody is not pure")
	}
}
