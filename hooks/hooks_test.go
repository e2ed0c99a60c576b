package hooks_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// recording is a set that writes down who was called with what.
func recording(name string, got *[]string) hooks.Hooks {
	return hooks.Hooks{
		OnRunStart:  func(_ context.Context, in hooks.RunStart) { *got = append(*got, name+" run start "+in.RunID) },
		OnTurnStart: func(_ context.Context, in hooks.TurnStart) { *got = append(*got, name+" turn start "+in.RunID) },
		OnToolExecutionStart: func(_ context.Context, in hooks.ToolExecutionStart) {
			*got = append(*got, name+" tool start "+in.RunID)
		},
		OnTurnEnd: func(_ context.Context, in hooks.TurnEnd) { *got = append(*got, name+" turn end "+in.RunID) },
		OnRunEnd:  func(_ context.Context, in hooks.RunEnd) { *got = append(*got, name+" run end "+in.RunID) },
	}
}

func callAll(ctx context.Context, h hooks.Hooks) {
	ref := hooks.RunRef{RunID: "r"}
	h.OnRunStart(ctx, hooks.RunStart{RunRef: ref})
	h.OnTurnStart(ctx, hooks.TurnStart{RunRef: ref})
	h.OnToolExecutionStart(ctx, hooks.ToolExecutionStart{RunRef: ref})
	h.OnTurnEnd(ctx, hooks.TurnEnd{RunRef: ref})
	h.OnRunEnd(ctx, hooks.RunEnd{RunRef: ref})
}

func TestThenCallsBothInOrder(t *testing.T) {
	t.Parallel()
	var got []string
	callAll(t.Context(), recording("a", &got).Then(recording("b", &got)).Then(recording("c", &got)))
	var want []string
	for _, place := range []string{"run start", "turn start", "tool start", "turn end", "run end"} {
		want = append(want, "a "+place+" r", "b "+place+" r", "c "+place+" r")
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
}

func TestANotificationThatPanicsKeepsNoOtherFromBeingCalled(t *testing.T) {
	t.Parallel()
	var got []string
	note := func(name string) func(context.Context, hooks.RunEnd) {
		return func(context.Context, hooks.RunEnd) {
			got = append(got, name)
			if name == "b" {
				panic(name)
			}
		}
	}
	var none func(context.Context, hooks.RunEnd)
	all := hooks.ComposeNotify(note("a"), none, note("b"), note("c"))
	func() {
		defer func() {
			if v := recover(); v != "b" {
				t.Errorf("the caller recovers %v", v)
			}
		}()
		all(t.Context(), hooks.RunEnd{})
	}()
	if want := []string{"a", "b", "c"}; !reflect.DeepEqual(got, want) {
		t.Errorf("called %q; want %q", got, want)
	}
	if hooks.ComposeNotify(none) != nil {
		t.Error("of nothing it makes something")
	}
}

func TestThenWithAnEmptySetIsTheOther(t *testing.T) {
	t.Parallel()
	var left, right []string
	callAll(t.Context(), recording("a", &left).Then(hooks.Hooks{}))
	callAll(t.Context(), hooks.Hooks{}.Then(recording("a", &right)))
	if len(left) != 5 || !reflect.DeepEqual(left, right) {
		t.Errorf("got %q and %q; want each function called once", left, right)
	}
}

func TestThenOfTwoNilFieldsStaysNil(t *testing.T) {
	t.Parallel()
	got := reflect.ValueOf(hooks.Hooks{}.Then(hooks.Hooks{}))
	for i := range got.NumField() {
		if !got.Field(i).IsNil() {
			t.Errorf("%s is set: a place without a hook would cost a call", got.Type().Field(i).Name)
		}
	}
}

func TestThenLeavesBothSetsAlone(t *testing.T) {
	t.Parallel()
	var got []string
	a := recording("a", &got)
	a.Then(recording("b", &got))
	callAll(t.Context(), a)
	if len(got) != 5 {
		t.Errorf("calls %q; want only those of a", got)
	}
}

func TestMessageTextIsItsTextParts(t *testing.T) {
	t.Parallel()
	m := hooks.Message{Parts: []hooks.Part{
		{Type: hooks.PartReasoning, Text: "hm"}, {Type: hooks.PartText, Text: "one "},
		{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{Name: "look"}}, {Type: hooks.PartText, Text: "two"},
	}}
	if got := m.Text(); got != "one two" {
		t.Errorf("text %q; want «one two»", got)
	}
	if got := (hooks.Message{}).Text(); got != "" {
		t.Errorf("text of nothing: %q", got)
	}
}
