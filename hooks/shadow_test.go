package hooks_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

func shadow(id string, f callHook, opts ...hooks.Option) hooks.BeforeToolCallFunc {
	return hooks.Named(id, "1", f, append(opts, hooks.Shadow())...)
}

// digest is that of a value as the ledger has it.
func digest(t *testing.T, v any) [32]byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(raw)
}

// TestShadowChangesNothing: whatever a shadow answers, and wherever it stands,
// the gate comes to what it comes to without it.
func TestShadowChangesNothing(t *testing.T) {
	t.Parallel()
	answers := map[string]callHook{
		"continue": continues(), "transform": rewrites("shadowed"), "refused": rewrites("bad"),
		"ask":       says(callResult{Action: hooks.ActionAsk, Reason: hooks.Reason{Code: "s"}}),
		"terminate": says(callResult{Action: hooks.ActionTerminate}), "block": says(callResult{Action: hooks.ActionBlock}),
		"handled": says(callResult{Action: hooks.ActionHandled}), "nothing": says(callResult{}),
		"error": func(context.Context, call) (callResult, error) { return callResult{}, errors.New("boom") },
		"panic": func(context.Context, call) (callResult, error) { panic("boom") },
	}
	for answer, f := range map[string]callHook{
		"continue": continues(), "transform": rewrites("UTC"), "ask": says(callResult{Action: hooks.ActionAsk}),
		"terminate": says(callResult{Action: hooks.ActionTerminate}), "block": says(callResult{Action: hooks.ActionBlock}),
	} {
		in := hooks.Named("real", "1", f)
		want, alone := ask(t, in, zone("-"))
		for name, s := range answers {
			for _, opts := range [][]hooks.Option{nil, {hooks.OnFailureOpen()}, {hooks.InPhase(hooks.PhaseValidate)}} {
				for place, chain := range map[string]hooks.BeforeToolCallFunc{
					"before": hooks.Compose(shadow("s", s, opts...), in), "behind": hooks.Compose(in, shadow("s", s, opts...)),
				} {
					v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, chain, at(), zone("-"), refuseBad)
					if err != nil {
						t.Fatal(err)
					}
					what := fmt.Sprintf("%s with a shadow %s that says %s", answer, place, name)
					expect(t, what, v, want)
					for _, d := range ds {
						switch {
						case d.HookID == "s" && (d.Effective || d.FailedOpen || d.FailurePolicy != hooks.FailShadow || !d.Shadow()):
							t.Errorf("%s: its row is %+v", what, d)
						case d.HookID == "real" && (d.Shadow() || d.Action != alone[0].Action || d.Effective != alone[0].Effective ||
							d.InputSHA256 != alone[0].InputSHA256 || d.OutputSHA256 != alone[0].OutputSHA256):
							t.Errorf("%s: the row of the other is %+v", what, d)
						}
					}
				}
			}
		}
	}
}

// TestRowOfAShadowTellsWhatItWouldHaveDone, as if it were in force.
func TestRowOfAShadowTellsWhatItWouldHaveDone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f    callHook
		opts []hooks.Option
	}{
		"continue":      {continues(), nil},
		"transform":     {rewrites("shadowed"), nil},
		"redaction":     {rewrites("shadowed"), []hooks.Option{hooks.Redacting()}},
		"ask":           {says(callResult{Action: hooks.ActionAsk, Reason: hooks.Reason{Code: "c", Text: "why", Rule: "r"}, Annotations: map[string]string{"a": "b"}}), nil},
		"block":         {says(callResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "c"}}), nil},
		"failure":       {rewrites("bad"), nil},
		"open failure":  {says(callResult{}), []hooks.Option{hooks.OnFailureOpen()}},
		"wrong phase":   {rewrites("x"), []hooks.Option{hooks.InPhase(hooks.PhaseValidate)}},
		"a rule's name": {continues(), []hooks.Option{hooks.OfKind(hooks.KindRule)}},
	} {
		chain := func(opts ...hooks.Option) hooks.Decision {
			f := hooks.Compose(hooks.Named("before", "1", rewrites("UTC")), hooks.Named("h", "1", c.f, append(c.opts, opts...)...))
			_, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, f, at(), zone("-"), refuseBad)
			if err != nil {
				t.Fatal(err)
			}
			d := ds[1]
			d.At, d.Queue, d.Latency = time.Time{}, 0, 0
			return d
		}
		want := chain()
		want.Effective, want.FailedOpen, want.FailurePolicy = false, false, hooks.FailShadow
		expect(t, name, chain(hooks.Shadow()), want)
	}
}

func TestNextHookSeesTheValueWithoutWhatAShadowWouldChange(t *testing.T) {
	t.Parallel()
	var saw []string
	see := func(_ context.Context, in call) (callResult, error) {
		saw = append(saw, in.Call.Arguments)
		return callResult{Action: hooks.ActionContinue}, nil
	}
	v, ds := ask(t, hooks.Compose(hooks.Named("a", "1", rewrites("a")), shadow("s1", rewrites("s1")), hooks.Named("b", "1", see), shadow("s2", rewrites("s2")),
		hooks.Named("c", "1", see, hooks.InPhase(hooks.PhaseValidate))), zone("-"))
	expect(t, "what they saw", saw, []string{"a", "a"})
	expect(t, "the value", v.Value.Call.Arguments, "a")
	for i, want := range []string{"a", "s1", "a", "s2", "a"} {
		if ds[i].OutputSHA256 != digest(t, zone(want)) {
			t.Errorf("the row of %s is not of %q", ds[i].HookID, want)
		}
	}
	expect(t, "patch", ds[3].Payload.Patch, `[{"op":"replace","path":"/call/arguments","value":"s2"}]`)
}

