package hooks_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// leaves is a hook that leaves the run these tools and then answers.
func leaves(id string, tools []string, answer hooks.TransformContextResult, err error, opts ...hooks.Option) hooks.TransformContextFunc {
	return hooks.Named(id, "1", func(ctx context.Context, _ hooks.TransformContext) (hooks.TransformContextResult, error) {
		if err := hooks.NarrowTools(ctx, tools); err != nil {
			return hooks.TransformContextResult{}, err
		}
		return answer, err
	}, opts...)
}

func TestWhatAHookLeavesOfTheToolsCountsWithItsAnswer(t *testing.T) {
	t.Parallel()
	goesOn := hooks.TransformContextResult{Action: hooks.ActionContinue}
	two := leaves("two", []string{"a", "b", "a\x00", "a"}, goesOn, nil)
	closed := hooks.Compose(two, leaves("fails", []string{"c"}, goesOn, errors.New("no")))
	open := hooks.Compose(
		two, leaves("open", []string{"c"}, goesOn, errors.New("no"), hooks.OnFailureOpen()), leaves("shadow", []string{"c"}, goesOn, nil, hooks.Shadow()),
		leaves("illegal", []string{"c"}, hooks.TransformContextResult{Action: hooks.ActionAsk}, nil, hooks.OnFailureOpen()), leaves("none", nil, goesOn, nil),
	)
	for name, c := range map[string]struct {
		f    hooks.TransformContextFunc
		want []hooks.Narrowing
	}{
		"with a failure":   {closed, []hooks.Narrowing{{HookID: "two", Tools: []string{"a", "b", "a\uFFFD"}}}},
		"failures go open": {open, []hooks.Narrowing{{HookID: "two", Tools: []string{"a", "b", "a\uFFFD"}}, {HookID: "none", Tools: []string{}}}},
	} {
		v, decisions, err := hooks.Ask(t.Context(), &hooks.Asker{}, c.f, hooks.Position{RunID: "r"}, hooks.TransformContext{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.want {
			at := slices.IndexFunc(decisions, func(d hooks.Decision) bool { return d.HookID == c.want[i].HookID })
			c.want[i].DecisionID = decisions[at].ID
		}
		if !slices.EqualFunc(v.Narrowed, c.want, func(a, b hooks.Narrowing) bool {
			return a.HookID == b.HookID && a.DecisionID == b.DecisionID && slices.Equal(a.Tools, b.Tools)
		}) {
			t.Errorf("%s: narrowed %+v; want %+v", name, v.Narrowed, c.want)
		}
	}
}

func TestToolsOnlyBecomeFewerInACall(t *testing.T) {
	t.Parallel()
	f := func(ctx context.Context, _ hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
		for _, tools := range [][]string{{"a", "b", "c"}, {"c", "b", "d"}, {"b", "c", "a"}} {
			if err := hooks.NarrowTools(ctx, tools); err != nil {
				return hooks.BeforeToolCallResult{}, err
			}
		}
		return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
	}
	v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, f, hooks.Position{}, hooks.BeforeToolCall{}, nil)
	if err != nil || len(v.Narrowed) != 1 || !slices.Equal(v.Narrowed[0].Tools, []string{"b", "c"}) {
		t.Errorf("narrowed %+v, %v", v.Narrowed, err)
	}
}

func TestAHookInsideAHookNarrowsThroughIt(t *testing.T) {
	t.Parallel()
	inner := hooks.Compose(
		leaves("a", []string{"x", "y"}, hooks.TransformContextResult{Action: hooks.ActionContinue}, nil),
		leaves("b", []string{"y", "z"}, hooks.TransformContextResult{Action: hooks.ActionContinue}, nil),
	)
	outer := hooks.Named("outer", "1", inner)
	v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, outer, hooks.Position{}, hooks.TransformContext{}, nil)
	if err != nil || len(v.Narrowed) != 1 || v.Narrowed[0].HookID != "outer" || !slices.Equal(v.Narrowed[0].Tools, []string{"y"}) {
		t.Errorf("narrowed %+v, %v", v.Narrowed, err)
	}
}

func TestToolsAreNotNarrowedWhereNobodyHearsIt(t *testing.T) {
	t.Parallel()
	if err := hooks.NarrowTools(t.Context(), []string{"a"}); err == nil {
		t.Error("narrowed, in the context of no hook")
	}
	var late context.Context
	var said error
	input := func(ctx context.Context, _ hooks.BeforeInput) (hooks.BeforeInputResult, error) {
		said = hooks.NarrowTools(ctx, []string{"a"})
		return hooks.BeforeInputResult{Action: hooks.ActionContinue}, nil
	}
	f := func(ctx context.Context, _ hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
		late = ctx
		// A message is not the run that the hook around it is about.
		_, err := hooks.Named("input", "1", input)(ctx, hooks.BeforeInput{})
		if err == nil {
			_, _, err = hooks.Ask(ctx, &hooks.Asker{}, hooks.Compose(hooks.Named("input", "1", input), input), hooks.Position{}, hooks.BeforeInput{}, nil)
		}
		return hooks.BeforeRunStartResult{Action: hooks.ActionContinue}, err
	}
	v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, f, hooks.Position{}, hooks.BeforeRunStart{}, nil)
	if err != nil || v.Narrowed != nil || said == nil {
		t.Errorf("narrowed %+v, %v; at BeforeInput: %v", v.Narrowed, err, said)
	}
	if err := hooks.NarrowTools(late, []string{"a"}); err == nil {
		t.Error("narrowed, after the hook has answered")
	}
}

func TestWhatAToolLeavesIsTakenOnce(t *testing.T) {
	t.Parallel()
	ctx, left := hooks.NarrowingTools(t.Context())
	if err := hooks.NarrowTools(ctx, []string{"a"}); err != nil {
		t.Fatal(err)
	}
	if tools, ok := left.Take(); !ok || !slices.Equal(tools, []string{"a"}) {
		t.Errorf("took %q, %t", tools, ok)
	}
	if err := hooks.NarrowTools(ctx, nil); err == nil {
		t.Error("narrowed, after it was taken")
	}
	if _, ok := (*hooks.LeftTools)(nil).Take(); ok {
		t.Error("nobody has said something")
	}
}
