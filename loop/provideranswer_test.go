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

// letThrough is a hook that has no objection to an answer after a while.
func letThrough(after time.Duration) hooks.AfterProviderResponseFunc {
	return func(ctx context.Context, _ hooks.AfterProviderResponse) (hooks.AfterProviderResponseResult, error) {
		pause(ctx, after)
		return hooks.AfterProviderResponseResult{Action: hooks.ActionContinue}, nil
	}
}

// TestDecisionAboutAnAnswerThatWasCutOff: if nothing of it was shown, the
// decision led to nothing, and is stored so with what ended the call. If
// something was, it is stored with that. It is never stored twice.
func TestDecisionAboutAnAnswerThatWasCutOff(t *testing.T) {
	t.Parallel()
	cancelled := func(t *testing.T, b *looptest.Bench, j loop.Job, _ *working) {
		if err := cancel(t, b, j); err != nil {
			t.Error(err)
		}
	}
	interrupted := func(_ *testing.T, _ *looptest.Bench, _ loop.Job, w *working) { close(w.interrupt) }
	late := func(*testing.T, *looptest.Bench, loop.Job, *working) {}
	for name, c := range map[string]struct {
		cut   func(*testing.T, *looptest.Bench, loop.Job, *working)
		shown []stream.Chunk
		want  string
	}{
		"cancelled":                      {cancelled, nil, "continue, with run.cancelled, void"},
		"cancelled, with text":           {cancelled, []stream.Chunk{looptest.Text("once")}, "continue, with assistant.delta"},
		"interrupted":                    {interrupted, nil, "continue, with run.released, void"},
		"interrupted, with text":         {interrupted, []stream.Chunk{looptest.Text("once")}, "continue, with assistant.delta"},
		"over its time":                  {late, nil, "continue, with run.failed, void"},
		"interrupted in a tool call":     {interrupted, looptest.ToolCall("p", "look", "{}"), "continue, with run.released, void"},
		"over its time, with reasonings": {late, []stream.Chunk{looptest.Reasoning("hm")}, "continue, with assistant.delta"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := looptest.NewBench(looptest.NewLog(), &looptest.Provider{Plays: stalls(nil, c.shown...)})
				agent := b.Engine.Agents["demo"]
				agent.Limits.RunTime = 2 * time.Minute
				b.Engine.Agents["demo"] = agent
				b.Use(hooks.Hooks{AfterProviderResponse: letThrough(time.Second)})
				j := b.Start(t, b.Session(t), "hi")
				w := work(t, b, j)
				pause(t.Context(), time.Minute)
				c.cut(t, b, j, w)
				pause(t.Context(), time.Minute)
				if err := w.wait(t); err != nil {
					t.Errorf("the worker returned %v", err)
				}
				events, _ := checked(t, b, j.SessionID)
				if got, want := attempts(events, ledger(b, j.SessionID)), []string{"AfterProviderResponse 1/1 " + c.want}; !slices.Equal(got, want) {
					t.Errorf("ledger %q; want %q", got, want)
				}
				if b.Run(t, j).Status.Terminal() {
					goesOn(t, b, j.SessionID)
					return
				}
				play(b, says("at last"))
				if run := b.Advance(t, next(t, b, j)); run.Status != loop.RunCompleted {
					t.Errorf("run %+v", run)
				}
				checked(t, b, j.SessionID)
			})
		})
	}
}

// TestCancelWhileAHookLooksAtAnAnswer stops at once, and there is no decision.
func TestCancelWhileAHookLooksAtAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), &looptest.Provider{Plays: uncalled(t)})
		b.Use(hooks.Hooks{AfterProviderResponse: hooks.Named("slow", "1", letThrough(time.Minute), hooks.TimeLimit(time.Hour))})
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		pause(t.Context(), time.Second)
		cancelledNow(t, b, j, w, 0)
		if rec := ledger(b, j.SessionID); len(rec) != 0 {
			t.Errorf("ledger %v", rows(rec))
		}
		goesOn(t, b, j.SessionID)
	})
}

