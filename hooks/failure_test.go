package hooks_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// failing are hooks that do not do what they are there for, each in its way.
func failing(release <-chan struct{}) map[hooks.Outcome]map[string]callHook {
	long := strings.Repeat("x", 1<<20)
	many := map[string]string{}
	for i := range 1 << 15 {
		many[fmt.Sprint(i)] = ""
	}
	return map[hooks.Outcome]map[string]callHook{
		hooks.OutcomeError: {
			"error": func(context.Context, call) (callResult, error) { return callResult{}, errors.New("boom") },
			"error with an answer": func(context.Context, call) (callResult, error) {
				return callResult{Action: hooks.ActionContinue}, errors.New("boom")
			},
			"error that calls it ok": func(context.Context, call) (callResult, error) {
				return callResult{}, &hooks.Failure{Outcome: hooks.OutcomeOK}
			},
			"its own deadline": func(context.Context, call) (callResult, error) { return callResult{}, context.DeadlineExceeded },
		},
		hooks.OutcomeCrash: {
			"plugin died": func(context.Context, call) (callResult, error) {
				return callResult{}, fmt.Errorf("ask: %w", &hooks.Failure{Outcome: hooks.OutcomeCrash, Code: "host.crash"})
			},
		},
		hooks.OutcomeUnavailable: {
			"plugin not there": func(context.Context, call) (callResult, error) {
				return callResult{}, &hooks.Failure{Outcome: hooks.OutcomeUnavailable, Err: errors.New("connection refused")}
			},
		},
		hooks.OutcomePanic: {
			"panic":           func(context.Context, call) (callResult, error) { panic("boom") },
			"ended goroutine": func(context.Context, call) (callResult, error) { runtime.Goexit(); return callResult{}, nil },
		},
		hooks.OutcomeTimeout: {
			"obeys its ctx": func(ctx context.Context, _ call) (callResult, error) { <-ctx.Done(); return callResult{}, ctx.Err() },
			"answers late": func(ctx context.Context, _ call) (callResult, error) {
				<-ctx.Done()
				return callResult{Action: hooks.ActionContinue}, nil
			},
			"ignores its ctx": func(context.Context, call) (callResult, error) {
				<-release
				return callResult{Action: hooks.ActionContinue}, nil
			},
		},
		hooks.OutcomeMalformed: {
			"no action":            says(callResult{}),
			"unknown action":       says(callResult{Action: "allow"}),
			"continue with fields": says(callResult{Action: hooks.ActionContinue, Arguments: p("x")}),
			"block with fields":    says(callResult{Action: hooks.ActionBlock, Arguments: p("x")}),
			"transform without":    says(callResult{Action: hooks.ActionTransform}),
			"long code":            says(callResult{Action: hooks.ActionContinue, Reason: hooks.Reason{Code: long[:129]}}),
			"long rule":            says(callResult{Action: hooks.ActionContinue, Reason: hooks.Reason{Rule: long[:129]}}),
		},
		hooks.OutcomeOversize: {
			"field":       says(callResult{Action: hooks.ActionTransform, Arguments: p(long + "x")}),
			"reason":      says(callResult{Action: hooks.ActionContinue, Reason: hooks.Reason{Text: long + "x"}}),
			"annotations": says(callResult{Action: hooks.ActionContinue, Annotations: many}),
		},
		hooks.OutcomeIllegalAction: {
			"handled":  says(callResult{Action: hooks.ActionHandled}),
			"withhold": says(callResult{Action: hooks.ActionWithhold}),
		},
		hooks.OutcomeUnappliable: {
			"refused": rewrites("bad"),
		},
	}
}

// refuseBad is the check of the arguments in these tests.
func refuseBad(in call) error {
	if in.Call.Arguments == "bad" {
		return errors.New("does not fit the schema")
	}
	return nil
}

func eachFailure(t *testing.T, test func(t *testing.T, o hooks.Outcome, f callHook)) {
	t.Helper()
	for o, byName := range failing(nil) {
		for name := range byName {
			t.Run(string(o)+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					release := make(chan struct{})
					defer close(release)
					test(t, o, failing(release)[o][name])
				})
			})
		}
	}
}

