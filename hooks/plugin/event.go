package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// PluginEvent is what [Config.OnEvent] is asked about, or told.
type PluginEvent struct { //nolint:revive // Event would be taken for one of a session's log
	// Type is the name of the gate, such as BeforeToolCall, or of the notification,
	// such as OnRunEnd.
	Type    string
	Session string
	// Run is "" where there is no run yet.
	Run string
	// Turn is 0 outside of a turn.
	Turn int
	// Payload is one JSON object. At a gate it is the gate's input as docs/webhooks.md
	// lists it, and with the values of headers. Of a notification it is the message of
	// its kind in notification.proto, with the names and all fields of that: of
	// OnTurnStart {"turn":1,"attempt":1,"resumed":false}.
	Payload json.RawMessage
}

// EventResult is what should become of it. The zero value has no objection and
// changes nothing. Of a notification it is ignored.
type EventResult struct {
	// Block refuses; at AfterToolCall it withholds the output. It is stronger than all
	// others.
	Block bool
	// Reason is for people, and for the model where the answer reaches it.
	Reason string
	// Terminate ends the run. Only BeforeToolCall takes it.
	Terminate bool
	// Action is one of the gate's own words; "" is continue, or transform if there is
	// a payload.
	Action string
	// Payload is one JSON object with what changes, as docs/webhooks.md lists it: such
	// as {"arguments": "{}"} at BeforeToolCall, or {"reply": "No."} with the action
	// handled. A key that the gate does not have is an error.
	Payload json.RawMessage
}

// action is the action that is meant at a gate.
func (r EventResult) action(refusal hooks.Action) hooks.Action {
	switch {
	case r.Block:
		return refusal
	case r.Terminate:
		return hooks.ActionTerminate
	case r.Action != "":
		return hooks.Action(r.Action)
	case len(r.Payload) > 0:
		return hooks.ActionTransform
	default:
		return hooks.ActionContinue
	}
}

// changes reads what the result changes into v. What is refused or ended is not
// changed.
func (r EventResult) changes(v any) error {
	if len(r.Payload) == 0 || r.Block || r.Terminate {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(r.Payload))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return &hooks.Failure{Outcome: hooks.OutcomeError, Code: "payload", Err: fmt.Errorf("the payload of the result: %w", err)}
	}
	if _, err := d.Token(); err != io.EOF {
		return &hooks.Failure{Outcome: hooks.OutcomeError, Code: "payload", Err: fmt.Errorf("the payload of the result is more than one document")}
	}
	return nil
}

// asEvent makes a hook of OnEvent. About is whose the input is, and result makes the
// gate's result of an action and of changes that were read into the struct which
// changed returns.
func asEvent[In hooks.Input[In, Out], Out hooks.Result, C any](
	onEvent func(context.Context, PluginEvent) (EventResult, error), gate hooks.Gate,
	about func(In) (hooks.RunRef, int), result func(hooks.Action, hooks.Reason, C) Out,
) hooks.Func[In, Out] {
	refusal := hooks.ActionBlock
	if gate == hooks.GateAfterToolCall {
		refusal = hooks.ActionWithhold
	}
	return func(ctx context.Context, in In) (Out, error) {
		var (
			none    Out
			changes C
		)
		payload, err := json.Marshal(in)
		if err != nil {
			return none, err
		}
		run, turn := about(in)
		r, err := onEvent(ctx, PluginEvent{Type: string(gate), Session: run.SessionID, Run: run.RunID, Turn: turn, Payload: payload})
		if err != nil {
			return none, err
		}
		if err := r.changes(&changes); err != nil {
			return none, err
		}
		return result(r.action(refusal), hooks.Reason{Text: r.Reason}, changes), nil
	}
}

// withEvents are the hooks, and OnEvent where it is asked.
func (c Config) withEvents() hooks.Hooks {
	h := c.Hooks
	for _, name := range c.Events {
		switch g := hooks.Gate(name); g {
		case hooks.GateBeforeInput:
			h.BeforeInput = asEvent(c.OnEvent, g, func(in hooks.BeforeInput) (hooks.RunRef, int) {
				return hooks.RunRef{SessionID: in.SessionID}, 0
			}, inputResult)
		case hooks.GateBeforeRunStart:
			h.BeforeRunStart = asEvent(c.OnEvent, g, func(in hooks.BeforeRunStart) (hooks.RunRef, int) { return in.RunRef, 0 }, runStartResult)
		case hooks.GateTransformContext:
			h.TransformContext = asEvent(c.OnEvent, g, func(in hooks.TransformContext) (hooks.RunRef, int) { return in.RunRef, in.Turn }, contextResult)
		case hooks.GateBeforeProviderHeaders:
			h.BeforeProviderHeaders = asEvent(c.OnEvent, g, func(in hooks.BeforeProviderHeaders) (hooks.RunRef, int) { return in.RunRef, in.Turn }, headersResult)
		case hooks.GateBeforeProviderRequest:
			h.BeforeProviderRequest = asEvent(c.OnEvent, g, func(in hooks.BeforeProviderRequest) (hooks.RunRef, int) { return in.RunRef, in.Turn }, requestResult)
		case hooks.GateAfterProviderResponse:
			h.AfterProviderResponse = asEvent(c.OnEvent, g, func(in hooks.AfterProviderResponse) (hooks.RunRef, int) { return in.RunRef, in.Turn }, responseResult)
		case hooks.GateBeforeToolCall:
			h.BeforeToolCall = asEvent(c.OnEvent, g, func(in hooks.BeforeToolCall) (hooks.RunRef, int) { return in.RunRef, in.Turn }, callResult)
		case hooks.GateBeforeExecute:
			h.BeforeExecute = asEvent(c.OnEvent, g, func(in hooks.BeforeExecute) (hooks.RunRef, int) { return in.RunRef, in.Turn }, executeResult)
		case hooks.GateAfterToolCall:
			h.AfterToolCall = asEvent(c.OnEvent, g, func(in hooks.AfterToolCall) (hooks.RunRef, int) { return in.RunRef, in.Turn }, outputResult)
		default: // a notification: describe has refused all others
		}
	}
	return h
}
