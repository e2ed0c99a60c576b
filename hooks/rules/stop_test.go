package rules

import (
	"context"
	"errors"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

var errOver = errors.New("the run is over")

// TestRuleStopsWhenNobodyWaitsForIt: it would go on working beside the run
// otherwise, and nobody would see it.
func TestRuleStopsWhenNobodyWaitsForIt(t *testing.T) {
	t.Parallel()
	set, err := Parse([]File{{Name: "f", Text: []byte(`rules:
  - {id: a, gate: BeforeInput, when: '[1,2,3,4,5,6,7,8,9,10].all(x, [1,2,3,4,5,6,7,8,9,10].all(y, x + y > 0))', block: x}
  - {id: b, gate: AfterToolCall, redact: {pattern: x}}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = set.rules[0].decide(ctx, &vars{})
	if err != nil {
		t.Fatal(err)
	}
	cancel(errOver)
	if _, err = set.rules[0].decide(ctx, &vars{}); !errors.Is(err, errOver) {
		t.Errorf("the condition: %v", err)
	}
	if _, err = set.rules[1].decide(ctx, &vars{call: &hooks.ToolCall{}, output: "x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("the redaction: %v", err)
	}
}
