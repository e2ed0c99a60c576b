package loop_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// retry lets the agent of b make failed calls again.
func retry(b *looptest.Bench, r loop.Retry) {
	a := b.Engine.Agents["demo"]
	a.Retry = r
	b.Engine.Agents["demo"] = a
}

// failing is a model that plays what plays says for each call, and then answers.
func failing(calls *int, plays ...func(yield func(stream.Chunk, error) bool)) looptest.Model {
	return func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		*calls++
		if *calls <= len(plays) {
			plays[*calls-1](yield)
			return
		}
		says("at last")(ctx, req, yield)
	}
}

func with(err error, text ...stream.Chunk) func(func(stream.Chunk, error) bool) {
	return func(yield func(stream.Chunk, error) bool) {
		for _, c := range text {
			yield(c, nil)
		}
		if err != nil {
			yield(stream.Chunk{}, err)
		}
	}
}

func busy(after time.Duration) error {
	return &loop.ModelError{Status: 529, Code: "overloaded_error", Message: "the provider is busy", Retryable: true, RetryAfter: after}
}

func TestACallThatFailedBeforeItShowedAnythingIsMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := looptest.NewBench(looptest.NewLog(), strict(t, failing(&n, with(busy(0)), with(busy(2*time.Second)), with(nil))))
		retry(b, loop.Retry{Attempts: 4})
		id := b.Session(t)
		begin := time.Now()
		run := b.Advance(t, b.Start(t, id, "hi"))
		if run.Status != loop.RunCompleted || n != 4 || run.Epoch != 1 {
			t.Errorf("run %+v after %d calls", run, n)
		}
		events, s := checked(t, b, id)
		voids := payloads[event.AssistantDiscarded](t, events)
		if len(voids) != 3 || len(payloads[event.ModelRequested](t, events)) != 4 {
			t.Fatalf("events %v", looptest.Types(events))
		}
		want := event.AssistantDiscarded{Attempt: 1, Reason: "failed", Error: "the provider is busy", Code: "overloaded_error", Status: 529, RetryAt: voids[0].RetryAt}
		if !reflect.DeepEqual(voids[0], want) {
			t.Errorf("discarded %+v; want %+v", voids[0], want)
		}
		if wait := voids[0].RetryAt.Sub(begin); wait < 250*time.Millisecond || wait > 500*time.Millisecond {
			t.Errorf("the first wait is %v", wait)
		}
		if wait := voids[1].RetryAt.Sub(*voids[0].RetryAt); wait < 2*time.Second || wait > 2500*time.Millisecond+time.Microsecond {
			t.Errorf("the provider asked for 2 s and is given %v", wait)
		}
		if last := voids[2]; last.Error == "" || last.Code != "" || last.RetryAt == nil {
			t.Errorf("an answer that ended before it began is told as %+v", last)
		}
		if got := time.Since(begin); got < 2*time.Second || got > 6*time.Second {
			t.Errorf("it took %v", got)
		}
		if m := s.Messages[len(s.Messages)-1]; m.Text() != "at last" || len(s.Messages) != 2 {
			t.Errorf("messages %+v", s.Messages)
		}
	})
}

func TestAFailureThatStandsFailsTheRun(t *testing.T) {
	t.Parallel()
	refused := &loop.ModelError{Status: 401, Message: "the key is wrong"}
	for name, c := range map[string]struct {
		attempts int
		plays    []func(func(stream.Chunk, error) bool)
		calls    int
	}{
		"no more attempts":       {3, []func(func(stream.Chunk, error) bool){with(busy(0)), with(busy(0)), with(busy(0))}, 3},
		"no policy":              {0, []func(func(stream.Chunk, error) bool){with(busy(0))}, 1},
		"nothing to wait for":    {5, []func(func(stream.Chunk, error) bool){with(refused)}, 1},
		"no model error":         {5, []func(func(stream.Chunk, error) bool){with(errors.New("a bug"))}, 1},
		"text was shown":         {5, []func(func(stream.Chunk, error) bool){with(busy(0), looptest.Text("once"))}, 1},
		"reasoning was shown":    {5, []func(func(stream.Chunk, error) bool){with(busy(0), looptest.Reasoning("hm"))}, 1},
		"a call was opened":      {5, []func(func(stream.Chunk, error) bool){with(busy(0), looptest.ToolCall("p", "look", "{}")...)}, 1},
		"cut off after the text": {5, []func(func(stream.Chunk, error) bool){with(nil, looptest.Text("once"))}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := 0
				b := looptest.NewBench(looptest.NewLog(), strict(t, failing(&n, c.plays...)))
				retry(b, loop.Retry{Attempts: c.attempts})
				id := b.Session(t)
				if run := b.Advance(t, b.Start(t, id, "hi")); run.Status != loop.RunFailed || n != c.calls {
					t.Errorf("run %s %s after %d calls; want %d", run.Status, run.Reason, n, c.calls)
				}
				events, _ := checked(t, b, id)
				fail := only[event.RunFailed](t, events)
				if (fail.Code == "overloaded_error" && fail.Status == 529) != (name != "nothing to wait for" && name != "no model error" && name != "cut off after the text") {
					t.Errorf("failed %+v", fail)
				}
				goesOn(t, b, id)
			})
		})
	}
}

