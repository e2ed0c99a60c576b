package loop_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestWhatWasReplacedMeanwhile: what hooks said of the message is recorded, once
// for one request, and it starts nothing.
func TestWhatWasReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (b *looptest.Bench, request func() error, meanwhile func()) {
		b = looptest.NewBench(looptest.NewLog(), says("ok"))
		id := b.Session(t)
		first := b.Start(t, id, "hi")
		from := b.Run(t, first).MessageID
		b.Advance(t, first)
		other := *b.Commands
		request = func() error {
			_, err := b.Commands.StartRun(t.Context(), loop.StartRun{
				TenantID: looptest.Tenant, SessionID: id, ReplaceFrom: from, IdempotencyKey: "k", Actor: looptest.Tester,
			})
			var invalid *loop.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "replace_from" {
				t.Errorf("%v; want the field replace_from named", err)
			}
			return err
		}
		return b, request, func() {
			run, err := (&other).StartRun(t.Context(), loop.StartRun{
				TenantID: looptest.Tenant, SessionID: id, ReplaceFrom: from, Text: "faster", Actor: looptest.Tester,
			})
			if err != nil {
				t.Error(err)
			}
			b.Advance(t, job(id, run))
		}
	}
	asks := func(b *looptest.Bench, calls ...func()) {
		asked := 0
		h := hooks.Hooks{BeforeInput: hooks.Named("input", "1", func(context.Context, hooks.BeforeInput) (hooks.BeforeInputResult, error) {
			asked++
			calls[asked-1]()
			return hooks.BeforeInputResult{Action: hooks.ActionContinue}, nil
		})}
		b.Commands.Hooks, b.Commands.Asker = h, &hooks.Asker{HookSet: h.Set().Digest}
	}
	rejected := func(t *testing.T, b *looptest.Bench, sessionID string) {
		t.Helper()
		events, s := checked(t, b, sessionID)
		got := only[event.InputRejected](t, events)
		if got.Policy != "replace_from" || got.ActiveRunID != "" || got.Input != digestOf("hi") || len(ledger(b, sessionID)) != 1 {
			t.Errorf("rejected %+v, ledger %v", got, rows(ledger(b, sessionID)))
		}
		if s.Messages[0].Text() != "faster" || len(s.Messages) != 2 {
			t.Errorf("the conversation is %+v", s.Messages)
		}
	}
	session := func(b *looptest.Bench) string { return b.Log.(*looptest.Log).Jobs()[0].SessionID }
	t.Run("WhileAHookIsAsked", func(t *testing.T) {
		t.Parallel()
		b, request, meanwhile := setup(t)
		asks(b, meanwhile)
		_ = request()
		rejected(t, b, session(b))
		_ = request() // who comes again learns the same, and nobody is asked
		rejected(t, b, session(b))
	})
	t.Run("WhileTwoOfOneRequestAreAsked", func(t *testing.T) {
		t.Parallel()
		b, request, meanwhile := setup(t)
		asks(b, func() { _ = request() }, meanwhile)
		_ = request()
		rejected(t, b, session(b))
	})
	t.Run("WithNobodyToAsk", func(t *testing.T) {
		t.Parallel()
		b, request, meanwhile := setup(t)
		var once sync.Once
		b.Commands.Log = &hookedLog{Log: b.Log.(*looptest.Log), before: func(loop.Append) { once.Do(meanwhile) }}
		_ = request()
		if events, _ := checked(t, b, session(b)); len(payloads[event.InputRejected](t, events)) != 0 {
			t.Errorf("log %v; want nothing of it", looptest.Types(events))
		}
	})
}

func TestOneOfRacingReplacementsWins(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("ok"))
	id := b.Session(t)
	first := b.Start(t, id, "hi")
	b.Advance(t, first)
	_, s := checked(t, b, id)
	var wg sync.WaitGroup
	won := make([]bool, 24)
	for i := range won {
		wg.Go(func() {
			from := ""
			if i%3 > 0 {
				from = s.Messages[i%3-1].ID
			}
			text := ""
			if i%3 != 2 {
				text = "new"
			}
			_, err := instead(t, b, id, from, text)
			if won[i] = err == nil; err != nil && !errors.Is(err, loop.ErrBusy) && !errors.Is(err, loop.ErrInvalid) {
				t.Errorf("%v; want ErrBusy, or that the message is gone", err)
			}
		})
	}
	wg.Wait()
	n := 0
	for _, w := range won {
		if w {
			n++
		}
	}
	events, _ := checked(t, b, id)
	if n != 1 || len(payloads[event.RunCreated](t, events)) != 2 {
		t.Errorf("%d won, log %v; want one", n, looptest.Types(events))
	}
	goesOnFrom := loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: events[len(events)-1].RunID, Ticket: 1}
	play(b, strict(t, says("ok")))
	b.Advance(t, goesOnFrom)
	goesOn(t, b, id)
}

// TestReplacingUnderARunIsRefused: whatever the run is doing.
func TestReplacingUnderARunIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), paced(stalls(nil, looptest.Text("on"))))
		id := b.Session(t)
		j := b.Start(t, id, "hi")
		refused := func(when string) {
			t.Helper()
			var busy *loop.BusyError
			if _, err := instead(t, b, id, b.Run(t, j).MessageID, "new"); !errors.As(err, &busy) || busy.ActiveRunID != j.RunID {
				t.Errorf("%s: %v; want a BusyError for %s", when, err, j.RunID)
			}
		}
		refused("queued")
		w := work(t, b, j)
		synctest.Wait()
		refused("in a model call")
		cancelledNow(t, b, j, w, 0)
		run, err := instead(t, b, id, b.Run(t, j).MessageID, "new")
		if err != nil {
			t.Fatal(err)
		}
		play(b, strict(t, says("ok")))
		b.Advance(t, job(id, run))
		checked(t, b, id)
	})
}