func TestShadowBehindARefusalIsNotAsked(t *testing.T) {
	t.Parallel()
	never := func(context.Context, call) (callResult, error) {
		t.Error("asked after a block")
		return callResult{Action: hooks.ActionContinue}, nil
	}
	_, ds := ask(t, hooks.Compose(shadow("s", says(callResult{Action: hooks.ActionBlock})), hooks.Named("no", "1", says(callResult{Action: hooks.ActionBlock})), shadow("late", never)), zone("-"))
	expect(t, "decisions", told(ds), []string{"1/3 mutate s block overruled", "2/3 mutate no block"})
}

// TestGateWaitsForTheSlowestShadowAndNoLonger: shadows are asked while the hooks
// behind them are, and one that hangs has its time limit.
func TestGateWaitsForTheSlowestShadowAndNoLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		after := func(d time.Duration, r callResult) callHook {
			return func(context.Context, call) (callResult, error) {
				time.Sleep(d) //nolint:forbidigo // in a bubble, where time is fake
				return r, nil
			}
		}
		block := callResult{Action: hooks.ActionBlock}
		a := &hooks.Asker{}
		began := time.Now()
		_, ds, err := hooks.Ask(t.Context(), a, hooks.Compose(
			shadow("quick", after(time.Second, block)), shadow("hangs", after(time.Hour, block), hooks.TimeLimit(4*time.Second)),
			hooks.Named("real", "1", after(1500*time.Millisecond, callResult{Action: hooks.ActionContinue})),
			hooks.Named("no", "1", after(1500*time.Millisecond, block))), at(), zone("-"), nil)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "it took", time.Since(began), 4*time.Second)
		expect(t, "decisions", told(ds), []string{
			"1/4 mutate quick block overruled", "2/4 mutate hangs block timeout overruled", "3/4 mutate real continue", "4/4 mutate no block",
		})
		for i, want := range []time.Duration{1000, 4000, 1500, 1500} {
			if want *= time.Millisecond; ds[i].Latency != want {
				t.Errorf("%s took %s; want %s", ds[i].HookID, ds[i].Latency, want)
			}
		}
		expect(t, "abandoned", a.Abandoned(), 1)
		time.Sleep(time.Hour) //nolint:forbidigo // in a bubble, where time is fake
	})
}

// TestShadowsThatHangTakeNoCallFromAHookInForce of the same name.
func TestShadowsThatHangTakeNoCallFromAHookInForce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hangs := func(context.Context, call) (callResult, error) {
			<-release
			return callResult{Action: hooks.ActionContinue}, nil
		}
		a := &hooks.Asker{}
		f := hooks.Compose(shadow("h", hangs), hooks.Named("h", "1", continues()))
		for range 65 {
			v, ds, err := hooks.Ask(t.Context(), a, f, at(), zone("-"), nil)
			if err != nil || v.Action != hooks.ActionContinue || ds[1].Outcome != hooks.OutcomeOK {
				t.Fatalf("%+v, %+v, %v", v, ds, err)
			}
			if a.Abandoned() == 64 && ds[0].Outcome == hooks.OutcomeUnavailable {
				close(release)
				return
			}
		}
		t.Error("a shadow is called without end")
	})
}

func TestShadowsEndWithTheirRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the run was cancelled")
		wait := func(ctx context.Context, _ call) (callResult, error) {
			<-ctx.Done()
			return callResult{Action: hooks.ActionBlock}, nil
		}
		time.AfterFunc(time.Second, func() { cancel(gone) })
		_, ds, err := hooks.Ask(ctx, &hooks.Asker{}, hooks.Compose(shadow("s", wait), hooks.Named("h", "1", continues())), at(), zone("-"), nil)
		if !errors.Is(err, gone) || ds != nil {
			t.Errorf("%v, %v", ds, err)
		}
	})
}

func TestShadowWithholdsNothing(t *testing.T) {
	t.Parallel()
	in := hooks.AfterToolCall{Call: hooks.ToolCall{ID: "c"}, Content: "secret"}
	f := hooks.Named("s", "1", func(context.Context, hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
		return hooks.AfterToolCallResult{Action: hooks.ActionWithhold}, nil
	}, hooks.Shadow())
	v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, f, at(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "output", []any{v.Action, v.Value.Content}, []any{hooks.ActionContinue, "secret"})
	want := in
	want.Content = hooks.WithheldText
	if ds[0].OutputSHA256 != digest(t, want) || ds[0].InputSHA256 != digest(t, in) {
		t.Error("the row does not say what it would have left")
	}
}

func TestHookSetTellsAShadowFromAHookInForce(t *testing.T) {
	t.Parallel()
	of := func(opts ...hooks.Option) hooks.HookSet {
		return hooks.Hooks{BeforeToolCall: hooks.Named("a", "1", continues(), opts...)}.Set()
	}
	if s := of(hooks.Shadow()); !s.Hooks[0].Shadow || s.Digest == of().Digest {
		t.Errorf("the set of a shadow is %+v", s)
	}
	raw, err := json.Marshal(of().Hooks[0])
	if err != nil || string(raw) != `{"gate":"BeforeToolCall","id":"a","version":"1","kind":"go","phase":"mutate","on_failure":"closed","time_limit":2000000000,"reply_limit":1048576}` {
		t.Errorf("without a shadow it is not what it was: %s, %v", raw, err)
	}
	if hooks.IsPure(hooks.Named("a", "1", continues(), hooks.Shadow())) {
		t.Error("a shadow that is not pure may be asked about what is not durable")
	}
}
