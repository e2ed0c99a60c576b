package hooks_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
)

type (
	call       = hooks.BeforeToolCall
	callResult = hooks.BeforeToolCallResult
	callHook   = func(context.Context, call) (callResult, error)
)

func p[T any](v T) *T { return &v }

// at is the position of every test's gate.
func at() hooks.Position {
	return hooks.Position{
		TenantID: "t", SessionID: "s", RunID: "r", Turn: 2, Subject: "c", Attempt: 1,
	}
}

func zone(z string) call {
	return call{RunRef: hooks.RunRef{RunID: "r"}, Turn: 2, Revision: 1, Call: hooks.ToolCall{ID: "c", Name: "charge", Arguments: z}}
}

// says is a hook that always gives the same answer.
func says(r callResult) callHook {
	return func(context.Context, call) (callResult, error) { return r, nil }
}

// rewrites puts arguments in the place of others.
func rewrites(to string) callHook {
	return says(callResult{Action: hooks.ActionTransform, Arguments: &to})
}

func continues() callHook { return says(callResult{Action: hooks.ActionContinue}) }

func ask(t *testing.T, f hooks.BeforeToolCallFunc, in call) (hooks.Verdict[call], []hooks.Decision) {
	t.Helper()
	v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, f, at(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v, ds
}

// told is one decision per line.
func told(ds []hooks.Decision) []string {
	var out []string
	for _, d := range ds {
		s := fmt.Sprintf("%d/%d %s %s %s", d.Index, d.ChainLength, d.Phase, d.HookID, d.Action)
		if d.Outcome != hooks.OutcomeOK {
			s += " " + string(d.Outcome)
		}
		if !d.Effective {
			s += " overruled"
		}
		if d.FailedOpen {
			s += " open"
		}
		out = append(out, s)
	}
	return out
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s\n got %q\nwant %q", what, got, want)
	}
}

func TestLaterHooksSeeWhatEarlierOnesMadeOfTheValue(t *testing.T) {
	t.Parallel()
	add := func(s string) callHook {
		return func(_ context.Context, in call) (callResult, error) {
			return callResult{Action: hooks.ActionTransform, Arguments: p(in.Call.Arguments + s)}, nil
		}
	}
	v, ds := ask(t, hooks.Compose(hooks.Named("a", "1", add("a")), hooks.Named("b", "1", add("b")), hooks.Named("c", "1", add("c"))), zone("-"))
	expect(t, "arguments", v.Value.Call.Arguments, "-abc")
	expect(t, "changed", v.Changed, []string{"arguments"})
	expect(t, "decided by", v.HookID, "a")
	for i := 1; i < len(ds); i++ {
		if ds[i].InputSHA256 != ds[i-1].OutputSHA256 || ds[i].InputBytes != ds[i-1].OutputBytes {
			t.Errorf("%s was handed something else than %s left", ds[i].HookID, ds[i-1].HookID)
		}
		if ds[i].InputSHA256 == ds[i].OutputSHA256 {
			t.Errorf("%s changed the value and the row does not show it", ds[i].HookID)
		}
	}
}

func TestFirstBlockEndsTheGate(t *testing.T) {
	t.Parallel()
	never := func(context.Context, call) (callResult, error) {
		t.Error("asked after a block")
		return callResult{Action: hooks.ActionContinue}, nil
	}
	v, ds := ask(t, hooks.Compose(
		hooks.Named("n", "1", continues()),
		hooks.Named("no", "1", says(callResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "sunday", Text: "not allowed on Sundays", Rule: "days"}})),
		hooks.Named("late", "1", never),
		hooks.Named("check", "1", never, hooks.InPhase(hooks.PhaseValidate)),
	), zone("-"))
	expect(t, "decisions", told(ds), []string{"1/4 mutate n continue", "2/4 mutate no block"})
	expect(t, "verdict", []any{v.Action, v.HookID, v.Reason, v.Outcome}, []any{
		hooks.ActionBlock, "no", hooks.Reason{Code: "sunday", Text: "not allowed on Sundays", Rule: "days"}, hooks.OutcomeOK,
	})
	expect(t, "row", []string{ds[1].ReasonCode, ds[1].RuleID, ds[1].Payload.Reason}, []string{"sunday", "days", "not allowed on Sundays"})
}

