package loop_test

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// questions keeps what provider gates were asked about.
type questions struct {
	mu        sync.Mutex
	headers   []hooks.BeforeProviderHeaders
	requests  []hooks.BeforeProviderRequest
	responses []hooks.AfterProviderResponse
}

// hooks let everything through.
func (a *questions) hooks() hooks.Hooks {
	return hooks.Hooks{
		BeforeProviderHeaders: func(_ context.Context, in hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.headers = append(a.headers, in)
			return hooks.BeforeProviderHeadersResult{Action: hooks.ActionContinue}, nil
		},
		BeforeProviderRequest: func(_ context.Context, in hooks.BeforeProviderRequest) (hooks.BeforeProviderRequestResult, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.requests = append(a.requests, in)
			return hooks.BeforeProviderRequestResult{Action: hooks.ActionContinue}, nil
		},
		AfterProviderResponse: func(_ context.Context, in hooks.AfterProviderResponse) (hooks.AfterProviderResponseResult, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.responses = append(a.responses, in)
			return hooks.AfterProviderResponseResult{Action: hooks.ActionContinue}, nil
		},
	}
}

func (a *questions) counts() [3]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return [3]int{len(a.headers), len(a.requests), len(a.responses)}
}

// attempts says of each row of a ledger at which call it stands, and with which
// event it was stored.
func attempts(events []event.Event, rec []loop.LedgerRow) []string {
	var out []string
	for _, r := range rec {
		line := fmt.Sprintf("%s %s/%d %s, with %s", r.Gate, r.Subject, r.Attempt, r.Action, events[r.EventSeq-1].Type)
		if !r.Effective {
			line += ", void"
		}
		out = append(out, line)
	}
	return out
}

// stored is all text that a log and a ledger hold.
func stored(events []event.Event, rec []loop.LedgerRow) string {
	out := fmt.Sprintf("%+v", rec)
	for _, e := range events {
		out += "\n" + string(e.Payload)
	}
	return out
}

func TestWhatHooksMakeOfARequestIsSentByteForByte(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a questions
		p := &looptest.Provider{Plays: strict(t, paced(calls("look"))), Begins: func(loop.ModelRequest) loop.ProviderResponse {
			return loop.ProviderResponse{Status: 200, Headers: []hooks.Header{{Name: "X-Request-Id", Value: "r-1"}}}
		}}
		b := looptest.NewBench(looptest.NewLog(), p, looptest.Says("look", "seen"))
		const body = "{ \"n\":\t9007199254740993, \"é\":[\"\\u0000<\"] }\n"
		b.Use(a.hooks().Then(hooks.Hooks{
			BeforeProviderHeaders: hooks.Named("team", "1", func(context.Context, hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
				return hooks.BeforeProviderHeadersResult{Action: hooks.ActionTransform, Set: []hooks.Header{{Name: "x-team", Value: " secret\t"}}, Remove: []string{"ACCEPT"}}, nil
			}),
			BeforeProviderRequest: hooks.Named("rewrite", "1", func(context.Context, hooks.BeforeProviderRequest) (hooks.BeforeProviderRequestResult, error) {
				text := body
				return hooks.BeforeProviderRequestResult{Action: hooks.ActionTransform, Body: &text}, nil
			}),
		}))
		j := b.Start(t, b.Session(t), "hi")
		if run := b.Advance(t, j); run.Status != loop.RunCompleted || len(run.Turns) != 2 {
			t.Fatalf("run %+v", run)
		}
		events, _ := checked(t, b, j.SessionID)
		want := loop.ProviderRequest{Headers: []hooks.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "X-Team", Value: "secret"}}, Body: body}
		for i, s := range p.Sent() {
			if !reflect.DeepEqual(s.ProviderRequest, want) {
				t.Errorf("call %d sent %+v; want %+v", i+1, s.ProviderRequest, want)
			}
			ref := hooks.RunRef{TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, Agent: "demo"}
			original := looptest.Written(s.ModelRequest)
			if got, want := a.headers[i], (hooks.BeforeProviderHeaders{RunRef: ref, Turn: i + 1, Attempt: 1, Model: "test-model", Headers: original.Headers}); !reflect.DeepEqual(got, want) {
				t.Errorf("asked about the header %+v; want %+v", got, want)
			}
			if got, want := a.requests[i], (hooks.BeforeProviderRequest{RunRef: ref, Turn: i + 1, Attempt: 1, Model: "test-model", Body: original.Body}); got != want {
				t.Errorf("asked about the body %+v; want %+v", got, want)
			}
			if got, want := a.responses[i], (hooks.AfterProviderResponse{
				RunRef: ref, Turn: i + 1, Attempt: 1, Model: "test-model", Status: 200, Headers: []hooks.Header{{Name: "X-Request-Id", Value: "r-1"}},
			}); !reflect.DeepEqual(got, want) {
				t.Errorf("asked about the answer %+v; want %+v", got, want)
			}
		}
		if len(p.Sent()) != 2 || a.counts() != [3]int{2, 2, 2} {
			t.Errorf("%d calls, asked %v", len(p.Sent()), a.counts())
		}
		rec := ledger(b, j.SessionID)
		if got, want := attempts(events, rec[:4]), []string{
			"BeforeProviderHeaders 1/1 continue, with model.requested", "BeforeProviderHeaders 1/1 transform, with model.requested",
			"BeforeProviderRequest 1/1 continue, with model.requested", "BeforeProviderRequest 1/1 transform, with model.requested",
		}; !slices.Equal(got, want) || len(rec) != 10 {
			t.Errorf("ledger %q; want %q", got, want)
		}
		if headers := rec[1].Payload.Patch; headers != `[{"op":"remove","path":"/headers/Accept"},{"op":"add","path":"/headers/X-Team"}]` {
			t.Errorf("patch of the headers %s", headers)
		}
		if strings.Contains(stored(events, rec), "secret") {
			t.Error("a header's value is stored")
		}
	})
}

