package looptest

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// TestLog is the conformance suite of loop.Log. open returns an empty log;
// its cleanup is the caller's. The log has SetClock besides, which stops its
// clock at a time.
//
//nolint:tparallel // its caller is the top-level test and calls Parallel
func TestLog(t *testing.T, open func(t *testing.T) loop.Log) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, loop.Log){
		"AppendNumbersEventsAndKeepsTheirBytes":      testAppend,
		"AppendOnOldSeqConflictsAndWritesNothing":    testConflict,
		"RepeatedAppendIsTheFirstOne":                testRepeat,
		"OldEpochIsFencedEvenWithFreshSeq":           testFence,
		"ForeignAndMalformedIDsDoNotExist":           testForeign,
		"ExternalIDIsUniqueUntilDeleted":             testExternalID,
		"LoadEqualsFoldOfTheLog":                     testLoad,
		"LoadSeesDeltasOfAnOpenCall":                 testLoadOpenCall,
		"IdempotencyKeyFindsItsRun":                  testRequest,
		"IdempotencyKeyFindsItsNewestUse":            testRequestUses,
		"EventsPageWithoutHoleOrRepeat":              testPages,
		"WatchSignalsAnAppend":                       testWatch,
		"RacingWritersTakeTurns":                     testRace,
		"EndAndNextStartKeepOneActiveRun":            testActive,
		"ResultsStandInCallOrderWhateverEndsFirst":   testResultOrder,
		"AppendToADeletedSessionIsTheCommandsMatter": testDeleted,
		"WhatClientsSayOfASessionIsMerged":           testDescription,
		"DescriptionsOfOneAppendAddUp":               testDescriptionsInOneAppend,
		"ReplacedMessagesLeaveTheConversation":       testReplace,
		"AFailedRunIsTakenUpAgain":                   testRetry,
		"OneOfRacingRetriesAndStartsWins":            testRetryRaces,
		"EnqueuedRunsBeginInTurn":                    testEnqueue,
		"AnEnqueuedRunMayNeverBegin":                 testWithdraw,
		"RacingMessagesAreEnqueuedOnceEach":          testEnqueueRaces,
		"AnInterruptEndsWhatNobodyHolds":             testInterrupt,
		"ARolledBackRunLeavesTheConversation":        testRollback,
		"AnAnswerInTimeHoldsAndALateOneDoesNot":      testExpiry,
		"ALateAnswerWritesNothing":                   testExpiredAppend,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func talk() *Bench {
	return NewBench(nil, Answers(
		Answer(Reasoning("hm"), Text("let me "), Text("look"), ToolCall("c1", "look", `{"q": 1}`), ToolCall("c1", "look", `{}`), Finish(stream.FinishToolCalls)),
		Answer(Text("done"), Finish(stream.FinishStop)),
	), Says("look", "seen"))
}

func on(log loop.Log) *Bench {
	b := talk()
	b.Log, b.Commands.Log, b.Engine.Log = log, log, log
	return b
}

func said(t *testing.T, sessionID, text string) event.Event {
	t.Helper()
	return made(t, sessionID, event.MessageCreated{
		MessageID: NewID(), Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: text}},
	})
}

