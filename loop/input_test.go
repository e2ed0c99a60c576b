package loop_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// onInput is a bench whose BeforeInput answers res, and the count of its calls.
func onInput(model loop.Model, res hooks.BeforeInputResult) (*looptest.Bench, *atomic.Int64) {
	var asked atomic.Int64
	b := looptest.NewBench(looptest.NewLog(), model)
	b.Use(hooks.Hooks{BeforeInput: hooks.Named("input", "1", func(context.Context, hooks.BeforeInput) (hooks.BeforeInputResult, error) {
		asked.Add(1)
		return res, nil
	})})
	return b, &asked
}

// say starts a run as a person does.
func say(t testing.TB, b *looptest.Bench, sessionID, text, key string) (loop.StartedRun, error) {
	t.Helper()
	return b.Commands.StartRun(t.Context(), loop.StartRun{
		TenantID: looptest.Tenant, SessionID: sessionID, Text: text, IdempotencyKey: key, Actor: looptest.Tester,
	})
}

// quiet puts a hook set without gates into b, and returns what puts the other
// one back.
func quiet(b *looptest.Bench) func() {
	h := b.Commands.Hooks
	b.Use(hooks.Hooks{})
	return func() { b.Use(h) }
}

func digestOf(s string) event.Digest {
	sum := sha256.Sum256([]byte(s))
	return event.Digest{SHA256: hex.EncodeToString(sum[:]), Bytes: int64(len(s))}
}

func TestInputHandledStartsNothing(t *testing.T) {
	t.Parallel()
	b, asked := onInput(says("no"), hooks.BeforeInputResult{Action: hooks.ActionHandled, Reply: "it is\x00 noon"})
	id := b.Session(t)
	back := quiet(b)
	active := b.Start(t, id, "a long talk")
	back()
	jobs := len(b.Log.(*looptest.Log).Jobs())
	got, err := say(t, b, id, "what time is it?", "k")
	if err != nil || !got.Handled || got.Reply != "it is\uFFFD noon" || got.RunID != "" || got.MessageID != "" || got.AssistantMessageID != "" || got.Repeated {
		t.Errorf("%+v, %v; want the reply and empty ids", got, err)
	}
	events, s := checked(t, b, id)
	h := only[event.InputHandled](t, events)
	if h.Input != digestOf("what time is it?") || h.Agent != "demo" || h.Reply != got.Reply || h.IdempotencyKey != "k" || events[len(events)-1].RunID != "" {
		t.Errorf("event %+v", h)
	}
	if len(s.Messages) != 1 || len(s.Runs) != 1 || len(b.Log.(*looptest.Log).Jobs()) != jobs || s.Runs[0].Status != loop.RunQueued || s.Runs[0].CancelRequested {
		t.Errorf("messages %+v, runs %+v; want nothing started and nothing cancelled", s.Messages, s.Runs)
	}
	if rec := ledger(b, id); len(rec) != 1 || rec[0].Action != hooks.ActionHandled || !rec[0].Effective || rec[0].EventSeq != events[len(events)-1].Seq || rec[0].Epoch != 0 || rec[0].Subject != h.InputID {
		t.Errorf("ledger %+v", rec)
	}
	again, err := say(t, b, id, "what time is it?", "k")
	want := got
	want.Repeated = true
	if err != nil || again != want || asked.Load() != 1 {
		t.Errorf("repeated: %+v, %v, asked %d times; want %+v without asking", again, err, asked.Load(), want)
	}
	if _, err := say(t, b, id, "something else", "k"); !errors.Is(err, loop.ErrKeyReused) {
		t.Errorf("the key for another text: %v; want ErrKeyReused", err)
	}
	if n := len(b.Events(t, id)); n != len(events) {
		t.Errorf("%d events; want %d", n, len(events))
	}
	b.Advance(t, active)
	goesOnWithout(t, b, id, "noon")
}