// TestOrderOfTheProviderGates: nothing is announced before the gates let it
// through, nothing sent before it is announced, nothing shown before the answer
// is let through.
func TestOrderOfTheProviderGates(t *testing.T) {
	t.Parallel()
	var d diary
	var log *looptest.Log
	p := &looptest.Provider{Plays: says("hello"), Watch: func(what string, _ loop.ModelRequest) { d.add("%s", what) }}
	log = looptest.NewLog()
	b := looptest.NewBench(log, p)
	b.Use(hooks.Hooks{
		TransformContext: func(context.Context, hooks.TransformContext) (hooks.TransformContextResult, error) {
			d.add("TransformContext")
			return hooks.TransformContextResult{Action: hooks.ActionContinue}, nil
		},
		BeforeProviderHeaders: func(context.Context, hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
			d.add("BeforeProviderHeaders")
			return hooks.BeforeProviderHeadersResult{Action: hooks.ActionContinue}, nil
		},
		BeforeProviderRequest: func(context.Context, hooks.BeforeProviderRequest) (hooks.BeforeProviderRequestResult, error) {
			d.add("BeforeProviderRequest")
			return hooks.BeforeProviderRequestResult{Action: hooks.ActionContinue}, nil
		},
		AfterProviderResponse: func(context.Context, hooks.AfterProviderResponse) (hooks.AfterProviderResponseResult, error) {
			d.add("AfterProviderResponse")
			return hooks.AfterProviderResponseResult{Action: hooks.ActionContinue}, nil
		},
	})
	log.LoseAcks(func(a loop.Append) error {
		for _, e := range a.Events {
			if e.Type == event.TypeModelRequested || e.Type == event.TypeAssistantDelta {
				d.add("%s with %d decisions", e.Type, len(a.Ledger))
			}
		}
		return nil
	})
	j := b.Start(t, b.Session(t), "hi")
	b.Advance(t, j)
	checked(t, b, j.SessionID)
	want := []string{
		"TransformContext", "BeforeProviderHeaders", "BeforeProviderRequest", "model.requested with 3 decisions",
		"sent", "AfterProviderResponse", "received", "assistant.delta with 1 decisions",
	}
	if !slices.Equal(d.lines, want) {
		t.Errorf("what happened\n got %s\nwant %s", lines(d.lines), lines(want))
	}
}

