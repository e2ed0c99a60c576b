package hooks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

func TestWithRegistersEachHookAnewAndInItsOrder(t *testing.T) {
	t.Parallel()
	fails := func(context.Context, call) (callResult, error) { return callResult{}, errors.New("down") }
	started := 0
	h := hooks.Hooks{
		BeforeToolCall: hooks.Compose(
			hooks.Named("a", "1", fails, hooks.InPhase(hooks.PhaseValidate), hooks.WithConfig("c")),
			hooks.Named("b", "2", continues()), continues()),
		OnRunStart: func(context.Context, hooks.RunStart) { started++ },
	}
	before := h.Set()
	got := h.With(hooks.OnFailureOpen(), hooks.TimeLimit(time.Second), hooks.Only(hooks.Scope{Agents: []string{"x"}}))
	if again := h.Set(); again.Digest != before.Digest {
		t.Error("the hooks that it was made of are others now")
	}
	set := got.Set().Hooks
	var ids []string
	for i, r := range set {
		ids = append(ids, r.ID)
		want := before.Hooks[i]
		want.OnFailure, want.TimeLimit, want.Only = hooks.FailOpen, time.Second, r.Only
		if r.Only == nil || r.Only.Agents[0] != "x" {
			t.Errorf("scope %+v", r.Only)
		}
		expect(t, "registration", r, want)
	}
	expect(t, "order", ids, []string{"b", "anonymous/3", "a"})
	in := zone("-")
	in.Agent = "x"
	if v, ds := ask(t, got.BeforeToolCall, in); v.Action != hooks.ActionContinue || !ds[2].FailedOpen {
		t.Errorf("verdict %+v, decisions %v", v, told(ds))
	}
	if got.OnRunStart(t.Context(), hooks.RunStart{}); started != 1 || got.BeforeInput != nil {
		t.Error("a notification is lost, or a gate was made")
	}
	renamed := h.With(func(r *hooks.Registration) { r.ID, r.Phase, r.TimeLimit = "n\x00", "none", -1 }).Set().Hooks[0]
	if renamed.ID != "n\ufffd" || renamed.Phase != hooks.PhaseMutate || renamed.TimeLimit != hooks.DefaultTimeLimit {
		t.Errorf("registration %+v", renamed)
	}
}
