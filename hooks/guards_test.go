package hooks_test

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

func TestDenyToolsRefusesByGlob(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]hooks.Action{
		"rm": hooks.ActionBlock, "shell_run": hooks.ActionBlock, "Rm": hooks.ActionContinue, "rmdir": hooks.ActionContinue, "look": hooks.ActionContinue,
	} {
		v, ds := ask(t, hooks.DenyTools("rm", "shell_*"), call{Call: hooks.ToolCall{Name: name}})
		if v.Action != want {
			t.Errorf("%s: %s; want %s", name, v.Action, want)
		}
		if want == hooks.ActionBlock && (v.Reason.Code != "tool_denied" || !strings.Contains(v.Reason.Text, name) || ds[0].RuleID == "") {
			t.Errorf("%s: reason %+v", name, v.Reason)
		}
	}
}

func TestDenyToolsJudgesAfterAllRewrites(t *testing.T) {
	t.Parallel()
	_, ds := ask(t, hooks.Compose(hooks.DenyTools("look"), hooks.Named("m", "1", rewrites("x"))), zone("-"))
	expect(t, "decisions", told(ds), []string{"1/2 mutate m transform", "2/2 validate deny-tools continue"})
}

func TestDenyToolsWithABadGlobRefuses(t *testing.T) {
	t.Parallel()
	v, _ := ask(t, hooks.DenyTools("[", "look"), zone("-"))
	expect(t, "verdict", []any{v.Action, v.Outcome}, []any{hooks.ActionBlock, hooks.OutcomeError})
}

func TestMaxInputBytesCountsBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]hooks.Action{"": hooks.ActionContinue, "abcd": hooks.ActionContinue, "abcde": hooks.ActionBlock, "äöü": hooks.ActionBlock} {
		v, _, err := hooks.Ask(t.Context(), &hooks.Asker{}, hooks.MaxInputBytes(4), hooks.Position{}, hooks.BeforeInput{Text: text}, nil)
		if err != nil || v.Action != want {
			t.Errorf("%q: %s, %v; want %s", text, v.Action, err, want)
		}
		if want == hooks.ActionBlock && v.Reason.Code != "input_too_long" {
			t.Errorf("%q: reason %+v", text, v.Reason)
		}
	}
}