// TestModelsThatSpeakNoHTTPAskNoProviderGate: nor do the hooks there cost them
// an append.
func TestModelsThatSpeakNoHTTPAskNoProviderGate(t *testing.T) {
	t.Parallel()
	var a questions
	appends := func(model loop.Model, h hooks.Hooks) (n int) {
		log := looptest.NewLog()
		b := looptest.NewBench(log, model, looptest.Says("look", "seen"))
		b.Use(h)
		log.LoseAcks(func(loop.Append) error {
			n++
			return nil
		})
		j := b.Start(t, b.Session(t), "hi")
		if run := b.Advance(t, j); run.Status != loop.RunCompleted {
			t.Errorf("run %+v", run)
		}
		checked(t, b, j.SessionID)
		if rec := ledger(b, j.SessionID); len(rec) != a.counts()[2] {
			t.Errorf("ledger %v", rows(rec))
		}
		return n
	}
	model := calls("look")
	if with, without := appends(model, a.hooks()), appends(model, hooks.Hooks{}); with != without || a.counts() != [3]int{} {
		t.Errorf("%d appends with hooks and %d without, asked %v", with, without, a.counts())
	}
	p := &looptest.Provider{Plays: model}
	without := appends(p, hooks.Hooks{})
	sent := p.Sent()
	if len(sent) != 2 || sent[0].Body != "" {
		t.Errorf("without hooks it was called as %+v; want it streamed", sent)
	}
	// A hook at the answers alone is asked about no step.
	if with := appends(&looptest.Provider{Plays: model}, hooks.Hooks{AfterProviderResponse: a.hooks().AfterProviderResponse}); with != without {
		t.Errorf("%d appends with a hook at the answers, %d without", with, without)
	}
}

// heedless is a provider whose adapter makes of a refusal what it likes.
type heedless struct {
	*looptest.Provider
	after func(err error, yield func(stream.Chunk, error) bool)
}

func (h heedless) Send(
	ctx context.Context, req loop.ModelRequest, _ loop.ProviderRequest, received func(context.Context, loop.ProviderResponse) error,
) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) {
		h.after(received(ctx, loop.ProviderResponse{Status: 200}), yield)
	}
}

func TestProviderGatesBlock(t *testing.T) {
	t.Parallel()
	reason := hooks.Reason{Code: "residency", Text: "not to this\x00 country"}
	headers := hooks.Hooks{BeforeProviderHeaders: hooks.Named("no", "1", func(context.Context, hooks.BeforeProviderHeaders) (hooks.BeforeProviderHeadersResult, error) {
		return hooks.BeforeProviderHeadersResult{Action: hooks.ActionBlock, Reason: reason}, nil
	})}
	request := hooks.Hooks{BeforeProviderRequest: hooks.Named("no", "1", func(context.Context, hooks.BeforeProviderRequest) (hooks.BeforeProviderRequestResult, error) {
		return hooks.BeforeProviderRequestResult{Action: hooks.ActionBlock, Reason: reason}, nil
	})}
	response := hooks.Hooks{AfterProviderResponse: hooks.Named("no", "1", func(context.Context, hooks.AfterProviderResponse) (hooks.AfterProviderResponseResult, error) {
		return hooks.AfterProviderResponseResult{Action: hooks.ActionBlock, Reason: reason}, nil
	})}
	provider := &looptest.Provider{Plays: says("never shown")}
	adapter := func(after func(error, func(stream.Chunk, error) bool)) loop.Model { return heedless{provider, after} }
	for name, c := range map[string]struct {
		model loop.Model
		hooks hooks.Hooks
		rows  []string
		asked [3]int
	}{
		"BeforeProviderHeaders": {uncalledProvider(t), headers, []string{"BeforeProviderHeaders anonymous/1 continue", "BeforeProviderHeaders no block"}, [3]int{1, 0, 0}},
		"BeforeProviderRequest": {uncalledProvider(t), request, []string{
			"BeforeProviderHeaders anonymous/1 continue", "BeforeProviderRequest anonymous/1 continue", "BeforeProviderRequest no block",
		}, [3]int{1, 1, 0}},
		"AfterProviderResponse": {&looptest.Provider{Plays: uncalled(t)}, response, blockedAnswer, [3]int{1, 1, 1}},
		"AfterProviderResponse, read all the same": {adapter(func(_ error, yield func(stream.Chunk, error) bool) {
			if !yield(looptest.Text("never shown"), nil) {
				return
			}
			yield(looptest.Finish(stream.FinishStop), nil)
		}), response, blockedAnswer, [3]int{1, 1, 1}},
		"AfterProviderResponse, ended in silence": {adapter(func(error, func(stream.Chunk, error) bool) {}), response, blockedAnswer, [3]int{1, 1, 1}},
		"AfterProviderResponse, called a passing failure": {adapter(func(err error, yield func(stream.Chunk, error) bool) {
			yield(stream.Chunk{}, &loop.ModelError{Status: 503, Message: "try again", Retryable: true, Err: err})
		}), response, blockedAnswer, [3]int{1, 1, 1}},
		"AfterProviderResponse, panicked over": {adapter(func(error, func(stream.Chunk, error) bool) { panic("odd") }), response, blockedAnswer, [3]int{1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a questions
			b := looptest.NewBench(looptest.NewLog(), c.model)
			retry(b, loop.Retry{Attempts: 5})
			b.Use(a.hooks().Then(c.hooks))
			j := b.Start(t, b.Session(t), "hi")
			run := b.Advance(t, j)
			if run.Status != loop.RunFailed || run.Reason != string(event.FailBlocked) || run.Error != "not to this\uFFFD country" {
				t.Errorf("run %+v; want it blocked", run)
			}
			events, s := checked(t, b, j.SessionID)
			rec := ledger(b, j.SessionID)
			if !slices.Equal(rows(rec), c.rows) || a.counts() != c.asked {
				t.Errorf("ledger %q, asked %v; want %q and %v", rows(rec), a.counts(), c.rows, c.asked)
			}
			last := rec[len(rec)-1]
			end := only[event.RunFailed](t, events)
			if last.EventSeq != events[len(events)-1].Seq || last.ReasonCode != "residency" || end.LedgerSeq != last.LedgerSeq {
				t.Errorf("the block is row %+v, the end %+v", last.Row, end)
			}
			if len(s.Messages) != 1 || len(payloads[event.AssistantDelta](t, events)) != 0 || len(payloads[event.AssistantDiscarded](t, events)) != 0 {
				t.Errorf("messages %+v, events %v; want nothing shown and nothing tried again", s.Messages, looptest.Types(events))
			}
			goesOnWithout(t, b, j.SessionID, "country")
		})
	}
}