func TestHookThatFailsDoesNotOpenTheGate(t *testing.T) {
	t.Parallel()
	eachFailure(t, func(t *testing.T, o hooks.Outcome, f callHook) {
		chain := hooks.Compose(hooks.Named("m", "1", rewrites("UTC")), hooks.Named("guard", "1", f), hooks.Named("late", "1", continues()))
		v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, chain, at(), zone("-"), refuseBad)
		if err != nil {
			t.Fatal(err)
		}
		code := "hook." + string(o)
		if o == hooks.OutcomeCrash {
			code = "host.crash"
		}
		expect(t, "decisions", told(ds), []string{"1/3 mutate m transform", "2/3 mutate guard block " + string(o)})
		expect(t, "verdict", []any{v.Action, v.HookID, v.Outcome, v.Reason.Code, v.Value.Call.Arguments},
			[]any{hooks.ActionBlock, "guard", o, code, "UTC"})
		expect(t, "row", []any{ds[1].ReasonCode, ds[1].FailurePolicy, ds[1].Deadline}, []any{code, hooks.FailClosed, hooks.DefaultTimeLimit})
		if !strings.Contains(v.Reason.Text, "guard") || !strings.Contains(v.Reason.Text, string(o)) || strings.Contains(v.Reason.Text, "boom") {
			t.Errorf("people are told %q", v.Reason.Text)
		}
		if ds[1].Payload.Reason == "" || len(ds[1].Payload.Reason) > 4096 || ds[1].Payload.Patch != "" {
			t.Errorf("auditors are told %+v", ds[1].Payload)
		}
	})
}

func TestOpenOnFailureKeepsTheLastAcceptedValueAndShows(t *testing.T) {
	t.Parallel()
	eachFailure(t, func(t *testing.T, o hooks.Outcome, f callHook) {
		chain := hooks.Compose(hooks.Named("m", "1", rewrites("UTC")), hooks.Named("soft", "1", f, hooks.OnFailureOpen()), hooks.Named("late", "1", continues()))
		v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, chain, at(), zone("-"), refuseBad)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "decisions", told(ds), []string{"1/3 mutate m transform", "2/3 mutate soft continue " + string(o) + " open", "3/3 mutate late continue"})
		expect(t, "verdict", []any{v.Action, v.HookID, v.Outcome, v.Value.Call.Arguments}, []any{hooks.ActionTransform, "m", hooks.OutcomeOK, "UTC"})
		expect(t, "policy", ds[1].FailurePolicy, hooks.FailOpen)
	})
}

func TestHookWithoutANameFailsClosedToo(t *testing.T) {
	t.Parallel()
	eachFailure(t, func(t *testing.T, o hooks.Outcome, f callHook) {
		v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, f, at(), zone("-"), refuseBad)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "decisions", told(ds), []string{"1/1 mutate anonymous/1 block " + string(o)})
		expect(t, "verdict", v.Action, hooks.ActionBlock)
	})
}

func TestValidatingHookCannotChangeTheValue(t *testing.T) {
	t.Parallel()
	v, ds := ask(t, hooks.Named("v", "1", rewrites("UTC"), hooks.InPhase(hooks.PhaseValidate)), zone("-"))
	expect(t, "decisions", told(ds), []string{"1/1 validate v block illegal_action"})
	expect(t, "value", v.Value.Call.Arguments, "-")
}

func TestFailedCheckOfAnOutputWithholdsIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hook hooks.AfterToolCallFunc
		want hooks.Outcome
	}{
		{func(context.Context, hooks.AfterToolCall) (hooks.AfterToolCallResult, error) { panic("boom") }, hooks.OutcomePanic},
		{func(context.Context, hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
			return hooks.AfterToolCallResult{Action: hooks.ActionBlock}, nil
		}, hooks.OutcomeIllegalAction},
		{func(context.Context, hooks.AfterToolCall) (hooks.AfterToolCallResult, error) {
			return hooks.AfterToolCallResult{Action: hooks.ActionWithhold}, nil
		}, hooks.OutcomeOK},
	} {
		v, ds, err := hooks.Ask(t.Context(), &hooks.Asker{}, c.hook, at(), hooks.AfterToolCall{Content: "secret", IsError: false}, nil)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "verdict", []any{v.Action, v.Value.Content, v.Value.IsError, v.Outcome, ds[0].Outcome},
			[]any{hooks.ActionWithhold, hooks.WithheldText, false, c.want, c.want})
		if ds[0].InputSHA256 == ds[0].OutputSHA256 || ds[0].OutputBytes == ds[0].InputBytes {
			t.Error("the row does not show that the output was replaced")
		}
	}
}

