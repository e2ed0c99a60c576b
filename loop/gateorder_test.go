package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// watched is a tool that writes down what is done with it.
type watched struct {
	looptest.Tool
	d *diary
}

func (w watched) Validate(arguments json.RawMessage) error {
	w.d.add("%s: validate %s", w.Name, arguments)
	return w.Tool.Validate(arguments)
}

func (w watched) Call(ctx context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
	w.d.add("%s: execute %s", w.Name, in.Arguments)
	return w.Tool.Call(ctx, in)
}

// gates writes down what it is asked about tools, lets everything through, and
// takes tools from the run that are not named in keep.
func (d *diary) gates(keep ...string) hooks.Hooks {
	return hooks.Hooks{
		BeforeRunStart: func(context.Context, hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
			return hooks.BeforeRunStartResult{Action: hooks.ActionTransform, Tools: &keep}, nil
		},
		BeforeToolCall: func(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
			d.add("%s: BeforeToolCall %s", in.Call.Name, in.Call.Arguments)
			args := `{"n":2}`
			return hooks.BeforeToolCallResult{Action: hooks.ActionTransform, Arguments: &args}, nil
		},
		BeforeExecute: func(_ context.Context, in hooks.BeforeExecute) (hooks.BeforeExecuteResult, error) {
			d.add("%s: BeforeExecute %s", in.Call.Name, in.Call.Arguments)
			return hooks.BeforeExecuteResult{Action: hooks.ActionContinue}, nil
		},
		AfterToolCall: func(_ context.Context, in hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
			d.add("%s: AfterToolCall %s", in.Call.Name, in.Content)
			text := "reviewed"
			return hooks.AfterToolCallResult{Action: hooks.ActionTransform, Content: &text}, nil
		},
	}
}

// spy writes down what becomes durable of tool calls.
func (d *diary) spy(t *testing.T) func(a loop.Append) error {
	names := map[string]string{}
	return func(a loop.Append) error {
		for _, e := range a.Events {
			p, err := event.Decode(e)
			if err != nil {
				t.Error(err)
			}
			switch p := p.(type) {
			case event.ToolProposed:
				names[p.CallID] = p.Name
			case event.ApprovalRequested:
				d.add("%s: %s %s", p.Name, e.Type, p.Arguments)
			case event.ApprovalDecided:
				d.add("%s: %s %s", names[p.CallID], e.Type, p.Decision)
			case event.ToolBlocked:
				d.add("%s: %s by %s", names[p.CallID], e.Type, p.By)
			case event.ToolStarted:
				d.add("%s: %s", names[p.CallID], e.Type)
			case event.ToolExecuted:
				d.add("%s: %s", names[p.CallID], e.Type)
			case event.ToolResult:
				d.add("%s: %s %s", p.Name, e.Type, p.Content)
			}
		}
		return nil
	}
}

// TestOrderOfTheGates: lookup, validation, permission, BeforeToolCall,
// approval, BeforeExecute, execution, the fact of it, AfterToolCall, result.
// Each of the first three calls is stopped at one step and would be stopped at
// the next one too, so a swap shows; the fourth goes all the way.
func TestOrderOfTheGates(t *testing.T) {
	t.Parallel()
	var d diary
	tool := func(name string) watched { return watched{looptest.Says(name, "paid"), &d} }
	model := looptest.Answers(
		looptest.Answer(looptest.ToolCall("a", "narrowed", `[]`), looptest.ToolCall("b", "refused", `[]`), looptest.ToolCall("c", "refused", `{}`),
			looptest.ToolCall("d", "pay", `{"n":1}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	)
	log := looptest.NewLog()
	b := looptest.NewBench(log, strict(t, model), tool("narrowed"), tool("refused"), tool("pay"))
	permit(b, loop.Permission{Tools: "refused", Mode: loop.PermissionDeny}, loop.Permission{Tools: "pay", Mode: loop.PermissionAsk})
	b.Use(d.gates("refused", "pay"))
	log.LoseAcks(d.spy(t))
	j := b.Start(t, b.Session(t), "hi")
	b.Advance(t, j)
	d.add("a person says yes")
	decide(t, b, openApprovals(t, b, j)[0], true)
	b.Advance(t, next(t, b, j))
	checked(t, b, j.SessionID)
	const (
		invalid = "refused: tool.result The arguments are not valid, so nothing was run: arguments are not a JSON object: json: cannot unmarshal array into Go value of type map[string]json.RawMessage"
		unknown = "narrowed: tool.result There is no tool called narrowed. Nothing was run."
		blocked = "refused: tool.result This call was blocked and not run: The agent may not use this tool."
	)
	want := []string{
		"refused: validate []", "refused: validate []", "refused: validate {}", "pay: validate {\"n\":1}", "pay: BeforeToolCall {\"n\":1}", "pay: validate {\"n\":2}",
		unknown, invalid, "refused: tool.blocked by permission", blocked, "pay: approval.requested {\"n\":2}",
		"a person says yes", "pay: approval.decided approved",
		"pay: BeforeExecute {\"n\":2}", "pay: tool.started", "pay: execute {\"n\":2}", "pay: tool.executed", "pay: AfterToolCall paid", "pay: tool.result reviewed",
	}
	if !reflect.DeepEqual(d.lines, want) {
		t.Errorf("what happened\n got %s\nwant %s", lines(d.lines), lines(want))
	}
}

func lines(all []string) string {
	out := ""
	for _, l := range all {
		out += "\n\t" + l
	}
	return out
}

// permit gives the agent permissions.
func permit(b *looptest.Bench, all ...loop.Permission) {
	agent := b.Engine.Agents["demo"]
	agent.Permissions = all
	b.Engine.Agents["demo"] = agent
}

// hurry gives people so long to answer.
func hurry(b *looptest.Bench, timeout time.Duration) {
	agent := b.Engine.Agents["demo"]
	agent.ApprovalTimeout = timeout
	b.Engine.Agents["demo"] = agent
}

// play gives the agent another model.
func play(b *looptest.Bench, m looptest.Model) {
	agent := b.Engine.Agents["demo"]
	agent.Model = m
	b.Engine.Agents["demo"] = agent
}

// openApprovals lists the approvals of j's run that wait, in call order.
func openApprovals(t testing.TB, b *looptest.Bench, j loop.Job) []string {
	t.Helper()
	out := []string{}
	for _, turn := range b.Run(t, j).Turns {
		for _, c := range turn.Calls {
			if c.Status == loop.CallAwaiting {
				out = append(out, c.ApprovalID)
			}
		}
	}
	return out
}

// decide answers an approval, which must be possible.
func decide(t testing.TB, b *looptest.Bench, id string, yes bool) loop.Decided {
	t.Helper()
	out, err := b.Commands.DecideApproval(t.Context(), loop.DecideApproval{
		TenantID: looptest.Tenant, ApprovalID: id, Approve: yes, Reason: fmt.Sprintf("said %v.", yes), Actor: looptest.Tester,
	})
	if err != nil {
		t.Fatalf("decide: %v", err)
	}
	return out
}
