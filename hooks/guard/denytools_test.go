package guard_test

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/guard"
)

func TestDenyToolsRefusesByGlob(t *testing.T) {
	t.Parallel()
	h := made(t)(guard.DenyTools(guard.DenyToolsConfig{Tools: []string{"rm", "shell_*", "größe?"}}))
	for name, rule := range map[string]string{
		"rm": "rm", "shell_run": "shell_*", "shell_": "shell_*", "größen": "größe?", "shell_" + strings.Repeat("ä", 200): "shell_*",
		"Rm": "", "rmdir": "", "look": "", "": "", "größe": "", "a/shell_x": "", "shell_a/b": "shell_*",
	} {
		v, ds := ask(t, h.BeforeToolCall, calling(name, "{}"))
		if rule == "" {
			expect(t, name, []any{v.Action, len(ds), ds[0].Outcome}, []any{hooks.ActionContinue, 1, hooks.OutcomeOK})
			continue
		}
		expect(t, name, []any{v.Action, v.Reason.Code, ds[0].RuleID, ds[0].HookID}, []any{hooks.ActionBlock, "tool_denied", rule, "deny-tools"})
		if !strings.Contains(v.Reason.Text, name[:min(len(name), 8)]) || len(v.Reason.Text) > 200 {
			t.Errorf("%s: reason %q", name, v.Reason.Text)
		}
	}
}

func TestDenyToolsJudgesAfterAllRewritesAndIsPure(t *testing.T) {
	t.Parallel()
	h := made(t)(guard.DenyTools(guard.DenyToolsConfig{Tools: []string{"look"}}))
	r := h.Set().Hooks[0]
	expect(t, "registration", []any{r.Phase, r.Pure, r.Kind, r.Config, r.OnFailure},
		[]any{hooks.PhaseValidate, true, hooks.KindHost, `{"tools":["look"]}`, hooks.FailClosed})
}

func TestDenyToolsTakesTheOptionsOfItsHost(t *testing.T) {
	t.Parallel()
	h := made(t)(guard.DenyTools(guard.DenyToolsConfig{Tools: []string{"*"}},
		func(r *hooks.Registration) { r.ID = "no-tools" }, hooks.Only(hooks.Scope{Tenants: []string{"other"}})))
	if id := h.Set().Hooks[0].ID; id != "no-tools" {
		t.Errorf("id %s", id)
	}
	if v, ds := ask(t, h.BeforeToolCall, calling("rm", "{}")); v.Action != hooks.ActionContinue || len(ds) != 0 {
		t.Errorf("another tenant's call: %s, %d decisions", v.Action, len(ds))
	}
}

func TestDenyToolsRefusesAConfigThatDeniesLessThanItSays(t *testing.T) {
	t.Parallel()
	for field, globs := range map[string][]string{
		"tools": nil, "tools[1]": {"rm", "["}, "tools[0]": {""}, "tools[2]": {"a", "b", strings.Repeat("x", 2000)},
	} {
		h, err := guard.DenyTools(guard.DenyToolsConfig{Tools: globs})
		refused(t, h, err, field)
	}
	h, err := guard.DenyTools(guard.DenyToolsConfig{Tools: make([]string, 101)})
	refused(t, h, err, "tools")
}
