package hooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/guard"
)

// largeOrders lets a person decide about orders of more than 100.
func largeOrders(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
	if in.Call.Name != "place_order" {
		return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
	}
	var order struct {
		Amount int64 `json:"amount"`
	}
	if err := json.Unmarshal([]byte(in.Call.Arguments), &order); err != nil {
		return hooks.BeforeToolCallResult{}, err // a failed check: the call is blocked
	}
	if order.Amount <= 100 {
		return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
	}
	return hooks.BeforeToolCallResult{
		Action: hooks.ActionAsk,
		Reason: hooks.Reason{Code: "large_order", Text: fmt.Sprintf("The order is of %d.", order.Amount)},
	}, nil
}

func Example() {
	h, err := guard.DenyTools(guard.DenyToolsConfig{Tools: []string{"shell"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	h = h.Then(hooks.Hooks{
		BeforeToolCall: hooks.Named("large-orders", "1", largeOrders,
			hooks.InPhase(hooks.PhaseValidate), hooks.TimeLimit(200*time.Millisecond), hooks.Pure()),
	})
	// What the loop does at the gate:
	in := hooks.BeforeToolCall{Call: hooks.ToolCall{Name: "place_order", Arguments: `{"amount": 250}`}}
	verdict, decisions, err := hooks.Ask(context.Background(), &hooks.Asker{}, h.BeforeToolCall, hooks.Position{}, in, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(verdict.Action, verdict.HookID, verdict.Reason.Code)
	for _, d := range decisions {
		fmt.Println(d.HookID, d.Action, d.Outcome)
	}
	// Output:
	// ask large-orders large_order
	// deny-tools continue ok
	// large-orders ask ok
}

// tagged names the run in a header, so that a gateway's log can be joined with
// agentd.timeline.
func tagged(_ context.Context, in hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
	return hooks.BeforeProviderHeadersResult{
		Action: hooks.ActionTransform,
		Set:    []hooks.Header{{Name: "X-Run-Id", Value: in.RunID}},
	}, nil
}

func Example_headers() {
	h := hooks.Hooks{BeforeProviderHeaders: hooks.Named("tagged", "1", tagged)}
	in := hooks.BeforeProviderHeaders{
		RunRef:  hooks.RunRef{RunID: "r-1"},
		Headers: []hooks.Header{{Name: "Content-Type", Value: "application/json"}},
	}
	verdict, decisions, err := hooks.Ask(context.Background(), &hooks.Asker{}, h.BeforeProviderHeaders, hooks.Position{}, in, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, header := range verdict.Value.Headers {
		fmt.Printf("%s: %s\n", header.Name, header.Value)
	}
	fmt.Println(decisions[0].HookID, decisions[0].Payload.Patch) // the value is not stored
	// Output:
	// Content-Type: application/json
	// X-Run-Id: r-1
	// tagged [{"op":"add","path":"/headers/X-Run-Id"}]
}
