package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
)

// refund is what the model asks for.
type refund struct {
	Order  string
	Amount int64
}

func parseRefund(arguments []byte) (r refund, err error) {
	// A map, since a struct would take AMOUNT for the amount, and a policy that is
	// written in something else would not.
	var given map[string]string
	if err := json.Unmarshal(arguments, &given); err != nil {
		return r, fmt.Errorf("arguments: %w", err)
	}
	r.Order = given["order"]
	if r.Amount, err = strconv.ParseInt(given["amount"], 10, 64); err != nil || len(given) != 2 || r.Order == "" || r.Amount <= 0 {
		return r, errors.New("arguments: give an order and a positive amount")
	}
	return r, nil
}

// refunds is the desk's tool. Where a refund is sent to somebody, CallID is the
// idempotency key to send along; here it is the key of a map.
type refunds struct {
	mu   sync.Mutex
	made map[string]refund // by call
}

func newRefunds() *refunds { return &refunds{made: map[string]refund{}} }

// Spec implements loop.Tool. The tool is idempotent, since a call that is made
// again after a crash finds its refund in the map.
func (*refunds) Spec() loop.ToolSpec {
	return loop.ToolSpec{
		Name: "refund", Description: "Refunds an amount for an order.", Idempotent: true,
		Schema: json.RawMessage(`{
			"type": "object", "additionalProperties": false, "required": ["order", "amount"],
			"properties": {"order": {"type": "string"}, "amount": {"type": "string", "pattern": "^[0-9]+$"}}
		}`),
	}
}

// Validate implements loop.Tool.
func (*refunds) Validate(arguments json.RawMessage) error {
	_, err := parseRefund(arguments)
	return err
}

// Call implements loop.Tool.
func (t *refunds) Call(_ context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
	r, err := parseRefund(in.Arguments)
	if err != nil {
		return loop.ToolOutput{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made[in.CallID] = r
	return loop.ToolOutput{Content: fmt.Sprintf("%d refunded for order %s.", r.Amount, r.Order)}, nil
}

// policy is the desk's own: no refund of more than 500.
func policy() hooks.Hooks {
	const most = 500
	limit := func(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
		r, err := parseRefund([]byte(in.Call.Arguments))
		if err != nil {
			return hooks.BeforeToolCallResult{}, err // no answer: the call is blocked
		}
		if r.Amount <= most {
			return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
		}
		return hooks.BeforeToolCallResult{Action: hooks.ActionBlock, Reason: hooks.Reason{
			Code: "refund_too_large", Text: fmt.Sprintf("A refund of %d is more than %d.", r.Amount, most),
		}}, nil
	}
	return hooks.Hooks{BeforeToolCall: hooks.Named("refund-limit", "1", limit,
		hooks.InPhase(hooks.PhaseValidate), hooks.Pure(), hooks.Only(hooks.Scope{Tools: []string{"refund"}}))}
}