func TestStrongestAnswerWins(t *testing.T) {
	t.Parallel()
	// From strong to weak; block, which ends the gate, has its own test.
	gate := []callResult{{Action: hooks.ActionTerminate}, {Action: hooks.ActionAsk}, {Action: hooks.ActionTransform, Arguments: p("x")}, {Action: hooks.ActionContinue}}
	for i, strong := range gate {
		for _, weak := range gate[i+1:] {
			for _, pair := range [][2]callResult{{strong, weak}, {weak, strong}} {
				v, ds := ask(t, hooks.Compose(hooks.Named("1", "", says(pair[0])), hooks.Named("2", "", says(pair[1]))), zone("-"))
				if v.Action != strong.Action {
					t.Errorf("%s and %s make %s", pair[0].Action, pair[1].Action, v.Action)
				}
				for _, d := range ds {
					overruled := d.Action == hooks.ActionAsk && strong.Action == hooks.ActionTerminate
					if d.Effective == overruled {
						t.Errorf("%s and %s: effective of %s is %v", pair[0].Action, pair[1].Action, d.Action, d.Effective)
					}
				}
			}
		}
	}
}

func TestHandledIsOverruledByABlockAndNotByAnotherReply(t *testing.T) {
	t.Parallel()
	reply := func(s string) hooks.BeforeInputFunc {
		return func(context.Context, hooks.BeforeInput) (hooks.BeforeInputResult, error) {
			return hooks.BeforeInputResult{Action: hooks.ActionHandled, Reply: s}, nil
		}
	}
	two := hooks.Compose(hooks.Named("a", "1", reply("A")), hooks.Named("a", "1", reply("B")))
	v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, two, hooks.Position{}, hooks.BeforeInput{Text: "hi"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "verdict", []any{v.Action, v.Reply, v.HookID}, []any{hooks.ActionHandled, "A", "a"})
	expect(t, "decisions", told(ds), []string{"1/2 mutate a handled", "2/2 mutate a handled overruled"})

	refuse := func(context.Context, hooks.BeforeInput) (hooks.BeforeInputResult, error) {
		return hooks.BeforeInputResult{Action: hooks.ActionBlock}, nil
	}
	v, ds, err = hooks.Ask(t.Context(), &hooks.Asker{}, hooks.Compose(two, hooks.Named("no", "1", refuse, hooks.InPhase(hooks.PhaseValidate))), hooks.Position{}, hooks.BeforeInput{Text: "hi"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "verdict", []any{v.Action, v.Reply, v.HookID}, []any{hooks.ActionBlock, "", "no"})
	expect(t, "decisions", told(ds), []string{"1/3 mutate a handled overruled", "2/3 mutate a handled overruled", "3/3 validate no block"})
}

func TestNestingKeepsOrderPhasesAndARowPerHook(t *testing.T) {
	t.Parallel()
	n := func(id string, opts ...hooks.Option) hooks.BeforeToolCallFunc {
		return hooks.Named(id, "1", continues(), opts...)
	}
	validate := hooks.InPhase(hooks.PhaseValidate)
	nested := hooks.Compose(
		n("v1", validate), hooks.Compose(n("a"), hooks.Compose(continues(), n("v2", validate)), nil), n("b"),
	)
	set := hooks.Hooks{BeforeToolCall: nested}.Then(hooks.Hooks{}).Then(hooks.Hooks{BeforeToolCall: hooks.Compose(nil, continues())})
	_, ds := ask(t, set.BeforeToolCall, zone("-"))
	want := []string{
		"1/6 mutate a continue", "2/6 mutate anonymous/3 continue", "3/6 mutate b continue", "4/6 mutate anonymous/6 continue",
		"5/6 validate v1 continue", "6/6 validate v2 continue",
	}
	expect(t, "decisions", told(ds), want)
	var listed []string
	for i, r := range set.Set().Hooks {
		listed = append(listed, fmt.Sprintf("%d/6 %s %s continue", i+1, r.Phase, r.ID))
	}
	expect(t, "the set lists what is asked", listed, want)
}

func TestUnknownPhaseIsStillAsked(t *testing.T) {
	t.Parallel()
	_, ds := ask(t, hooks.Named("x", "1", continues(), hooks.InPhase("later")), zone("-"))
	expect(t, "decisions", told(ds), []string{"1/1 mutate x continue"})
}

func TestNilHooksMakeNil(t *testing.T) {
	t.Parallel()
	if hooks.Named[call, callResult]("x", "1", nil) != nil {
		t.Error("a named nil is not nil")
	}
	var none hooks.BeforeToolCallFunc
	if hooks.Compose(none, hooks.Named("x", "1", none)) != nil {
		t.Error("nothing composed is not nil")
	}
	if (hooks.Hooks{}).Set().Hooks == nil {
		t.Error("the list of no hooks is null in JSON")
	}
}

// TestChangedValueMustPassTheCheckOfTheOriginal: what a hook made and the
// check refuses is that hook's failure, and the value stays.
func TestChangedValueMustPassTheCheckOfTheOriginal(t *testing.T) {
	t.Parallel()
	check := func(in call) error {
		if !strings.HasPrefix(in.Call.Arguments, "{") {
			return errors.New("not an object")
		}
		return nil
	}
	chain := hooks.Compose(hooks.Named("good", "1", rewrites("{1}")), hooks.Named("bad", "1", rewrites("2"), hooks.OnFailureOpen()), hooks.Named("after", "1", continues()))
	v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, chain, at(), zone("{0}"), check)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "value", v.Value.Call.Arguments, "{1}")
	expect(t, "decisions", told(ds), []string{"1/3 mutate good transform", "2/3 mutate bad continue unappliable open", "3/3 mutate after continue"})
	expect(t, "reason", ds[1].Payload, hooks.Payload{Reason: "unappliable: not an object"})
}

