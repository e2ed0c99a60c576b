package rules_test

import (
	"context"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the shop is in Berlin wherever its tests run

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/rules"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// noon is what rules take for the time.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func parse(text string) (*rules.Set, error) {
	return rules.Parse([]rules.File{{Name: "r.yaml", Text: []byte(text)}}, rules.WithClock(func() time.Time { return noon }))
}

func set(t testing.TB, text string) *rules.Set {
	t.Helper()
	s, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// passes runs the examples of a file.
func passes(t *testing.T, s *rules.Set, want int) {
	t.Helper()
	rep, err := s.Test(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range rep.Failures {
		t.Errorf("%s:%d: %s %s\n  %s", f.File, f.Line, f.Rule, f.Name, strings.Join(f.Differences, "\n  "))
	}
	if rep.Examples != want {
		t.Errorf("%d examples; want %d", rep.Examples, want)
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

func calling(tool, arguments string) hooks.BeforeToolCall {
	return hooks.BeforeToolCall{
		RunRef: hooks.RunRef{TenantID: "acme", SessionID: "s", RunID: "r", Agent: "support"}, Turn: 1, Revision: 1,
		Call: hooks.ToolCall{ID: "c", Name: tool, Arguments: arguments},
	}
}
