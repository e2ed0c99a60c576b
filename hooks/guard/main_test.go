package guard_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	_ "time/tzdata" // zones are the same wherever the tests run

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/setting"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// made is a guard whose config is good.
func made(t testing.TB) func(hooks.Hooks, error) hooks.Hooks {
	return func(h hooks.Hooks, err error) hooks.Hooks {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
}

// ask asks a gate as the loop does.
func ask[In hooks.Input[In, Out], Out hooks.Result](t testing.TB, f hooks.Func[In, Out], in In) (hooks.Verdict[In], []hooks.Decision) {
	t.Helper()
	v, ds, err := hooks.Ask(context.WithoutCancel(t.Context()), &hooks.Asker{}, f, hooks.Position{Attempt: 1}, in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v, ds
}

var run = hooks.RunRef{TenantID: "acme", SessionID: "s", RunID: "r", Agent: "support"}

func calling(tool, arguments string) hooks.BeforeToolCall {
	return hooks.BeforeToolCall{RunRef: run, Turn: 1, Revision: 1, Call: hooks.ToolCall{ID: "c", Name: tool, Arguments: arguments}}
}

func saying(text string) hooks.BeforeInput {
	return hooks.BeforeInput{TenantID: "acme", SessionID: "s", InputID: "i", Agent: "support", Text: text}
}

func returning(content string) hooks.AfterToolCall {
	return hooks.AfterToolCall{RunRef: run, Turn: 1, Attempt: 1, Call: hooks.ToolCall{ID: "c", Name: "look"}, Content: content}
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s\n got %q\nwant %q", what, got, want)
	}
}

// refused checks that a config is refused, and for which field.
func refused(t *testing.T, h hooks.Hooks, err error, field string) {
	t.Helper()
	var bad *setting.Error
	if !errors.As(err, &bad) || bad.Field != field || bad.Problem == "" || bad.Kind == "" {
		t.Errorf("%v; want a setting.Error about %q", err, field)
	}
	if len(h.Set().Hooks) > 0 {
		t.Errorf("hooks of a config that is refused: %+v", h.Set().Hooks)
	}
}