func TestTransformToTheSameValueChangesNothing(t *testing.T) {
	t.Parallel()
	refuse := func(call) error { return errors.New("no") }
	v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, hooks.Named("same", "1", rewrites("-")), at(), zone("-"), refuse)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "verdict", []any{v.Action, v.HookID, len(v.Changed)}, []any{hooks.ActionContinue, "", 0})
	expect(t, "row", []any{ds[0].Action, len(ds[0].FieldsChanged), ds[0].Payload.Empty()}, []any{hooks.ActionTransform, 0, true})
}

func TestWhatAHookSaysIsMadeStorable(t *testing.T) {
	t.Parallel()
	f := says(callResult{
		Action: hooks.ActionTransform, Arguments: p("a\x00b\xff"), Annotations: map[string]string{"k\x00": "\xffv"},
		Reason: hooks.Reason{Code: "c\x00", Text: "t\xff", Rule: "r\x00"},
	})
	v, ds := ask(t, hooks.Named("x\x00", "v\xff", f), zone("-"))
	d := ds[0]
	expect(t, "texts",
		[]string{v.Value.Call.Arguments, v.Reason.Text, d.HookID, d.HookVersion, d.ReasonCode, d.RuleID, d.Payload.Reason, d.Payload.Annotations},
		[]string{"a\uFFFDb\uFFFD", "t\uFFFD", "x\uFFFD", "v\uFFFD", "c\uFFFD", "r\uFFFD", "t\uFFFD", `{"k` + "\uFFFD" + `":"` + "\uFFFD" + `v"}`})
}
