package loop_test

import (
	"context"
	"errors"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestARepeatedRequestIsTheRunWhateverBecameOfIt of an enqueued one.
func TestARepeatedRequestIsTheRunWhateverBecameOfIt(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	id := b.Session(t)
	first := b.Start(t, id, "one")
	request := func(key string) loop.StartRun {
		return loop.StartRun{SessionID: id, Text: "two", Policy: event.PolicyEnqueue, IdempotencyKey: key}
	}
	kept, err := start(request("kept"))
	if err != nil || !kept.Enqueued || kept.Repeated || kept.Seq != 4 {
		t.Fatalf("%+v, %v; want it enqueued", kept, err)
	}
	dropped, err := start(request("dropped"))
	if err != nil {
		t.Fatal(err)
	}
	same := func(key string, was loop.StartedRun, enqueued bool) {
		t.Helper()
		was.Repeated, was.Enqueued = true, enqueued
		if got, err := start(request(key)); err != nil || got != was {
			t.Errorf("%s: %+v, %v; want %+v", key, got, err, was)
		}
	}
	same("kept", kept, true)
	if err := cancel(t, b, job(id, dropped)); err != nil {
		t.Fatal(err)
	}
	same("dropped", dropped, false)
	b.Advance(t, first)
	same("kept", kept, false)
	b.Advance(t, job(id, kept))
	same("kept", kept, false)
	other := request("kept")
	other.Policy = ""
	if _, err := start(other); !errors.Is(err, loop.ErrKeyReused) {
		t.Errorf("the key with another policy: %v; want ErrKeyReused", err)
	}
	plain, err := start(loop.StartRun{SessionID: id, Text: "three", IdempotencyKey: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := start(loop.StartRun{SessionID: id, Text: "three", IdempotencyKey: "plain", Policy: event.PolicyReject})
	if plain.Repeated = true; err != nil || again != plain {
		t.Errorf("the default policy, spelled out: %+v, %v; want %+v", again, err, plain)
	}
}

func TestThePolicyOfAnAgent(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	b.Commands.Policies = map[string]event.Policy{"other": event.PolicyEnqueue}
	id := b.Session(t)
	from := b.Run(t, b.Start(t, id, "one")).MessageID
	before := len(b.Events(t, id))
	for name, c := range map[string]struct {
		cmd  loop.StartRun
		want error
	}{
		"an agent without one":                {loop.StartRun{Text: "two"}, loop.ErrBusy},
		"a request that knows better":         {loop.StartRun{Text: "two", Agent: "other", Policy: event.PolicyReject}, loop.ErrBusy},
		"what is replaced has to stand still": {loop.StartRun{Text: "two", Agent: "other", ReplaceFrom: from}, loop.ErrBusy},
		"to replace what does not stand still": {
			loop.StartRun{Text: "two", ReplaceFrom: from, Policy: event.PolicyEnqueue}, &loop.InvalidError{Field: "policy"},
		},
		"no policy": {loop.StartRun{Text: "two", Policy: "Enqueue"}, &loop.InvalidError{Field: "policy"}},
	} {
		c.cmd.SessionID = id
		_, err := start(c.cmd)
		var invalid, want *loop.InvalidError
		if errors.As(c.want, &want) && errors.As(err, &invalid) && invalid.Field == want.Field {
			continue
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", name, err, c.want)
		}
	}
	if n := len(b.Events(t, id)); n != before {
		t.Errorf("%d events more; want none", n-before)
	}
	if run, err := start(loop.StartRun{SessionID: id, Text: "two", Agent: "other"}); err != nil || !run.Enqueued {
		t.Errorf("an agent that enqueues: %+v, %v; want it enqueued", run, err)
	}
}

// endsFirst is a log whose active run ends just before it is loaded.
type endsFirst struct {
	loop.Log
	end  func()
	fail error
}

func (l *endsFirst) Load(ctx context.Context, tenantID, sessionID, runID string) (loop.State, error) {
	if end := l.end; end != nil {
		l.end = nil
		end()
	}
	if l.fail != nil {
		return loop.State{}, l.fail
	}
	return l.Log.Load(ctx, tenantID, sessionID, runID)
}

func TestARunThatEndsJustThenKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	id := b.Session(t)
	first := b.Start(t, id, "one")
	log := &endsFirst{Log: b.Log, end: func() { b.Advance(t, first) }}
	b.Commands.Log = log
	run, err := start(loop.StartRun{SessionID: id, Text: "two", Policy: event.PolicyEnqueue})
	if err != nil || run.Enqueued {
		t.Errorf("%+v, %v; want it started", run, err)
	}
	if _, s := checked(t, b, id); s.Runs[1].Status != loop.RunQueued || s.Runs[1].QueuedFor != "" {
		t.Errorf("run %+v; want it queued as if nobody had been there", s.Runs[1])
	}
	log.fail = loop.ErrUnavailable
	if _, err := start(loop.StartRun{SessionID: id, Text: "three", Policy: event.PolicyEnqueue}); !errors.Is(err, loop.ErrUnavailable) {
		t.Errorf("%v; want ErrUnavailable", err)
	}
}

// TestATwinThatIsFasterIsTheSameRun: the state that the message is enqueued on is
// read after its key.
func TestATwinThatIsFasterIsTheSameRun(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	id := b.Session(t)
	b.Start(t, id, "one")
	twin, log := *b.Commands, &endsFirst{Log: b.Log}
	request := loop.StartRun{
		TenantID: looptest.Tenant, Actor: looptest.Tester, SessionID: id, Text: "two", Policy: event.PolicyEnqueue, IdempotencyKey: "k",
	}
	var faster loop.StartedRun
	log.end = func() {
		var err error
		if faster, err = twin.StartRun(t.Context(), request); err != nil {
			t.Error(err)
		}
	}
	b.Commands.Log = log
	got, err := start(request)
	if faster.Repeated = true; err != nil || got != faster {
		t.Errorf("%+v, %v; want %+v", got, err, faster)
	}
	if events, _ := checked(t, b, id); len(payloads[event.RunCreated](t, events)) != 2 {
		t.Errorf("log %v; want two runs", looptest.Types(events))
	}
}