// TestProviderDecisionsOfAStepThatACancelMadeImpossible are kept, without
// effect, with the end of the run; a refusal that came too late to be stored
// stands, since the call was over by then.
func TestProviderDecisionsOfAStepThatACancelMadeImpossible(t *testing.T) {
	t.Parallel()
	for typ, want := range map[event.Type]struct {
		status loop.RunStatus
		rows   []string
	}{
		event.TypeModelRequested: {loop.RunCancelled, []string{
			"BeforeProviderHeaders 1/1 continue, with run.cancelled, void", "BeforeProviderRequest 1/1 continue, with run.cancelled, void",
		}},
		event.TypeRunFailed: {loop.RunFailed, []string{
			"BeforeProviderHeaders 1/1 continue, with model.requested", "BeforeProviderRequest 1/1 continue, with model.requested",
			"AfterProviderResponse 1/1 block, with run.failed",
		}},
	} {
		t.Run(string(typ), func(t *testing.T) {
			t.Parallel()
			var a questions
			b := looptest.NewBench(looptest.NewLog(), &looptest.Provider{Plays: uncalled(t)})
			h := a.hooks()
			h.AfterProviderResponse = func(context.Context, hooks.AfterProviderResponse) (hooks.AfterProviderResponseResult, error) {
				return hooks.AfterProviderResponseResult{Action: hooks.ActionBlock}, nil
			}
			b.Use(h)
			j := b.Start(t, b.Session(t), "hi")
			var once sync.Once
			hooked(b, func(ap loop.Append) {
				if has(ap, typ) {
					once.Do(func() {
						if err := cancel(t, b, j); err != nil {
							t.Error(err)
						}
					})
				}
			})
			if run := b.Advance(t, j); run.Status != want.status {
				t.Errorf("run %+v; want it %s", run, want.status)
			}
			events, _ := checked(t, b, j.SessionID)
			if got := attempts(events, ledger(b, j.SessionID)); !slices.Equal(got, want.rows) || a.counts() != [3]int{1, 1, 0} {
				t.Errorf("ledger %q, asked %v; want %q", got, a.counts(), want.rows)
			}
		})
	}
}

func TestWhatHooksSeeOfAnAnswerIsBoundedText(t *testing.T) {
	t.Parallel()
	var many []hooks.Header
	for i := range 100 {
		many = append(many, hooks.Header{Name: fmt.Sprintf("X-%03d", i)})
	}
	long := strings.Repeat("é", hooks.MaxHeaderValue)
	for name, c := range map[string]struct{ given, want []hooks.Header }{
		"none":               {nil, []hooks.Header{}},
		"cookies":            {[]hooks.Header{{Name: "A", Value: "1"}, {Name: "Set-Cookie", Value: "s"}, {Name: "set-cookie", Value: "s"}, {Name: "Z", Value: "2"}}, []hooks.Header{{Name: "A", Value: "1"}, {Name: "Z", Value: "2"}}},
		"control characters": {[]hooks.Header{{Name: "A", Value: "a\r\nb\x00c\x1b[31m\td\x7f\u0085"}}, []hooks.Header{{Name: "A", Value: "a\uFFFD\uFFFDb\uFFFDc\uFFFD[31m\td\uFFFD\uFFFD"}}},
		"no text":            {[]hooks.Header{{Name: "A", Value: "caf\xe9 é"}}, []hooks.Header{{Name: "A", Value: "caf\uFFFD é"}}},
		"a long value":       {[]hooks.Header{{Name: "A", Value: long}}, []hooks.Header{{Name: "A", Value: event.Shorten(long, hooks.MaxHeaderValue)}}},
		"a long name":        {[]hooks.Header{{Name: strings.Repeat("A", hooks.MaxHeaderName+1)}, {Name: "B"}}, []hooks.Header{{Name: "B"}}},
		"many":               {many, many[:hooks.MaxHeaders]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a questions
			b := looptest.NewBench(looptest.NewLog(), &looptest.Provider{Plays: says("hello"), Begins: func(loop.ModelRequest) loop.ProviderResponse {
				return loop.ProviderResponse{Status: 200, Headers: c.given}
			}})
			b.Use(a.hooks())
			if run := b.Advance(t, b.Start(t, b.Session(t), "hi")); run.Status != loop.RunCompleted {
				t.Errorf("run %+v", run)
			}
			if got := a.responses[0].Headers; !reflect.DeepEqual(got, c.want) {
				t.Errorf("the hook saw %q; want %q", got, c.want)
			}
		})
	}
}

// TestAdapterThatReportsAnAnswerTwiceAsksOnce: a second decision at the same
// position could never be stored, and the run would end nowhere.
func TestAdapterThatReportsAnAnswerTwiceAsksOnce(t *testing.T) {
	t.Parallel()
	var a questions
	b := looptest.NewBench(looptest.NewLog(), twice{&looptest.Provider{}})
	b.Use(a.hooks())
	j := b.Start(t, b.Session(t), "hi")
	if run := b.Advance(t, j); run.Status != loop.RunFailed || run.Reason != string(event.FailModel) {
		t.Errorf("run %+v", run)
	}
	checked(t, b, j.SessionID)
	if n := len(ledger(b, j.SessionID)); n != 3 || a.counts() != [3]int{1, 1, 1} {
		t.Errorf("%d decisions, asked %v", n, a.counts())
	}
	goesOn(t, b, j.SessionID)
}

// twice is an adapter with a bug.
type twice struct{ *looptest.Provider }

func (twice) Send(
	ctx context.Context, _ loop.ModelRequest, _ loop.ProviderRequest, received func(context.Context, loop.ProviderResponse) error,
) iter.Seq2[stream.Chunk, error] {
	return func(yield func(stream.Chunk, error) bool) {
		for range 2 {
			if err := received(ctx, loop.ProviderResponse{Status: 200}); err != nil {
				yield(stream.Chunk{}, err)
				return
			}
		}
		yield(looptest.Finish(stream.FinishStop), nil)
	}
}