// goesOnWithout starts another run without gates and checks that the model is not
// sent secret.
func goesOnWithout(t *testing.T, b *looptest.Bench, id, secret string) {
	t.Helper()
	quiet(b)
	play(b, strict(t, func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		if sent := fmt.Sprintf("%+v", req); strings.Contains(sent, secret) {
			t.Errorf("the model was sent %s", sent)
		}
		says("as you wish")(ctx, req, yield)
	}))
	if run := b.Advance(t, b.Start(t, id, "and now?")); run.Status != loop.RunCompleted {
		t.Errorf("the next run is %+v", run)
	}
	checked(t, b, id)
}

func TestInputTransformIsWhatIsStored(t *testing.T) {
	t.Parallel()
	text := "my key is [removed]\x00"
	var sent string
	model := looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		sent = req.Messages[0].Text()
		says("ok")(ctx, req, yield)
	})
	b, _ := onInput(model, hooks.BeforeInputResult{Action: hooks.ActionTransform, Text: &text})
	id := b.Session(t)
	run, err := say(t, b, id, "my key is hunter2", "k")
	if err != nil {
		t.Fatal(err)
	}
	b.Advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: run.RunID, Ticket: 1})
	events, s := checked(t, b, id)
	const want = "my key is [removed]\uFFFD"
	if got := s.Messages[0].Text(); got != want || sent != want {
		t.Errorf("stored %q, sent %q; want %q", got, sent, want)
	}
	for _, e := range events {
		if strings.Contains(string(e.Payload), "hunter2") {
			t.Errorf("event %d has the original: %s", e.Seq, e.Payload)
		}
	}
	rec := ledger(b, id)
	if len(rec) != 1 || rec[0].Action != hooks.ActionTransform || rec[0].RunID != "" || !reflect.DeepEqual(rec[0].FieldsChanged, []string{"text"}) || rec[0].EventSeq != 4 {
		t.Errorf("ledger %+v", rec)
	}
	again, err := say(t, b, id, "my key is hunter2", "k")
	if err != nil || !again.Repeated || again.RunID != run.RunID {
		t.Errorf("repeated: %+v, %v; want the same run", again, err)
	}
}

func TestInputBlockedLeavesNothingOfTheText(t *testing.T) {
	t.Parallel()
	b, asked := onInput(says("no"), hooks.BeforeInputResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "secret", Text: "no keys\x00 here"}})
	id := b.Session(t)
	_, err := say(t, b, id, "my key is hunter2", "")
	var blocked *loop.BlockedError
	if !errors.As(err, &blocked) || !errors.Is(err, loop.ErrBlocked) || blocked.ReasonCode != "secret" || blocked.Reason != "no keys\uFFFD here" || asked.Load() != 1 {
		t.Errorf("%v; want a BlockedError with the hook's reason", err)
	}
	events, s := checked(t, b, id)
	got := only[event.InputBlocked](t, events)
	if got.Input != digestOf("my key is hunter2") || got.ReasonCode != "secret" || got.Agent != "demo" || len(s.Messages) != 0 || len(s.Runs) != 0 {
		t.Errorf("event %+v, state %+v; want the digest and nothing else", got, s)
	}
	if all := fmt.Sprintf("%s %+v", events[1].Payload, ledger(b, id)); strings.Contains(all, "hunter2") {
		t.Errorf("the log has the text: %s", all)
	}
	if rec := ledger(b, id); len(rec) != 1 || rec[0].Action != hooks.ActionBlock || rec[0].ReasonCode != "secret" || rec[0].EventSeq != 2 {
		t.Errorf("ledger %+v", rec)
	}
	goesOnWithout(t, b, id, "hunter2")
}

// TestInputRefusedWithAKey: a request that was refused is repeated. What was
// decided about it is not decided twice.
func TestALongReasonIsCut(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("no"))
	b.Use(hooks.Hooks{BeforeInput: hooks.Named("wordy", "1", func(context.Context, hooks.BeforeInput) (hooks.BeforeInputResult, error) {
		return hooks.BeforeInputResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Text: strings.Repeat("é", 100_000)}}, nil
	})})
	id := b.Session(t)
	_, err := say(t, b, id, "hi", "")
	var blocked *loop.BlockedError
	if !errors.As(err, &blocked) || len(blocked.Reason) > 2000 || len(blocked.Reason) < 1900 {
		t.Fatalf("%T with %d bytes", err, len(blocked.Reason))
	}
	if got := only[event.InputBlocked](t, b.Events(t, id)); got.Reason != blocked.Reason {
		t.Error("the event says something else than the error")
	}
}

