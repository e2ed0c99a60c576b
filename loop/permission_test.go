package loop_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestAYesDoesNotOutliveThePermission: what the agent may not use any more does
// not run, although a person had said yes.
func TestAYesDoesNotOutliveThePermission(t *testing.T) {
	t.Parallel()
	a := newAskingRun(t, hooks.Hooks{})
	a.Advance(t, a.job)
	for _, id := range openApprovals(t, a.Bench, a.job) {
		decide(t, a.Bench, id, true)
	}
	before := len(payloads[event.ToolStarted](t, a.Events(t, a.job.SessionID)))
	permit(a.Bench, loop.Permission{Tools: "*", Mode: loop.PermissionDeny})
	if run := a.Advance(t, next(t, a.Bench, a.job)); run.Status != loop.RunCompleted {
		t.Errorf("run %+v", run)
	}
	events, s := checked(t, a.Bench, a.job.SessionID)
	for _, i := range []int{0, 2} {
		if got := results(s)[i]; got.Reason != hooks.ReasonBlocked || !strings.Contains(got.Content, "may not use this tool") {
			t.Errorf("result %+v", got)
		}
	}
	if n := len(payloads[event.ToolStarted](t, events)) - before; n != 0 {
		t.Errorf("%d calls were started", n)
	}
}

// TestWhereNobodyCanBeAskedTheCallIsBlocked: whoever wanted a person's yes.
func TestWhereNobodyCanBeAskedTheCallIsBlocked(t *testing.T) {
	t.Parallel()
	asks := hooks.Hooks{BeforeToolCall: hooks.Named("careful", "1", func(context.Context, hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
		return hooks.BeforeToolCallResult{Action: hooks.ActionAsk, Reason: hooks.Reason{Text: "is that wise?"}}, nil
	})}
	for by, set := range map[string]hooks.Hooks{"permission": {}, string(hooks.GateBeforeToolCall): asks} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			var c counted
			b := looptest.NewBench(looptest.NewLog(), strict(t, calls("pay", "look")), c.tool("pay"), c.tool("look"))
			if by == "permission" {
				permit(b, loop.Permission{Tools: "pay", Mode: loop.PermissionAsk}, loop.Permission{Tools: "*", Mode: loop.PermissionAllow})
			}
			agent := b.Engine.Agents["demo"]
			agent.Unattended = true
			b.Engine.Agents["demo"] = agent
			b.Use(set)
			id := b.Session(t)
			if run := b.Advance(t, b.Start(t, id, "hi")); run.Status != loop.RunCompleted {
				t.Errorf("run %+v", run)
			}
			events, s := checked(t, b, id)
			stop := payloads[event.ToolBlocked](t, events)[0]
			if stop.By != by || stop.ReasonCode != "no_approver" || len(payloads[event.ApprovalRequested](t, events)) != 0 {
				t.Errorf("blocked %+v, events %v", stop, looptest.Types(events))
			}
			if got := results(s)[0]; got.Reason != hooks.ReasonBlocked || !strings.Contains(got.Content, "nobody to ask") {
				t.Errorf("the model is told %+v", got)
			}
			if by == "permission" && !slices.Equal(c.sorted(), []string{"look {}"}) {
				t.Errorf("ran %v", c.sorted())
			}
			for _, row := range ledger(b, id) {
				if row.Action != hooks.ActionAsk {
					t.Errorf("ledger %+v", row)
				}
			}
		})
	}
}

// TestAStarIsAboutEveryTool, whatever is in its name.
func TestAStarIsAboutEveryTool(t *testing.T) {
	t.Parallel()
	for _, glob := range []string{"*", "crm*", "crm/*", "*delete"} {
		var c counted
		b := looptest.NewBench(looptest.NewLog(), strict(t, calls("crm/a/delete")), c.tool("crm/a/delete"))
		permit(b, loop.Permission{Tools: glob, Mode: loop.PermissionDeny})
		id := b.Session(t)
		b.Advance(t, b.Start(t, id, "hi"))
		_, s := checked(t, b, id)
		if got := results(s)[0]; got.Reason != hooks.ReasonBlocked {
			t.Errorf("%s: result %+v", glob, got)
		}
	}
}