func TestRedactingHookThatFailsTellsNothing(t *testing.T) {
	t.Parallel()
	f := func(_ context.Context, in call) (callResult, error) {
		return callResult{}, errors.New("cannot hide " + in.Call.Arguments)
	}
	_, ds := ask(t, hooks.Named("x", "1", f, hooks.Redacting()), zone("secret"))
	expect(t, "payload", ds[0].Payload, hooks.Payload{Reason: "error"})
}

func TestReplyGoesWithHandledOnly(t *testing.T) {
	t.Parallel()
	for _, a := range []hooks.Action{hooks.ActionContinue, hooks.ActionBlock} {
		if _, d := changed(t, hooks.BeforeInput{}, hooks.BeforeInputResult{Action: a, Reply: "hi"}); d.Outcome != hooks.OutcomeMalformed {
			t.Errorf("%s with a reply: %s", a, d.Outcome)
		}
	}
}

func TestTextsOfAFailureAreCutAndStorable(t *testing.T) {
	t.Parallel()
	long := "\x00" + strings.Repeat("é", 4096)
	f := func(context.Context, call) (callResult, error) {
		return callResult{}, &hooks.Failure{Outcome: hooks.OutcomeCrash, Code: long, Err: errors.New(long)}
	}
	v, ds := ask(t, hooks.Named("x", "1", f), zone("-"))
	// "\uFFFD" has three bytes and "é" two; no half of one is kept.
	expect(t, "code", v.Reason.Code, "\uFFFD"+strings.Repeat("é", 62))
	expect(t, "reason", ds[0].Payload.Reason, "crash: \uFFFD"+strings.Repeat("é", 2043))
	_, ds = ask(t, says(callResult{Action: hooks.Action(long)}), zone("-"))
	expect(t, "outcome", []any{ds[0].Outcome, len(ds[0].Payload.Reason) < 300}, []any{hooks.OutcomeMalformed, true})
}

func TestLimitsAreThoseOfTheRegistration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context, _ call) (callResult, error) { <-ctx.Done(); return callResult{}, nil }
		start := time.Now()
		_, ds := ask(t, hooks.Compose(
			hooks.Named("slow", "1", slow, hooks.TimeLimit(7*time.Millisecond), hooks.OnFailureOpen()),
			hooks.Named("long", "1", says(callResult{Action: hooks.ActionContinue, Reason: hooks.Reason{Text: "abcdef"}}), hooks.ReplyLimit(5)),
		), zone("-"))
		expect(t, "decisions", told(ds), []string{"1/2 mutate slow continue timeout open", "2/2 mutate long block oversize"})
		expect(t, "times", []time.Duration{time.Since(start), ds[0].Latency, ds[0].Deadline, ds[1].Latency}, []time.Duration{7 * time.Millisecond, 7 * time.Millisecond, 7 * time.Millisecond, 0})
	})
}

// TestAnswerAtTheTimeLimitIsTooLate: whoever is woken first, the hook or the
// one who waits for it.
func TestAnswerAtTheTimeLimitIsTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a hooks.Asker
		after := func(d time.Duration) hooks.Outcome {
			f := func(context.Context, call) (callResult, error) {
				<-time.After(d)
				return callResult{Action: hooks.ActionContinue}, nil
			}
			v, _, err := hooks.Ask(t.Context(), &a, f, at(), zone("-"), nil)
			if err != nil {
				t.Fatal(err)
			}
			return v.Outcome
		}
		for range 50 {
			expect(t, "just before", after(hooks.DefaultTimeLimit-1), hooks.OutcomeOK)
			expect(t, "at the limit", after(hooks.DefaultTimeLimit), hooks.OutcomeTimeout)
		}
		synctest.Wait()
		expect(t, "left behind", a.Abandoned(), 0)
	})
}