func TestInputRefusedWithAKey(t *testing.T) {
	t.Parallel()
	t.Run("BlockedStaysBlocked", func(t *testing.T) {
		t.Parallel()
		b, asked := onInput(says("no"), hooks.BeforeInputResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "secret", Text: "no"}})
		id := b.Session(t)
		for range 3 {
			_, err := say(t, b, id, "hunter2", "k")
			var blocked *loop.BlockedError
			if !errors.As(err, &blocked) || *blocked != (loop.BlockedError{ReasonCode: "secret", Reason: "no"}) {
				t.Errorf("%v; want the same BlockedError each time", err)
			}
		}
		events, _ := checked(t, b, id)
		only[event.InputBlocked](t, events)
		if asked.Load() != 1 {
			t.Errorf("asked %d times; want once", asked.Load())
		}
		if _, err := say(t, b, id, "another text", "k"); !errors.Is(err, loop.ErrKeyReused) {
			t.Errorf("the key for another text: %v; want ErrKeyReused", err)
		}
	})
	t.Run("RejectedMayComeAgain", func(t *testing.T) {
		t.Parallel()
		b, asked := onInput(says("ok"), hooks.BeforeInputResult{Action: hooks.ActionContinue})
		id := b.Session(t)
		first := b.Start(t, id, "hi")
		for range 2 {
			if _, err := say(t, b, id, "and?", "k"); !errors.Is(err, loop.ErrBusy) {
				t.Errorf("%v; want ErrBusy", err)
			}
		}
		b.Advance(t, first)
		run, err := say(t, b, id, "and?", "k")
		if err != nil || run.Repeated || run.RunID == "" {
			t.Errorf("once the session is free: %+v, %v; want a run", run, err)
		}
		events, _ := checked(t, b, id)
		if n := len(payloads[event.InputRejected](t, events)); n != 2 || asked.Load() != 4 {
			t.Errorf("%d rejections, asked %d times; want 2 and 4", n, asked.Load())
		}
	})
	t.Run("ConcurrentlyRejectedIsOneDecision", func(t *testing.T) {
		t.Parallel()
		const clients = 8
		var all, ended sync.WaitGroup
		all.Add(clients)
		b := looptest.NewBench(looptest.NewLog(), says("ok"))
		id := b.Session(t)
		first := b.Start(t, id, "hi")
		b.Use(hooks.Hooks{BeforeInput: func(context.Context, hooks.BeforeInput) (hooks.BeforeInputResult, error) {
			all.Done()
			all.Wait()
			return hooks.BeforeInputResult{Action: hooks.ActionContinue}, nil
		}})
		for range clients {
			ended.Go(func() {
				var busy *loop.BusyError
				if _, err := say(t, b, id, "and?", "k"); !errors.As(err, &busy) || busy.ActiveRunID != first.RunID {
					t.Errorf("%v; want a BusyError for %s", err, first.RunID)
				}
			})
		}
		ended.Wait()
		events, _ := checked(t, b, id)
		only[event.InputRejected](t, events)
	})
	t.Run("ConcurrentlyIsOneDecision", func(t *testing.T) {
		t.Parallel()
		for _, action := range []hooks.Action{hooks.ActionBlock, hooks.ActionHandled, hooks.ActionContinue} {
			var mu sync.Mutex
			var all sync.WaitGroup
			inputs := map[string]int{}
			const clients = 8
			all.Add(clients)
			b := looptest.NewBench(looptest.NewLog(), says("ok"))
			b.Use(hooks.Hooks{BeforeInput: func(_ context.Context, in hooks.BeforeInput) (hooks.BeforeInputResult, error) {
				mu.Lock()
				inputs[in.InputID]++
				mu.Unlock()
				all.Done()
				all.Wait() // nobody has committed when the last one is asked
				return hooks.BeforeInputResult{Action: action}, nil
			}})
			id := b.Session(t)
			var ended sync.WaitGroup
			for range clients {
				ended.Go(func() {
					if _, err := say(t, b, id, "hi", "k"); errors.Is(err, loop.ErrBlocked) != (action == hooks.ActionBlock) || err != nil && !errors.Is(err, loop.ErrBlocked) {
						t.Errorf("%s: %v", action, err)
					}
				})
			}
			ended.Wait()
			checked(t, b, id)
			if rec := ledger(b, id); len(rec) != 1 || len(inputs) != 1 || inputs[rec[0].Subject] != clients {
				t.Errorf("%s: inputs %v, ledger %v; want one input and one decision", action, inputs, rows(rec))
			}
		}
	})
}

