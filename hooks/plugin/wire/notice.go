package wire

import (
	"github.com/seed-2ca4966b/agentd/hooks"
	v1 "github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
)

// Notice turns notifications of one type into messages and back. Its functions are
// pure.
type Notice[T any] struct {
	// Name is that of the field of [hooks.Hooks], Type the number in the protocol.
	Name string
	Type v1.NotificationType
	// Tell is for the host, which adds seq and time. Told is for the plugin; it
	// returns false for a notification of another type.
	Tell func(T) *v1.Notification
	Told func(*v1.Notification) (T, bool)
}

// The notifications.
var (
	RunStart = Notice[hooks.RunStart]{
		Name: "OnRunStart", Type: v1.NotificationType_NOTIFICATION_TYPE_RUN_START,
		Tell: func(n hooks.RunStart) *v1.Notification {
			return &v1.Notification{Run: run(n.RunRef), Kind: &v1.Notification_RunStart{RunStart: &v1.RunStart{}}}
		},
		Told: func(n *v1.Notification) (hooks.RunStart, bool) {
			return hooks.RunStart{RunRef: runOf(n.GetRun())}, n.GetRunStart() != nil
		},
	}
	TurnStart = Notice[hooks.TurnStart]{
		Name: "OnTurnStart", Type: v1.NotificationType_NOTIFICATION_TYPE_TURN_START,
		Tell: func(n hooks.TurnStart) *v1.Notification {
			return &v1.Notification{Run: run(n.RunRef), Kind: &v1.Notification_TurnStart{TurnStart: &v1.TurnStart{
				Turn: int32(n.Turn), Attempt: int32(n.Attempt), Resumed: n.Resumed,
			}}}
		},
		Told: func(n *v1.Notification) (hooks.TurnStart, bool) {
			t := n.GetTurnStart()
			return hooks.TurnStart{
				RunRef: runOf(n.GetRun()), Turn: int(t.GetTurn()), Attempt: int(t.GetAttempt()), Resumed: t.GetResumed(),
			}, t != nil
		},
	}
	ToolExecutionStart = Notice[hooks.ToolExecutionStart]{
		Name: "OnToolExecutionStart", Type: v1.NotificationType_NOTIFICATION_TYPE_TOOL_EXECUTION_START,
		Tell: func(n hooks.ToolExecutionStart) *v1.Notification {
			return &v1.Notification{Run: run(n.RunRef), Kind: &v1.Notification_ToolExecutionStart{ToolExecutionStart: &v1.ToolExecutionStart{
				Turn: int32(n.Turn), Attempt: int32(n.Attempt), Call: call(n.Call),
			}}}
		},
		Told: func(n *v1.Notification) (hooks.ToolExecutionStart, bool) {
			t := n.GetToolExecutionStart()
			return hooks.ToolExecutionStart{
				RunRef: runOf(n.GetRun()), Turn: int(t.GetTurn()), Attempt: int(t.GetAttempt()), Call: callOf(t.GetCall()),
			}, t != nil
		},
	}
	TurnEnd = Notice[hooks.TurnEnd]{
		Name: "OnTurnEnd", Type: v1.NotificationType_NOTIFICATION_TYPE_TURN_END,
		Tell: func(n hooks.TurnEnd) *v1.Notification {
			return &v1.Notification{Run: run(n.RunRef), Kind: &v1.Notification_TurnEnd{TurnEnd: &v1.TurnEnd{
				Turn: int32(n.Turn), ToolCalls: int32(n.ToolCalls),
			}}}
		},
		Told: func(n *v1.Notification) (hooks.TurnEnd, bool) {
			t := n.GetTurnEnd()
			return hooks.TurnEnd{RunRef: runOf(n.GetRun()), Turn: int(t.GetTurn()), ToolCalls: int(t.GetToolCalls())}, t != nil
		},
	}
	RunEnd = Notice[hooks.RunEnd]{
		Name: "OnRunEnd", Type: v1.NotificationType_NOTIFICATION_TYPE_RUN_END,
		Tell: func(n hooks.RunEnd) *v1.Notification {
			return &v1.Notification{Run: run(n.RunRef), Kind: &v1.Notification_RunEnd{RunEnd: &v1.RunEnd{
				Status: Text(n.Status), Reason: Text(n.Reason),
			}}}
		},
		Told: func(n *v1.Notification) (hooks.RunEnd, bool) {
			t := n.GetRunEnd()
			return hooks.RunEnd{RunRef: runOf(n.GetRun()), Status: t.GetStatus(), Reason: t.GetReason()}, t != nil
		},
	}
)
