package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// hostileArguments are what a model may write to have more paid than a policy lets
// pass.
var hostileArguments = []string{
	`{"amount":500}`, `{"\u0061mount":500}`, ` {"amount" : 500 } `, `{"amount":5e2}`, `{"amount":5E+2}`, `{"amount":500.0}`, `{"amount":50000e-2}`,
	`{"amount":5,"amount":500}`, `{"amount":500,"amount":5}`, `{"amount":5,"\u0061mount":500}`,
	`{"amount":5,"Amount":500}`, `{"Amount":500,"amount":5}`, `{"AMOUNT":500}`, `{"amount":5,"aMOUNT":500,"AMOUNT":5}`, `{"Amount":500,"AMOUNT":500}`,
	`{"amount":"500"}`, `{"amount":"5e2"}`, `{"amount":" 500"}`, `{"amount":null,"Amount":500}`, `{"amount":null}`, `{"amount":[500]}`, `{"amount":{"amount":500}}`, `{"amount":true}`,
	`{"amount":18446744073709551616}`, `{"amount":99999999999999999999999999999999}`, `{"amount":1e400}`, `{"amount":9223372036854775808}`, `{"amount":100.01}`,
	`{"amount":5}{"amount":500}`, `[{"amount":500}]`, `{"amount":500`, `{"amount":0x1F4}`, `{"amount":+500}`, `{"amount":00500}`, `{"amount":NaN}`, "\ufeff{\"amount\":500}",
	"{\"amount\":500,\"x\":\"\xff\xfe\"}", `{"amount":500,"x":"\ud800"}`, `{"amount":5,"amount\u0000":500}`, `{"amount":5,"x":{"amount":500}}`,
	`{"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `,"amount":500}`, `{"x":` + strings.Repeat(`{"x":`, 9000) + "1" + strings.Repeat("}", 9000) + `,"amount":500}`,
	`{"x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `,"amount":500}`, "",
}

// payment is what a tool reads that reads as Go does: a name in any case, the last
// of two, and a text for a number.
type payment struct{ Amount any }

func (p payment) most() *big.Float {
	text, ok := p.Amount.(string)
	if n, is := p.Amount.(json.Number); is {
		text, ok = n.String(), true
	}
	f, _, err := big.ParseFloat(strings.TrimSpace(text), 10, 100, big.ToNearestEven)
	if !ok || err != nil {
		return new(big.Float)
	}
	return f
}

func readPayment(arguments string) (p payment, err error) {
	d := json.NewDecoder(strings.NewReader(arguments))
	d.UseNumber()
	err = d.Decode(&p)
	return p, err
}

// tooMuch is a policy over what a call pays, by who reads it as the tool does.
func tooMuch(in hooks.BeforeToolCall) hooks.BeforeToolCallResult {
	p, err := readPayment(in.Call.Arguments)
	if err == nil && p.most().Cmp(big.NewFloat(100)) <= 0 {
		return hooks.BeforeToolCallResult{Action: hooks.ActionContinue}
	}
	return hooks.BeforeToolCallResult{Action: hooks.ActionBlock}
}

// laxPay takes any arguments and pays what it reads.
type laxPay struct{ looptest.Tool }

func (laxPay) Validate(json.RawMessage) error { return nil }

// TestNoArgumentsPassAPolicyThatTheToolReadsOtherwise: whatever the model writes, no
// policy over an amount, in whatever it is written, lets more be paid.
func TestNoArgumentsPassAPolicyThatTheToolReadsOtherwise(t *testing.T) {
	t.Parallel()
	rule := func(keys string) hooks.Hooks {
		return configured1(t, "rules: [{id: limit, gate: BeforeToolCall, timeout: 30s, "+keys+"}]\n")
	}
	ask := func(keys string) hooks.Hooks {
		return configured1(t, "hooks: [{require_approval: {when: "+keys+"}}]\n")
	}
	policy := callPolicy{id: "limit", phase: hooks.PhaseValidate, says: tooMuch}
	for name, h := range map[string]hooks.Hooks{
		"go":           goPolicy(t, policy),
		"webhook":      webhookPolicy(t, policy),
		"a rule":       rule(`block: x, when: call.arguments.amount > 100`),
		"has":          rule(`block: x, when: 'has(call.arguments.amount) && (type(call.arguments.amount) == string || call.arguments.amount > 100)'`),
		"optional":     rule(`block: x, when: 'double(call.arguments.?amount.orValue(0)) > 100.0'`),
		"in":           rule(`block: x, when: '"amount" in call.arguments && (call.arguments["amount"]) > 100'`),
		"execute":      configured1(t, "rules: [{id: limit, gate: BeforeExecute, timeout: 30s, block: x, when: call.arguments.amount > 100}]\n"),
		"a cap":        rule(`transform: {arguments: {amount: 100}}`),
		"greater than": ask(`{argument: /amount, greater_than: 100}`),
		"not one of":   rule(`block: x, when: '!(call.arguments.amount in [1, 5, 100])'`),
		"equal":        ask(`{argument: /amount, one_of: [500, 100.01, 18446744073709551616, 99999999999999999999999999999999, 9223372036854775808, "1e400"]}`),
	} {
		for _, arguments := range hostileArguments {
			tool := laxPay{looptest.Tool{Name: "pay", Run: func(_ context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
				p, err := readPayment(string(in.Arguments))
				if err != nil {
					return loop.ToolOutput{}, errors.New("unreadable")
				}
				if p.most().Cmp(big.NewFloat(100)) > 0 {
					t.Errorf("%s: %v is paid for %.100q", name, p.Amount, arguments)
				}
				return loop.ToolOutput{Content: "paid"}, nil
			}}}
			b := looptest.NewBench(looptest.NewLog(), looptest.Answers(
				looptest.Answer(looptest.ToolCall("p", "pay", arguments), looptest.Finish(stream.FinishToolCalls)),
				looptest.Answer(looptest.Text("Done."), looptest.Finish(stream.FinishStop))), tool)
			b.Use(h)
			b.Advance(t, b.Start(t, b.Session(t), "go"))
		}
	}
}