func TestInputForABusySessionKeepsItsDecision(t *testing.T) {
	t.Parallel()
	b, asked := onInput(says("ok"), hooks.BeforeInputResult{Action: hooks.ActionContinue})
	id := b.Session(t)
	first := b.Start(t, id, "hi")
	_, err := say(t, b, id, "hunter2", "")
	var busy *loop.BusyError
	if !errors.As(err, &busy) || busy.ActiveRunID != first.RunID || asked.Load() != 2 {
		t.Errorf("%v, asked %d times; want a BusyError after the gate", err, asked.Load())
	}
	events, s := checked(t, b, id)
	got := only[event.InputRejected](t, events)
	if got.Input != digestOf("hunter2") || got.Policy != "reject" || got.ActiveRunID != first.RunID || len(s.Messages) != 1 {
		t.Errorf("event %+v", got)
	}
	if rec := ledger(b, id); len(rec) != 2 || rec[1].Subject != got.InputID || rec[1].EventSeq != events[len(events)-1].Seq {
		t.Errorf("ledger %v", rows(rec))
	}
	quiet(b)
	if _, err := say(t, b, id, "hunter2", ""); !errors.Is(err, loop.ErrBusy) || len(b.Events(t, id)) != len(events) {
		t.Errorf("without a gate: %v; want ErrBusy and nothing stored", err)
	}
}

// TestInputGateComesBeforeTheRun: while a slow gate is asked there is no run,
// whatever the workers do.
func TestInputGateComesBeforeTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var requests, charges atomic.Int64
		model := looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			requests.Add(1)
			calls("charge")(ctx, req, yield)
		})
		log := looptest.NewLog()
		b := looptest.NewBench(log, model, looptest.Tool{Name: "charge", Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
			charges.Add(1)
			return loop.ToolOutput{}, nil
		}})
		b.Use(hooks.Hooks{BeforeInput: hooks.Named("slow", "1", func(ctx context.Context, _ hooks.BeforeInput) (hooks.BeforeInputResult, error) {
			pause(ctx, 2*time.Second)
			return hooks.BeforeInputResult{Action: hooks.ActionBlock}, nil
		}, hooks.TimeLimit(time.Minute))})
		id := b.Session(t)
		worker, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() {
			for {
				j, err := log.TakeJob(worker)
				if err != nil {
					return
				}
				_ = b.Engine.Advance(worker, j, loop.Holder{WorkerID: looptest.NewID()})
			}
		})
		answer := make(chan error, 1)
		ended.Go(func() {
			_, err := say(t, b, id, "hunter2", "")
			answer <- err
		})
		pause(t.Context(), time.Second)
		if events := b.Events(t, id); len(events) != 1 {
			t.Errorf("while the gate is asked: %v; want nothing", looptest.Types(events))
		}
		if err := <-answer; !errors.Is(err, loop.ErrBlocked) {
			t.Errorf("%v; want ErrBlocked", err)
		}
		synctest.Wait()
		stop()
		ended.Wait()
		if requests.Load() != 0 || charges.Load() != 0 {
			t.Errorf("%d model calls, %d charges; want none", requests.Load(), charges.Load())
		}
		_, s := checked(t, b, id)
		if len(s.Runs) != 0 {
			t.Errorf("runs %+v", s.Runs)
		}
	})
}

