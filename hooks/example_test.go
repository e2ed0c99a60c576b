package hooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/guard"
)

// cards are numbers of 13 to 16 digits.
var cards = regexp.MustCompile(`\b[0-9]{13,16}\b`)

// noCards keeps the numbers of cards out of the memory.
func noCards(_ context.Context, in hooks.BeforeToolCall) (hooks.BeforeToolCallResult, error) {
	var note struct {
		Content string `json:"content"`
	}
	if err := json.Unmarshal([]byte(in.Call.Arguments), &note); err != nil {
		return hooks.BeforeToolCallResult{}, err // no answer: the call is blocked
	}
	if !cards.MatchString(note.Content) {
		return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}, nil
	}
	return hooks.BeforeToolCallResult{
		Action: hooks.ActionBlock,
		Reason: hooks.Reason{Code: "card", Text: "No card number is written down."},
	}, nil
}

func Example() {
	h, err := guard.DenyTools(guard.DenyToolsConfig{Tools: []string{"shell"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	h = h.Then(hooks.Hooks{
		BeforeToolCall: hooks.Named("no-cards", "1", noCards,
			hooks.InPhase(hooks.PhaseValidate), hooks.Only(hooks.Scope{Tools: []string{"memory_write"}}),
			hooks.TimeLimit(200*time.Millisecond), hooks.Pure()),
	})
	// What the loop does at the gate:
	in := hooks.BeforeToolCall{Call: hooks.ToolCall{Name: "memory_write", Arguments: `{"key": "card", "content": "4111111111111111"}`}}
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
	// block no-cards card
	// deny-tools continue ok
	// no-cards block ok
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
