package loop

import (
	"github.com/seed-2ca4966b/agentd/loop/event"
)

var callTransitions = map[CallStatus]map[event.Type]CallStatus{
	CallNone: {
		event.TypeToolProposed: CallProposed,
	},
	CallProposed: {
		event.TypeToolBlocked:       CallBlocked,
		event.TypeApprovalRequested: CallAwaiting,
		event.TypeToolStarted:       CallStarted,
		event.TypeToolResult:        CallDone,
	},
	CallBlocked: {
		event.TypeToolResult: CallDone,
	},
	CallAwaiting: {
		event.TypeApprovalDecided: CallApproved, // or another, as the event says
	},
	CallApproved: {
		event.TypeToolBlocked: CallBlocked,
		event.TypeToolStarted: CallStarted,
		event.TypeToolResult:  CallDone,
	},
	CallEdited: {
		event.TypeToolBlocked: CallBlocked,
		// What hooks have made of what a person gave.
		event.TypeApprovalRequested: CallAwaiting,
		event.TypeToolStarted:       CallStarted,
		event.TypeToolResult:        CallDone,
	},
	CallDenied: {
		event.TypeToolResult: CallDone,
	},
	CallConfirmed: {
		event.TypeToolResult: CallDone,
	},
	CallStarted: {
		event.TypeToolStarted:  CallStarted, // an idempotent tool, again
		event.TypeToolProgress: CallStarted,
		event.TypeToolExecuted: CallExecuted,
		event.TypeToolBlocked:  CallBlocked, // not again
		// Whether it has taken effect.
		event.TypeApprovalRequested: CallAwaiting,
		event.TypeToolResult:        CallDone,
	},
	CallExecuted: {
		event.TypeToolStarted: CallStarted, // an idempotent tool whose output was lost
		event.TypeToolBlocked: CallBlocked, // not again
		event.TypeToolResult:  CallDone,
	},
	CallDone: {},
}

func callID(p event.Payload) (string, bool) {
	switch p := p.(type) {
	case event.ToolProposed:
		return p.CallID, true
	case event.ToolBlocked:
		return p.CallID, true
	case event.ApprovalRequested:
		return p.CallID, true
	case event.ApprovalDecided:
		return p.CallID, true
	case event.ToolStarted:
		return p.CallID, true
	case event.ToolProgress:
		return p.CallID, true
	case event.ToolExecuted:
		return p.CallID, true
	case event.ToolResult:
		return p.CallID, true
	}
	return "", false
}
