package loop_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

func commands(t *testing.T) (*looptest.Bench, func(loop.StartRun) (loop.StartedRun, error)) {
	t.Helper()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	b.Commands.Agents = []string{"demo", "other"}
	return b, func(cmd loop.StartRun) (loop.StartedRun, error) {
		cmd.TenantID, cmd.Actor = looptest.Tenant, looptest.Tester
		return b.Commands.StartRun(t.Context(), cmd)
	}
}

func TestRepeatedRequestsAreOneRun(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	id := b.Session(t)
	const clients = 50
	var wg sync.WaitGroup
	got := make([]loop.StartedRun, clients)
	for i := range clients {
		wg.Go(func() {
			run, err := start(loop.StartRun{SessionID: id, Text: "hi", IdempotencyKey: "k"})
			if err != nil {
				t.Errorf("start: %v", err)
			}
			got[i] = run
		})
	}
	wg.Wait()
	fresh := 0
	for _, r := range got {
		if !r.Repeated {
			fresh++
		}
		r.Repeated = got[0].Repeated
		if r != got[0] {
			t.Errorf("two answers to one request: %+v and %+v", r, got[0])
		}
	}
	events, s := checked(t, b, id)
	if fresh != 1 || len(events) != 4 || len(s.Messages) != 1 || len(b.Log.(*looptest.Log).Jobs()) != 1 {
		t.Errorf("%d fresh answers, log %v; want one of each", fresh, looptest.Types(events))
	}
	if got[0].Seq != 1 {
		t.Errorf("watch from seq %d; want 1", got[0].Seq)
	}
	// Still the same run when it has ended, and from another process.
	b.Advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: got[0].RunID, Ticket: 1})
	again, err := start(loop.StartRun{SessionID: id, Text: "hi", IdempotencyKey: "k", Agent: "demo"})
	want := got[0]
	want.Repeated = true
	if err != nil || again != want {
		t.Errorf("after the end: %+v, %v; want %+v", again, err, want)
	}
}

func TestIdempotencyKeyOfAnotherRequest(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	id := b.Session(t)
	if _, err := start(loop.StartRun{SessionID: id, Text: "hi", IdempotencyKey: "k"}); err != nil {
		t.Fatal(err)
	}
	for name, cmd := range map[string]loop.StartRun{
		"other text":  {SessionID: id, Text: "hi ", IdempotencyKey: "k"},
		"other agent": {SessionID: id, Text: "hi", IdempotencyKey: "k", Agent: "other"},
	} {
		if _, err := start(cmd); !errors.Is(err, loop.ErrKeyReused) {
			t.Errorf("%s: %v; want ErrKeyReused", name, err)
		}
	}
	if run, err := start(loop.StartRun{SessionID: b.Session(t), Text: "hi", IdempotencyKey: "k"}); err != nil || run.Repeated {
		t.Errorf("the same key in another session: %+v, %v; want a run of its own", run, err)
	}
	ctx := context.WithoutCancel(t.Context())
	s, err := b.Commands.CreateSession(ctx, loop.CreateSession{TenantID: "other", Actor: looptest.Tester})
	if err != nil {
		t.Fatal(err)
	}
	run, err := b.Commands.StartRun(ctx, loop.StartRun{TenantID: "other", SessionID: s.SessionID, Text: "bye", IdempotencyKey: "k", Actor: looptest.Tester})
	if err != nil || run.Repeated {
		t.Errorf("the same key of another tenant: %+v, %v; want a run of its own", run, err)
	}
}

func TestIdempotencyKeyIsForgottenAfterADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, start := commands(t)
		id := b.Session(t)
		cmd := loop.StartRun{SessionID: id, Text: "hi", IdempotencyKey: "k"}
		first, err := start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		b.Advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: first.RunID, Ticket: 1})
		pause(t.Context(), 24*time.Hour)
		if again, err := start(cmd); err != nil || again.RunID != first.RunID {
			t.Errorf("after a day: %+v, %v; want the same run", again, err)
		}
		pause(t.Context(), time.Second)
		if again, err := start(cmd); err != nil || again.Repeated {
			t.Errorf("after more than a day: %+v, %v; want a new run", again, err)
		}
	})
}

func TestWithoutAKeyEveryRequestIsItsOwn(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	id := b.Session(t)
	first, err := start(loop.StartRun{SessionID: id, Text: "hi"})
	if err != nil {
		t.Fatal(err)
	}
	b.Advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: first.RunID, Ticket: 1})
	second, err := start(loop.StartRun{SessionID: id, Text: "hi"})
	if err != nil || second.RunID == first.RunID {
		t.Errorf("second: %+v, %v; want another run", second, err)
	}
}

