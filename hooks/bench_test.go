package hooks_test

import (
	"context"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// askNil is what the loop does at a gate without a hook.
func askNil(ctx context.Context, a *hooks.Asker, h hooks.Hooks) hooks.Action {
	v, _, err := hooks.Ask(ctx, a, h.BeforeToolCall, hooks.Position{}, hooks.BeforeToolCall{}, nil)
	if err != nil {
		return ""
	}
	return v.Action
}

func TestGateWithoutAHookCostsNoAllocation(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts for the whole process
	ctx, a := t.Context(), &hooks.Asker{}
	h := hooks.Hooks{}.Then(hooks.Hooks{})
	if n := testing.AllocsPerRun(100, func() { askNil(ctx, a, h) }); n != 0 {
		t.Errorf("%v allocations; want none", n)
	}
	if got := askNil(ctx, a, h); got != hooks.ActionContinue {
		t.Errorf("action %q; want continue", got)
	}
}

func BenchmarkAskNobody(b *testing.B) {
	ctx, a := b.Context(), &hooks.Asker{}
	b.ReportAllocs()
	for b.Loop() {
		askNil(ctx, a, hooks.Hooks{})
	}
}

func BenchmarkAskOne(b *testing.B) {
	ctx, a := b.Context(), &hooks.Asker{}
	h := hooks.Hooks{BeforeToolCall: hooks.Named("a", "1", continues())}
	b.ReportAllocs()
	for b.Loop() {
		askNil(ctx, a, h)
	}
}

func BenchmarkRowHash(b *testing.B) {
	r := fullRow()
	b.ReportAllocs()
	for b.Loop() {
		r.Hash()
	}
}
