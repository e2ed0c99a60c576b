package looptest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
)

// The part of the conformance suite that is about reading a log.

func testLoad(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	first := b.Start(t, id, "one")
	b.Advance(t, first)
	second := b.Start(t, id, "two")
	b.Advance(t, second)
	whole := loop.FoldAll(loop.State{}, b.Events(t, id))
	for _, j := range []loop.Job{first, second} {
		got, err := log.Load(t.Context(), Tenant, id, j.RunID)
		if err != nil {
			t.Fatal(err)
		}
		want := whole
		r, _ := whole.Run(j.RunID)
		want.Runs = []loop.Run{r}
		if r.Status != loop.RunCompleted || len(r.Turns) != 2 || len(r.Turns[0].Calls) != 2 {
			t.Fatalf("the run did not do what the test needs: %+v", r)
		}
		same(t, got, want)
	}
}

func same(t *testing.T, got, want loop.State) {
	t.Helper()
	for _, s := range []*loop.State{&got, &want} {
		for i := range s.Runs {
			s.Runs[i].CreatedAt, s.Runs[i].EndedAt = s.Runs[i].CreatedAt.UTC(), s.Runs[i].EndedAt.UTC()
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("loaded state differs\n got %+v\nwant %+v", got, want)
	}
}

func testLoadOpenCall(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	j := b.Start(t, id, "one")
	claim(t, b, j, 1)
	h, _ := log.Head(t.Context(), Tenant, id)
	write(t, b, j, loop.Append{Expected: h.LastSeq, Epoch: 1}, 1,
		event.TurnStarted{}, event.ModelRequested{Attempt: 1, Model: "m", MessageIDs: []string{}},
		event.AssistantDelta{Attempt: 1, Lane: stream.LaneText, BlockID: "0", Text: "void"},
		event.AssistantDiscarded{Attempt: 1, Reason: "interrupted"},
		event.ModelRequested{Attempt: 2, Model: "m", MessageIDs: []string{}},
		event.AssistantDelta{Attempt: 2, Lane: stream.LaneText, BlockID: "0", Text: "so "},
		event.AssistantDelta{Attempt: 2, Lane: stream.LaneText, BlockID: "0", Text: "far"},
	)
	got, err := log.Load(t.Context(), Tenant, id, j.RunID)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, loop.FoldAll(loop.State{}, b.Events(t, id)))
	r, _ := got.Run(j.RunID)
	if turn, _ := r.Turn(); !slices.Equal(turn.Shown.Blocks(), []loop.PartialBlock{{Lane: stream.LaneText, BlockID: "0", Text: "so far"}}) {
		t.Errorf("shown %+v; want «so far»", turn.Shown.Blocks())
	}
}

func testRequest(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	start := func(session, key, text string) (loop.StartedRun, error) {
		return b.Commands.StartRun(t.Context(), loop.StartRun{TenantID: Tenant, SessionID: session, Text: text, IdempotencyKey: key, Actor: Tester})
	}
	first, err := start(id, "k", "hello")
	if err != nil {
		t.Fatal(err)
	}
	again, err := start(id, "k", "hello")
	want := first
	want.Repeated = true
	if err != nil || again != want {
		t.Errorf("repeat: %+v, %v; want %+v", again, err, want)
	}
	if _, err := start(id, "k", "other"); !errors.Is(err, loop.ErrKeyReused) {
		t.Errorf("other body: %v; want ErrKeyReused", err)
	}
	if _, err := start(id, "k2", "hello"); !errors.Is(err, loop.ErrBusy) {
		t.Errorf("other key on a busy session: %v; want ErrBusy", err)
	}
	if other, err := start(b.Session(t), "k", "other"); err != nil || other.Repeated {
		t.Errorf("same key in another session: %+v, %v; want a new run", other, err)
	}
}

func testRequestUses(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	digest := event.Digest{SHA256: "00ff", Bytes: 1}
	for seq, c := range []struct {
		use  event.Payload
		want loop.Request
	}{
		{event.InputRejected{InputID: NewID(), Input: digest, Policy: "reject", ActiveRunID: "busy", IdempotencyKey: "k", RequestSHA256: "01"},
			loop.Request{Rejected: &loop.BusyError{ActiveRunID: "busy"}, RequestSHA256: "01"}},
		{event.InputBlocked{InputID: NewID(), Input: digest, ReasonCode: "code", Reason: "why", IdempotencyKey: "k", RequestSHA256: "02"},
			loop.Request{Blocked: &loop.BlockedError{ReasonCode: "code", Reason: "why"}, RequestSHA256: "02"}},
		{event.InputHandled{InputID: NewID(), Input: digest, Reply: "hello", IdempotencyKey: "k", RequestSHA256: "03"},
			loop.Request{Handled: true, Reply: "hello", RequestSHA256: "03"}},
		{event.InputBlocked{InputID: NewID(), Input: digest, IdempotencyKey: "k", RequestSHA256: "04"},
			loop.Request{Blocked: &loop.BlockedError{}, RequestSHA256: "04"}},
	} {
		last := int64(seq + 1)
		write(t, b, loop.Job{SessionID: id}, loop.Append{Expected: last}, 0, c.use)
		c.want.Seq = last
		if got, ok, err := log.Request(t.Context(), Tenant, id, "k"); err != nil || !ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("after %s: %+v, %v, %v; want %+v", c.use.EventType(), got, ok, err, c.want)
		}
		for _, other := range []string{"", "k2"} {
			if got, ok, err := log.Request(t.Context(), Tenant, id, other); ok || err != nil {
				t.Errorf("key %q: %+v, %v", other, got, err)
			}
		}
	}
}

func testPages(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "hi"))
	whole := b.Events(t, id)
	var paged []event.Event
	for {
		page, err := log.Events(t.Context(), Tenant, id, int64(len(paged)), 3)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > 3 {
			t.Fatalf("a page of %d; asked for 3", len(page))
		}
		if len(page) == 0 {
			break
		}
		paged = append(paged, page...)
	}
	if !reflect.DeepEqual(normal(paged), normal(whole)) {
		t.Errorf("pages give %v; want %v", Types(paged), Types(whole))
	}
}

func testWatch(t *testing.T, log loop.Log) {
	b := on(log)
	id := b.Session(t)
	wake, stop := log.Watch(id)
	defer stop()
	b.Start(t, id, "hi")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	select {
	case <-wake:
	case <-ctx.Done():
		t.Fatal("no signal after an append")
	}
}