func TestAuditorsReadWhatAHookPanickedWith(t *testing.T) {
	t.Parallel()
	_, ds := ask(t, func(context.Context, call) (callResult, error) { panic("boom") }, zone("-"))
	expect(t, "reason", ds[0].Payload.Reason, "panic: boom")
}

// TestHookThatIgnoresItsTimeLimitIsLeftAndCounted: and once too many calls of
// it hang, it is not called any more.
func TestHookThatIgnoresItsTimeLimitIsLeftAndCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var calls atomic.Int32
		hangs := func(context.Context, call) (callResult, error) {
			calls.Add(1)
			<-release
			return callResult{Action: hooks.ActionContinue}, nil
		}
		var a hooks.Asker
		outcome := func(id string) hooks.Outcome {
			v, _, err := hooks.Ask(t.Context(), &a, hooks.Named(id, "1", hangs), at(), zone("-"), nil)
			if err != nil {
				t.Fatal(err)
			}
			return v.Outcome
		}
		const most = 64
		for i := range most {
			expect(t, "outcome", outcome("hangs"), hooks.OutcomeTimeout)
			if a.Abandoned() != i+1 {
				t.Fatalf("%d left behind; want %d", a.Abandoned(), i+1)
			}
		}
		expect(t, "outcome", outcome("hangs"), hooks.OutcomeUnavailable)
		expect(t, "calls", calls.Load(), int32(most))
		expect(t, "outcome of another hook", outcome("other"), hooks.OutcomeTimeout)
		close(release)
		synctest.Wait()
		expect(t, "left behind", a.Abandoned(), 0)
	})
}

func TestHookThatObeysItsTimeLimitIsNotLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a hooks.Asker
		f := failing(nil)[hooks.OutcomeTimeout]["obeys its ctx"]
		for range 20 {
			if _, _, err := hooks.Ask(t.Context(), &a, f, at(), zone("-"), nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			expect(t, "left behind", a.Abandoned(), 0)
		}
	})
}

// TestCancelledRunIsNeitherOpenNorClosed: what hooks said by then is void.
func TestCancelledRunIsNeitherOpenNorClosed(t *testing.T) {
	t.Parallel()
	why := errors.New("the user stopped it")
	for name, opts := range map[string][]hooks.Option{"closed": nil, "open": {hooks.OnFailureOpen()}} {
		for _, hook := range []string{"obeys its ctx", "answers late", "ignores its ctx"} {
			t.Run(name+"/"+hook, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					release := make(chan struct{})
					defer close(release)
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(time.Second, func() { cancel(why) })
					chain := hooks.Compose(hooks.Named("first", "1", continues()), hooks.Named("x", "1", failing(release)[hooks.OutcomeTimeout][hook], opts...))
					v, ds, err := hooks.Ask(ctx, &hooks.Asker{}, chain, at(), zone("-"), nil)
					if !errors.Is(err, why) || !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "ask BeforeToolCall: ") {
						t.Errorf("error %v", err)
					}
					if ds != nil || v.Action != "" {
						t.Errorf("verdict %+v, decisions %v; want none", v, told(ds))
					}
				})
			})
		}
	}
}

func TestRunThatIsOverAsksNobody(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := func(context.Context, call) (callResult, error) {
		t.Error("asked")
		return callResult{Action: hooks.ActionContinue}, nil
	}
	if _, ds, err := hooks.Ask(ctx, &hooks.Asker{}, f, at(), zone("-"), nil); !errors.Is(err, context.Canceled) || ds != nil {
		t.Errorf("decisions %v, error %v", ds, err)
	}
}

func TestFailureSpeaksAsAnError(t *testing.T) {
	t.Parallel()
	cause := errors.New("gone")
	f := &hooks.Failure{Outcome: hooks.OutcomeCrash, Err: cause}
	if f.Error() != "crash: gone" || !errors.Is(f, cause) {
		t.Errorf("%v", f)
	}
	if got := (&hooks.Failure{Outcome: hooks.OutcomeCrash}).Error(); got != "crash" {
		t.Errorf("%q", got)
	}
}