// TestInputIsAskedOnceOverAConflict: the session moves on while the gate is
// asked.
func TestInputIsAskedOnceOverAConflict(t *testing.T) {
	t.Parallel()
	b, asked := onInput(says("ok"), hooks.BeforeInputResult{Action: hooks.ActionContinue})
	id := b.Session(t)
	log := b.Log.(*looptest.Log)
	var once sync.Once
	b.Commands.Log = &hookedLog{Log: log, before: func(a loop.Append) {
		once.Do(func() { // somebody else's run comes first, and its decision too
			other := *b.Commands
			other.Log = log
			if _, err := other.StartRun(t.Context(), loop.StartRun{TenantID: looptest.Tenant, SessionID: id, Text: "me first", Actor: looptest.Tester}); err != nil {
				t.Error(err)
			}
		})
	}}
	if _, err := say(t, b, id, "hi", ""); !errors.Is(err, loop.ErrBusy) {
		t.Errorf("%v; want ErrBusy", err)
	}
	checked(t, b, id)
	if rec := ledger(b, id); len(rec) != 2 || asked.Load() != 2 {
		t.Errorf("ledger %v, asked %d times; want each input once", rows(rec), asked.Load())
	}
}

func TestInputGateSeesWhatIsValidOnly(t *testing.T) {
	t.Parallel()
	var seen []hooks.BeforeInput
	b := looptest.NewBench(looptest.NewLog(), says("ok"))
	b.Use(hooks.Hooks{BeforeInput: func(_ context.Context, in hooks.BeforeInput) (hooks.BeforeInputResult, error) {
		seen = append(seen, in)
		return hooks.BeforeInputResult{Action: hooks.ActionContinue}, nil
	}})
	id := b.Session(t)
	if _, err := say(t, b, id, " \n", ""); !errors.Is(err, loop.ErrInvalid) {
		t.Errorf("blank: %v", err)
	}
	if _, err := say(t, b, looptest.NewID(), "hi", ""); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("no session: %v", err)
	}
	if len(seen) != 0 {
		t.Errorf("the gate saw %+v", seen)
	}
	if _, err := say(t, b, id, "a\x00b", ""); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 1 || seen[0].Text != "a\uFFFDb" || seen[0].Agent != "demo" || seen[0].SessionID != id || seen[0].TenantID != looptest.Tenant || seen[0].InputID == "" {
		t.Errorf("the gate saw %+v", seen)
	}
}

// TestInputTransformedIntoNothingIsRefused: what a hook makes of a text has to
// pass the same check as the text.
func TestInputTransformedIntoNothingIsRefused(t *testing.T) {
	t.Parallel()
	text := " "
	b, _ := onInput(says("no"), hooks.BeforeInputResult{Action: hooks.ActionTransform, Text: &text})
	id := b.Session(t)
	if _, err := say(t, b, id, "hi", ""); !errors.Is(err, loop.ErrBlocked) {
		t.Errorf("%v; want ErrBlocked", err)
	}
	if rec := ledger(b, id); len(rec) != 1 || rec[0].Outcome != hooks.OutcomeUnappliable || rec[0].Action != hooks.ActionBlock {
		t.Errorf("ledger %v", rows(rec))
	}
	checked(t, b, id)
}

// TestInputWithAKeyThatHasRunOut is another input, whatever became of the first
// one.
func TestInputWithAKeyThatHasRunOut(t *testing.T) {
	t.Parallel()
	for _, action := range []hooks.Action{hooks.ActionContinue, hooks.ActionHandled, hooks.ActionBlock} {
		synctest.Test(t, func(t *testing.T) {
			b, asked := onInput(says("hi"), hooks.BeforeInputResult{Action: action})
			id := b.Session(t)
			for range 2 {
				run, err := say(t, b, id, "hi", "k")
				if run.Repeated || errors.Is(err, loop.ErrBlocked) != (action == hooks.ActionBlock) {
					t.Errorf("%s: %+v, %v", action, run, err)
				}
				if run.RunID != "" {
					b.Advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: run.RunID, Ticket: 1})
				}
				pause(t.Context(), 24*time.Hour+time.Second)
			}
			checked(t, b, id)
			if asked.Load() != 2 || len(ledger(b, id)) != 2 {
				t.Errorf("%s: asked %d times, ledger %v; want each day once", action, asked.Load(), rows(ledger(b, id)))
			}
		})
	}
}