// TestALongWaitHoldsNoWorker: the run is handed back and due later, and the
// cap holds whatever the provider asks for.
func TestALongWaitHoldsNoWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := looptest.NewBench(looptest.NewLog(), failing(&n, with(busy(time.Hour))))
		retry(b, loop.Retry{Attempts: 2, MaxWait: 10 * time.Minute})
		id := b.Session(t)
		j := b.Start(t, id, "hi")
		begin := time.Now()
		run := b.Advance(t, j)
		if run.Status != loop.RunQueued || run.WorkerID != "" || run.NotBefore == nil || !time.Now().Equal(begin) {
			t.Fatalf("run %+v after %v", run, time.Since(begin))
		}
		if wait := run.NotBefore.Sub(begin); wait != 10*time.Minute {
			t.Errorf("due in %v", wait)
		}
		events, _ := checked(t, b, id)
		if rel := only[event.RunReleased](t, events); rel.Cause != event.ReleaseBackoff {
			t.Errorf("released %+v", rel)
		}
		pause(t.Context(), 10*time.Minute)
		if ok, err := b.Commands.Requeue(t.Context(), loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: j.RunID, Ticket: run.Ticket}, "due", looptest.Tester); !ok || err != nil {
			t.Fatal(ok, err)
		}
		j.Ticket = b.Run(t, j).Ticket
		if run = b.Advance(t, j); run.Status != loop.RunCompleted || n != 2 {
			t.Errorf("run %+v after %d calls", run, n)
		}
		events, _ = checked(t, b, id)
		if res := only[event.RunResumed](t, events); res.Cause != event.ResumeRetry {
			t.Errorf("resumed %+v", res)
		}
	})
}

// TestAWaitThatTheLogHasSeenIsOver: the worker that failed had a clock that is
// wrong, and the run does not wait until everybody's says the same.
func TestAWaitThatTheLogHasSeenIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, ahead := 0, time.Hour
		b := looptest.NewBench(looptest.NewLog(), failing(&n, with(busy(10*time.Second))))
		b.Engine.Now = func() time.Time { return time.Now().Add(ahead) }
		retry(b, loop.Retry{Attempts: 2, MaxWait: 10 * time.Second})
		j := b.Start(t, b.Session(t), "hi")
		run := b.Advance(t, j)
		if run.NotBefore == nil || time.Until(*run.NotBefore) != ahead+10*time.Second {
			t.Fatalf("run %+v", run)
		}
		ahead, j.Ticket = 0, run.Ticket
		if ok, err := b.Commands.Requeue(t.Context(), j, "due", looptest.Tester); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if run := b.Advance(t, next(t, b, j)); run.Status != loop.RunCompleted || n != 2 {
			t.Errorf("run %s, not before %v, after %d calls", run.Status, run.NotBefore, n)
		}
	})
}

// TestWhoeverTakesTheRunWaitsForTheRest: what the provider asked for holds for
// the next worker too.
func TestWhoeverTakesTheRunWaitsForTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := looptest.NewBench(looptest.NewLog(), failing(&n, with(busy(2*time.Second))))
		retry(b, loop.Retry{Attempts: 2})
		j := b.Start(t, b.Session(t), "hi")
		begin := time.Now()
		w := work(t, b, j)
		pause(t.Context(), time.Second)
		w.kill()
		if err := w.wait(t); err == nil {
			t.Fatal("it was not killed")
		}
		if !release(t, b, j, w.id) {
			t.Fatal("nothing was released")
		}
		if run := b.Advance(t, next(t, b, j)); run.Status != loop.RunCompleted || n != 2 || time.Since(begin) < 2*time.Second {
			t.Errorf("run %s after %d calls and %v", run.Status, n, time.Since(begin))
		}
	})
}

func TestACancelEndsTheWaitForTheNextAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := looptest.NewBench(looptest.NewLog(), failing(&n, with(busy(2*time.Second))))
		retry(b, loop.Retry{Attempts: 2})
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		pause(t.Context(), time.Second)
		cancelledNow(t, b, j, w, 0)
		if n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestAShutdownEndsTheWaitForTheNextAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := looptest.NewBench(looptest.NewLog(), failing(&n, with(busy(2*time.Second))))
		retry(b, loop.Retry{Attempts: 2})
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		pause(t.Context(), time.Second)
		begin := time.Now()
		close(w.leaving)
		if err := w.wait(t); err != nil || !time.Now().Equal(begin) {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		run := b.Run(t, j)
		void := only[event.AssistantDiscarded](t, b.Events(t, j.SessionID))
		if run.Status != loop.RunQueued || run.ReleasedFor != event.ReleaseBackoff || !run.NotBefore.Equal(*void.RetryAt) || n != 1 {
			t.Errorf("run %+v after %d calls; want it due at %v", run, n, void.RetryAt)
		}
	})
}