func made(t *testing.T, sessionID string, p event.Payload) event.Event {
	t.Helper()
	e, err := event.New(event.Scope{SessionID: sessionID, At: time.Now(), Actor: Tester}, p)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func testAppend(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	in := []event.Event{said(t, id, "a <b> & \u2028 é"), said(t, id, "two")}
	got, err := log.Append(t.Context(), loop.Append{ID: NewID(), TenantID: Tenant, SessionID: id, Expected: 1, Events: in})
	if err != nil || got.LastSeq != 3 {
		t.Fatalf("append: last seq %d, %v; want 3", got.LastSeq, err)
	}
	stored := b.Events(t, id)[1:]
	for i := range stored {
		if stored[i].Seq != int64(i+2) || string(stored[i].Payload) != string(in[i].Payload) {
			t.Errorf("event %d: seq %d payload %s; want seq %d payload %s", i, stored[i].Seq, stored[i].Payload, i+2, in[i].Payload)
		}
		if !stored[i].At.Equal(in[i].At) || stored[i].Actor != in[i].Actor || stored[i].SessionID != id {
			t.Errorf("event %d: stored %+v; want %+v", i, stored[i], in[i])
		}
	}
	if !reflect.DeepEqual(normal(got.Events), normal(stored)) {
		t.Errorf("Append returned %+v, Events %+v", got.Events, stored)
	}
}

func normal(events []event.Event) []event.Event {
	out := append([]event.Event(nil), events...)
	for i := range out {
		out[i].At = out[i].At.UTC()
	}
	return out
}

func testConflict(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	for _, expected := range []int64{0, 2, 7} {
		_, err := log.Append(t.Context(), loop.Append{
			ID: NewID(), TenantID: Tenant, SessionID: id, Expected: expected, Events: []event.Event{said(t, id, "x")},
		})
		if !errors.Is(err, loop.ErrConflict) {
			t.Errorf("append at %d: %v; want ErrConflict", expected, err)
		}
	}
	if n := len(b.Events(t, id)); n != 1 {
		t.Errorf("%d events; want 1", n)
	}
}

func testRepeat(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	a := loop.Append{ID: NewID(), TenantID: Tenant, SessionID: id, Expected: 1, Events: []event.Event{said(t, id, "x"), said(t, id, "y")}}
	first, err := log.Append(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	other := loop.Append{ID: NewID(), TenantID: Tenant, SessionID: id, Expected: 3, Events: []event.Event{said(t, id, "z")}}
	if _, err := log.Append(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	again, err := log.Append(t.Context(), a)
	if err != nil || !reflect.DeepEqual(normal(again.Events), normal(first.Events)) || again.LastSeq != first.LastSeq {
		t.Errorf("repeat: %+v, %v; want %+v", again, err, first)
	}
	if n := len(b.Events(t, id)); n != 4 {
		t.Errorf("%d events; want 4", n)
	}
}

func testFence(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	j := b.Start(t, id, "hi")
	claimed := claim(t, b, j, 1)
	if _, err := b.Commands.ReleaseDead(t.Context(), loop.Release{
		TenantID: Tenant, SessionID: id, RunID: j.RunID, WorkerID: claimed, Now: time.Now(), Actor: Tester,
	}); err != nil {
		t.Fatal(err)
	}
	h, err := log.Head(t.Context(), Tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	_, err = log.Append(t.Context(), loop.Append{
		ID: NewID(), TenantID: Tenant, SessionID: id, Expected: h.LastSeq, Epoch: 1, Events: []event.Event{said(t, id, "zombie")},
	})
	if !errors.Is(err, loop.ErrLeaseLost) {
		t.Errorf("zombie with a fresh seq: %v; want ErrLeaseLost", err)
	}
	if h2, _ := log.Head(t.Context(), Tenant, id); h2.LastSeq != h.LastSeq {
		t.Errorf("the zombie wrote: last seq %d; want %d", h2.LastSeq, h.LastSeq)
	}
}

// claim appends a claim by hand and returns the worker's id.
func claim(t *testing.T, b *Bench, j loop.Job, epoch int64) string {
	t.Helper()
	h, err := b.Log.Head(t.Context(), Tenant, j.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	worker := NewID()
	write(t, b, j, loop.Append{Expected: h.LastSeq}, 0, event.RunStarted{WorkerID: worker, Epoch: epoch, Ticket: j.Ticket})
	return worker
}

func write(t *testing.T, b *Bench, j loop.Job, a loop.Append, turn int, payloads ...event.Payload) {
	t.Helper()
	a.ID, a.TenantID, a.SessionID = NewID(), Tenant, j.SessionID
	for _, p := range payloads {
		e, err := event.New(event.Scope{SessionID: j.SessionID, RunID: j.RunID, Turn: turn, At: time.Now(), Actor: Tester}, p)
		if err != nil {
			t.Fatal(err)
		}
		a.Events = append(a.Events, e)
	}
	if _, err := b.Log.Append(t.Context(), a); err != nil {
		t.Fatalf("append %s: %v", payloads[0].EventType(), err)
	}
}

func testForeign(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	j := b.Start(t, id, "hi")
	ctx := t.Context()
	for _, who := range []struct{ tenant, session, run string }{
		{"other", id, j.RunID}, {Tenant, NewID(), j.RunID}, {Tenant, "nope", "nope"}, {Tenant, "", ""}, {Tenant, id, NewID()}, {Tenant, id, "nope"},
	} {
		known := who.tenant == Tenant && who.session == id
		errs := map[string]error{}
		_, errs["Load"] = log.Load(ctx, who.tenant, who.session, who.run)
		if !known {
			_, errs["Head"] = log.Head(ctx, who.tenant, who.session)
			_, errs["Events"] = log.Events(ctx, who.tenant, who.session, 0, 10)
			_, _, errs["Request"] = log.Request(ctx, who.tenant, who.session, "k")
			_, errs["Append"] = log.Append(ctx, loop.Append{
				ID: NewID(), TenantID: who.tenant, SessionID: who.session, Expected: 1, Events: []event.Event{said(t, who.session, "x")},
			})
		}
		for call, err := range errs {
			if !errors.Is(err, loop.ErrNotFound) {
				t.Errorf("%s as %+v: %v; want ErrNotFound", call, who, err)
			}
		}
	}
	if _, err := log.HeadByExternalID(ctx, Tenant, "nobody"); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("HeadByExternalID: %v; want ErrNotFound", err)
	}
}

func testExternalID(t *testing.T, log loop.Log) {
	b := on(log)
	create := func() loop.SessionRef {
		s, err := b.Commands.CreateSession(t.Context(), loop.CreateSession{TenantID: Tenant, ExternalID: "mine", Actor: Tester})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var wg sync.WaitGroup
	made := make([]loop.SessionRef, 8)
	for i := range made {
		wg.Go(func() { made[i] = create() })
	}
	wg.Wait()
	created := 0
	for _, m := range made {
		if m.SessionID != made[0].SessionID {
			t.Errorf("two sessions for one external id: %v", made)
		}
		if m.Created {
			created++
		}
	}
	if created != 1 {
		t.Errorf("created %d times; want once", created)
	}
	if err := b.Commands.DeleteSession(t.Context(), Tenant, made[0].SessionID, Tester); err != nil {
		t.Fatal(err)
	}
	if s := create(); !s.Created || s.SessionID == made[0].SessionID {
		t.Errorf("after the delete: %+v; want a new session", s)
	}
}

func testRace(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	const writers, each = 8, 5
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for n := 0; n < each; {
				h, err := log.Head(t.Context(), Tenant, id)
				if err != nil {
					t.Errorf("head: %v", err)
					return
				}
				_, err = log.Append(t.Context(), loop.Append{
					ID: NewID(), TenantID: Tenant, SessionID: id, Expected: h.LastSeq,
					Events: []event.Event{said(t, id, "a"), said(t, id, "b")},
				})
				switch {
				case err == nil:
					n++
				case !errors.Is(err, loop.ErrConflict):
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	events := b.Events(t, id)
	if len(events) != 1+2*writers*each {
		t.Errorf("%d events; want %d", len(events), 1+2*writers*each)
	}
	for i, e := range events {
		if e.Seq != int64(i+1) {
			t.Fatalf("event %d has seq %d", i, e.Seq)
		}
	}
}

func testActive(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	var wg sync.WaitGroup
	started := make([]error, 10)
	for i := range started {
		wg.Go(func() {
			_, started[i] = b.Commands.StartRun(t.Context(), loop.StartRun{TenantID: Tenant, SessionID: id, Text: "hi", Actor: Tester})
		})
	}
	wg.Wait()
	ok := 0
	for _, err := range started {
		switch {
		case err == nil:
			ok++
		case !errors.Is(err, loop.ErrBusy):
			t.Errorf("start: %v; want ErrBusy", err)
		}
	}
	h, err := log.Head(t.Context(), Tenant, id)
	if ok != 1 || err != nil || h.ActiveRunID == "" {
		t.Fatalf("%d runs started, head %+v, %v; want one active run", ok, h, err)
	}
	b.Advance(t, loop.Job{TenantID: Tenant, SessionID: id, RunID: h.ActiveRunID, Ticket: 1})
	if h, _ = log.Head(t.Context(), Tenant, id); h.ActiveRunID != "" {
		t.Errorf("active run %s after its end", h.ActiveRunID)
	}
	b.Advance(t, b.Start(t, id, "again"))
}

func testResultOrder(t *testing.T, log loop.Log) {
	second := make(chan struct{})
	b := NewBench(log, Answers(
		Answer(ToolCall("x", "slow", `{}`), ToolCall("y", "fast", `{}`), Finish(stream.FinishToolCalls)),
		Answer(Text("ok"), Finish(stream.FinishStop)),
	), Tool{Name: "slow", Run: func(ctx context.Context, _ loop.ToolInput) (loop.ToolOutput, error) {
		select {
		case <-second:
		case <-ctx.Done():
			return loop.ToolOutput{}, ctx.Err()
		}
		return loop.ToolOutput{Content: "slow"}, nil
	}}, Says("fast", "fast"))
	id := b.Session(t)
	j := b.Start(t, id, "go")
	wake, stop := log.Watch(id)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		for range wake {
			for _, e := range b.Events(t, id) {
				if e.Type == event.TypeToolResult {
					close(second)
					return
				}
			}
		}
	})
	b.Advance(t, j)
	wg.Wait()
	s, err := log.Load(t.Context(), Tenant, id, j.RunID)
	if err != nil {
		t.Fatal(err)
	}
	var results []string
	for _, m := range s.Messages {
		if m.Role == hooks.RoleTool {
			results = append(results, m.Parts[0].ToolResult.Content)
		}
	}
	if !reflect.DeepEqual(results, []string{"slow", "fast"}) {
		t.Errorf("results in history: %v; want call order", results)
	}
}

func testDeleted(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	j := b.Start(t, id, "hi")
	var busy *loop.BusyError
	if err := b.Commands.DeleteSession(t.Context(), Tenant, id, Tester); !errors.As(err, &busy) || busy.ActiveRunID != j.RunID {
		t.Errorf("delete with an active run: %v; want a BusyError for %s", err, j.RunID)
	}
	b.Advance(t, j)
	if err := b.Commands.DeleteSession(t.Context(), Tenant, id, Tester); err != nil {
		t.Fatal(err)
	}
	if h, err := log.Head(t.Context(), Tenant, id); err != nil || !h.Deleted {
		t.Errorf("head %+v, %v; want it marked deleted", h, err)
	}
	if err := b.Commands.DeleteSession(t.Context(), Tenant, id, Tester); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("second delete: %v; want ErrNotFound", err)
	}
	if _, err := b.Commands.StartRun(t.Context(), loop.StartRun{TenantID: Tenant, SessionID: id, Text: "x", Actor: Tester}); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("start on a deleted session: %v; want ErrNotFound", err)
	}
}