func TestBusySessionNamesItsRun(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	id := b.Session(t)
	first, err := start(loop.StartRun{SessionID: id, Text: "hi"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = start(loop.StartRun{SessionID: id, Text: "hello?"})
	var busy *loop.BusyError
	if !errors.As(err, &busy) || !errors.Is(err, loop.ErrBusy) || busy.ActiveRunID != first.RunID || !strings.Contains(err.Error(), first.RunID) {
		t.Errorf("%v; want a BusyError for %s", err, first.RunID)
	}
}

func TestInvalidRequestsNameTheField(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	id := b.Session(t)
	for name, c := range map[string]struct {
		cmd   loop.StartRun
		field string
		says  string
	}{
		"no text":              {loop.StartRun{}, "text", "is empty"},
		"blank text":           {loop.StartRun{Text: " \n\t"}, "text", "is empty"},
		"a key that is binary": {loop.StartRun{Text: "hi", IdempotencyKey: "\xff"}, "idempotency_key", "UTF-8"},
		"a key with a NUL":     {loop.StartRun{Text: "hi", IdempotencyKey: "a\x00"}, "idempotency_key", "UTF-8"},
		"unknown agent":        {loop.StartRun{Text: "hi", Agent: "nobody"}, "agent", `no agent is called "nobody": use one of demo, other`},
	} {
		c.cmd.SessionID = id
		_, err := start(c.cmd)
		var invalid *loop.InvalidError
		if !errors.As(err, &invalid) || !errors.Is(err, loop.ErrInvalid) || invalid.Field != c.field || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %s: %s", name, err, c.field, c.says)
		}
	}
	_, err := b.Commands.CreateSession(t.Context(), loop.CreateSession{TenantID: looptest.Tenant, ExternalID: "a\x00", Actor: looptest.Tester})
	var invalid *loop.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != "external_id" {
		t.Errorf("external id with a NUL: %v; want an InvalidError", err)
	}
	if n := len(b.Events(t, id)); n != 1 {
		t.Errorf("%d events after refused requests; want 1", n)
	}
}

func TestStartWithoutAnyAgentSaysSo(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), says("hi"))
	b.Commands.Agents = nil
	_, err := b.Commands.StartRun(t.Context(), loop.StartRun{TenantID: looptest.Tenant, SessionID: b.Session(t), Text: "hi", Actor: looptest.Tester})
	var invalid *loop.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != "agent" {
		t.Errorf("%v; want the field agent named", err)
	}
}

func TestTextIsMadeValidAndMarked(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	for in, want := range map[string]string{"a\x00b": "a\uFFFDb", "caf\xe9": "caf\uFFFD", `a\u0000b`: `a\u0000b`, "plain 🙂": "plain 🙂"} {
		id := b.Session(t)
		if _, err := start(loop.StartRun{SessionID: id, Text: in}); err != nil {
			t.Fatal(err)
		}
		events, _ := checked(t, b, id)
		if got := only[event.MessageCreated](t, events); got.Parts[0].Text != want || got.Sanitized != (in != want) {
			t.Errorf("%q was stored as %+v; want %q", in, got, want)
		}
	}
}

func TestStartTakesTheFirstAgentWhenNoneIsNamed(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	for asked, want := range map[string]string{"": "demo", "other": "other"} {
		id := b.Session(t)
		run, err := start(loop.StartRun{SessionID: id, Agent: asked, Text: "hi"})
		if err != nil {
			t.Fatal(err)
		}
		events, _ := checked(t, b, id)
		got := only[event.RunCreated](t, events)
		if got.Agent != want || got.MessageID != run.MessageID || got.AssistantMessageID != run.AssistantMessageID || got.IdempotencyKey != "" || got.RequestSHA256 != "" {
			t.Errorf("created %+v; want agent %s and the ids of %+v", got, want, run)
		}
		if e := events[1]; e.RunID != run.RunID || e.Actor != looptest.Tester {
			t.Errorf("message event %+v; want it in the run, by its actor", e)
		}
	}
}

func TestCommandsOnWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	id := b.Session(t)
	gone := b.Session(t)
	if err := b.Commands.DeleteSession(t.Context(), looptest.Tenant, gone, looptest.Tester); err != nil {
		t.Fatal(err)
	}
	for name, session := range map[string]string{"never was": looptest.NewID(), "deleted": gone, "no id": "nope"} {
		if _, err := start(loop.StartRun{SessionID: session, Text: "hi"}); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("start on a session that %s: %v; want ErrNotFound", name, err)
		}
		if err := b.Commands.DeleteSession(t.Context(), looptest.Tenant, session, looptest.Tester); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("delete of a session that %s: %v; want ErrNotFound", name, err)
		}
	}
	if err := cancel(t, b, loop.Job{SessionID: id, RunID: looptest.NewID()}); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("cancel of a run that never was: %v; want ErrNotFound", err)
	}
	err := b.Commands.CancelRun(t.Context(), loop.CancelRun{TenantID: "other", SessionID: id, RunID: looptest.NewID()})
	if !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("cancel by a foreign tenant: %v; want ErrNotFound", err)
	}
}

// TestCommandsPassOnAnOutage: a command is one request of a person, who is
// told; nothing is half done.
func TestCommandsPassOnAnOutage(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	id := b.Session(t)
	log := b.Log.(*looptest.Log)
	log.FailAppends(func(loop.Append) error { return loop.ErrUnavailable })
	if _, err := start(loop.StartRun{SessionID: id, Text: "hi"}); !errors.Is(err, loop.ErrUnavailable) {
		t.Errorf("start: %v; want ErrUnavailable", err)
	}
	if _, err := b.Commands.CreateSession(t.Context(), loop.CreateSession{TenantID: looptest.Tenant, Actor: looptest.Tester}); !errors.Is(err, loop.ErrUnavailable) {
		t.Errorf("create: %v; want ErrUnavailable", err)
	}
	log.FailAppends(nil)
	if n := len(b.Events(t, id)); n != 1 {
		t.Errorf("%d events; want 1", n)
	}
	// An acknowledgement that was lost: the key finds the run.
	log.LoseAcks(func(loop.Append) error { return loop.ErrUnavailable })
	if _, err := start(loop.StartRun{SessionID: id, Text: "hi", IdempotencyKey: "k"}); !errors.Is(err, loop.ErrUnavailable) {
		t.Errorf("start: %v; want ErrUnavailable", err)
	}
	log.LoseAcks(nil)
	if run, err := start(loop.StartRun{SessionID: id, Text: "hi", IdempotencyKey: "k"}); err != nil || !run.Repeated {
		t.Errorf("again: %+v, %v; want the run that was started", run, err)
	}
}