var blockedAnswer = []string{
	"BeforeProviderHeaders anonymous/1 continue", "BeforeProviderRequest anonymous/1 continue",
	"AfterProviderResponse anonymous/1 continue", "AfterProviderResponse no block",
}

// uncalledProvider is one that nothing may be sent to.
func uncalledProvider(t *testing.T) *looptest.Provider {
	return &looptest.Provider{Plays: uncalled(t), Watch: func(what string, _ loop.ModelRequest) { t.Errorf("the model has %s", what) }}
}

// TestEachAttemptIsAskedAbout: a refusal of the provider comes to the hooks
// too, and so does what is sent after it, and after a crash. What was decided is
// not asked again.
func TestEachAttemptIsAskedAbout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a questions
		p := &looptest.Provider{Plays: stalls(nil, looptest.Text("once")), Begins: func(req loop.ModelRequest) loop.ProviderResponse {
			return loop.ProviderResponse{Status: map[bool]int{true: 529, false: 200}[req.Attempt == 1]}
		}}
		b := looptest.NewBench(looptest.NewLog(), p)
		retry(b, loop.Retry{Attempts: 2})
		b.Use(a.hooks())
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		pause(t.Context(), time.Minute)
		w.kill()
		_ = w.wait(t)
		p.Plays = says("at last")
		if run := b.Advance(t, buried(t, b, j, w.id)); run.Status != loop.RunCompleted {
			t.Errorf("run %+v", run)
		}
		events, _ := checked(t, b, j.SessionID)
		var want []string
		for i, with := range []string{"assistant.discarded", "assistant.delta", "assistant.delta"} {
			want = append(want, fmt.Sprintf("BeforeProviderHeaders 1/%d continue, with model.requested", i+1),
				fmt.Sprintf("BeforeProviderRequest 1/%d continue, with model.requested", i+1), fmt.Sprintf("AfterProviderResponse 1/%d continue, with %s", i+1, with))
		}
		got := attempts(events, ledger(b, j.SessionID))
		// The last answer may be whole by the time its first text is stored.
		got[8] = strings.Replace(got[8], "assistant.completed", "assistant.delta", 1)
		if !slices.Equal(got, want) {
			t.Errorf("ledger\n got %s\nwant %s", lines(got), lines(want))
		}
		if a.counts() != [3]int{3, 3, 3} || a.responses[0].Status != 529 || len(p.Sent()) != 3 {
			t.Errorf("asked %v, answers %+v, %d calls", a.counts(), a.responses, len(p.Sent()))
		}
	})
}
