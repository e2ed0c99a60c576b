package loop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

func TestTransitions(t *testing.T) {
	t.Parallel()
	for name, sc := range scenes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := sc.build(t)
			if got := statusOf(base); got != sc.status {
				t.Fatalf("the scene stands at %+v; want %+v", got, sc.status)
			}
			for _, typ := range event.Types() {
				e := candidate(t, base, typ)
				err, next := loop.Allows(base, e), loop.Fold(base, e)
				want, allowed := sc.allows[typ]
				if allowed {
					if got := statusOf(next); err != nil || got != want {
						t.Errorf("%s leads to %+v, %v; want %+v", typ, got, err, want)
					}
					continue
				}
				refused(t, base, e)
			}
		})
	}
}

// refused checks that e is refused by name and ignored.
func refused(t *testing.T, base loop.State, e event.Event) {
	t.Helper()
	var te *loop.TransitionError
	err := loop.Allows(base, e)
	if !errors.Is(err, loop.ErrNotAllowed) || !errors.As(err, &te) || te.Event != e.Type || te.Entity == "" {
		t.Errorf("%s: %v; want a TransitionError that names it", e.Type, err)
		return
	}
	want := base
	want.LastSeq = e.Seq
	if got := loop.Fold(base, e); dump(t, got) != dump(t, want) {
		t.Errorf("%s is refused and changed the state all the same\n got %s\nwant %s", e.Type, dump(t, got), dump(t, want))
	}
}

// dump is a fingerprint of everything in a state, pointers followed.
func dump(t interface{ Fatal(...any) }, s loop.State) string {
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTransitionsCoverEveryStatus(t *testing.T) {
	t.Parallel()
	runs, turns, callsSeen := map[loop.RunStatus]bool{}, map[loop.TurnStatus]bool{}, map[loop.CallStatus]bool{}
	types := map[event.Type]bool{event.TypeSessionCreated: true}
	for _, sc := range scenes() {
		runs[sc.status.run], turns[sc.status.turn], callsSeen[sc.status.call] = true, true, true
		for typ := range sc.allows {
			types[typ] = true
		}
	}
	for _, s := range loop.RunStatuses() {
		if !runs[s] {
			t.Errorf("no scene has a run %q", s)
		}
	}
	for _, s := range loop.TurnStatuses() {
		if !turns[s] {
			t.Errorf("no scene has a turn %q", s)
		}
	}
	for _, s := range loop.CallStatuses() {
		if !callsSeen[s] {
			t.Errorf("no scene has a call %q", s)
		}
	}
	for _, typ := range event.Types() {
		if !types[typ] {
			t.Errorf("no scene allows %s", typ)
		}
	}
}

func TestTransitionsKeepOneActiveRun(t *testing.T) {
	t.Parallel()
	second := fact(t, 0, created)
	second.RunID = "second"
	for name, sc := range scenes() {
		if name == "deleted" {
			continue
		}
		base := sc.build(t)
		second.Seq = base.LastSeq + 1
		if slices.ContainsFunc(base.Runs, func(r loop.Run) bool { return r.Status.Active() }) {
			refused(t, base, second)
		} else if err := loop.Allows(base, second); err != nil {
			t.Errorf("%s: a second run: %v", name, err)
		}
		waits := numbered(fact(t, 0, behind), base.LastSeq+1)
		waits.RunID = second.RunID
		if err := loop.Allows(base, waits); err != nil {
			t.Errorf("%s: an enqueued run: %v", name, err)
		}
	}
}

// TestTransitionsRetryTheLastRunOnly: what the conversation has left behind
// stays as it ended.
func TestTransitionsRetryTheLastRunOnly(t *testing.T) {
	t.Parallel()
	base := scenes()["failed in an answer"].build(t)
	for _, p := range []event.Payload{created, queued, event.RunCancelled{}} {
		e := numbered(fact(t, 0, p), base.LastSeq+1)
		e.RunID = "another"
		if err := loop.Allows(base, e); err != nil {
			t.Fatal(err)
		}
		base = loop.Fold(base, e)
	}
	refused(t, base, numbered(fact(t, 0, retried), base.LastSeq+1))
}

func TestTransitionsAllowASecondCall(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"turn answered", "call proposed", "call done"} {
		base := scenes()[name].build(t)
		second := event.ToolProposed{CallID: "c2", Number: 2, Name: "look", Arguments: "{}"}
		e := numbered(fact(t, 1, second), base.LastSeq+1)
		if err := loop.Allows(base, e); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNothingBeforeTheSession(t *testing.T) {
	t.Parallel()
	for _, typ := range event.Types() {
		e := candidate(t, loop.State{}, typ)
		if typ != event.TypeSessionCreated {
			refused(t, loop.State{}, e)
			continue
		}
		if got := loop.Fold(loop.State{}, e); got.SessionID != "s" || got.TenantID != "t" || loop.Allows(loop.State{}, e) != nil {
			t.Errorf("session.created gives %+v", got)
		}
	}
}

func TestTransitionErrorNamesWhatWasRefused(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]loop.TransitionError{
		"completed":    {Entity: "run", ID: "run", From: "completed", Event: event.TypeTurnStarted},
		"turn calling": {Entity: "turn", ID: "run", From: "calling", Event: event.TypeToolStarted},
		"call done":    {Entity: "call", ID: "c1", From: "done", Event: event.TypeToolResult},
		"deleted":      {Entity: "session", ID: "s", From: "deleted", Event: event.TypeRunCreated},
	} {
		base := scenes()[name].build(t)
		var te *loop.TransitionError
		err := loop.Allows(base, candidate(t, base, want.Event))
		if !errors.As(err, &te) || *te != want {
			t.Errorf("%s: %v; want %v", name, err, &want)
		}
		if text := fmt.Sprintf("%s %s in state %q does not allow %s", want.Entity, want.ID, want.From, want.Event); err.Error() != text {
			t.Errorf("%s: text %q; want %q", name, err, text)
		}
	}
}

func TestEveryEventOfAnEngineIsAllowed(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), strict(t, calls("look")), looptest.Says("look", "seen"))
	id := b.Session(t)
	b.Advance(t, b.Start(t, id, "hi"))
	events, _ := checked(t, b, id)
	if !slices.Contains(looptest.Types(events), event.TypeRunCompleted) {
		t.Errorf("the run did not complete: %v", looptest.Types(events))
	}
}
