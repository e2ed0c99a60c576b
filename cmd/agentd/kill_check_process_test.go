package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// events are facts as the log has them.
func events(t *testing.T, facts []fact) []event.Event {
	t.Helper()
	out := make([]event.Event, 0, len(facts))
	for _, f := range facts {
		at, err := time.Parse(time.RFC3339Nano, f.At)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, event.Event{
			SessionID: f.SessionID, Seq: f.Seq, Type: f.Type, RunID: f.RunID, Turn: f.Turn, At: at,
			Actor: event.Actor{Kind: event.ActorKind(f.ActorKind), ID: f.ActorID}, Payload: json.RawMessage(f.Payload),
		})
	}
	return out
}

// checkSession looks at the whole log of a session: what the tables allow, and
// that every message says what its own attempt showed and nothing else.
func checkSession(t *testing.T, f *fleet, session string) []fact {
	t.Helper()
	facts := stored(t, f.db, session)
	if err := looptest.CheckLog(events(t, facts)); err != nil {
		t.Errorf("session %s: %v", session, err)
	}
	if n := scalar[int](t, f.db, `SELECT count(*) FROM agentd.messages WHERE role = 'assistant' AND NOT partial AND parts::text LIKE '%void%'`); n != 0 {
		t.Errorf("%d messages have text of an attempt that was discarded", n)
	}
	return facts
}

// ofRun are the facts of one run.
func ofRun(facts []fact, run string) []fact {
	return slices.DeleteFunc(slices.Clone(facts), func(f fact) bool { return f.RunID != run })
}

// checkRun looks at what holds for every run that has completed, wherever its
// workers were killed.
func checkRun(t *testing.T, facts []fact) {
	t.Helper()
	checkWriters(t, facts)
	checkAnswers(t, facts)
	checkEnd(t, facts, event.TypeRunCompleted)
}

// checkEnd: the run ends once, and that is the last that is said of it.
func checkEnd(t *testing.T, facts []fact, want event.Type) {
	t.Helper()
	var ends []event.Type
	for _, f := range facts {
		switch f.Type {
		case event.TypeRunCompleted, event.TypeRunFailed, event.TypeRunCancelled:
			ends = append(ends, f.Type)
		default:
		}
	}
	if !slices.Equal(ends, []event.Type{want}) || facts[len(facts)-1].Type != want {
		t.Errorf("terminal events %v, want one %s, the last of all", ends, want)
	}
}

const workerActor = "worker:"

// checkWriters: only the worker that has the lease writes. The others take the
// run away from a dead one, and queue it.
func checkWriters(t *testing.T, facts []fact) {
	t.Helper()
	holder := ""
	for _, f := range facts {
		writer, isWorker := strings.CutPrefix(f.ActorID, workerActor)
		switch p := decoded[event.Payload](t, []fact{f})[0].(type) {
		case event.RunStarted:
			holder = p.WorkerID
		case event.RunResumed:
			holder = p.WorkerID
		case event.RunReleased:
			if p.WorkerID != holder {
				t.Errorf("seq %d: %s is released, held by %q", f.Seq, p.WorkerID, holder)
			}
			holder = ""
			continue
		case event.RunQueued:
			continue
		}
		if isWorker && writer != holder {
			t.Errorf("seq %d: %s is written by %s, the lease is held by %q", f.Seq, f.Type, writer, holder)
		}
	}
}

// checkAnswers: the attempts of a model call count from 1, each but the last is
// discarded, and none is made after one that was completed.
func checkAnswers(t *testing.T, facts []fact) {
	t.Helper()
	type call struct{ requested, discarded, completed int }
	calls := map[int]*call{}
	turns := 0
	for _, f := range facts {
		if f.Turn > 0 && calls[f.Turn] == nil {
			calls[f.Turn] = &call{}
			turns = max(turns, f.Turn)
		}
		c := calls[f.Turn]
		switch p := decoded[event.Payload](t, []fact{f})[0].(type) {
		case event.ModelRequested:
			c.requested++
			if c.completed != 0 || p.Attempt != c.requested || c.discarded != c.requested-1 {
				t.Errorf("seq %d: attempt %d is requested after %+v", f.Seq, p.Attempt, *c)
			}
		case event.AssistantDiscarded:
			c.discarded++
			if p.Attempt != c.requested {
				t.Errorf("seq %d: attempt %d is discarded after %+v", f.Seq, p.Attempt, *c)
			}
		case event.AssistantCompleted:
			c.completed++
			if p.Attempt != c.requested {
				t.Errorf("seq %d: attempt %d is completed after %+v", f.Seq, p.Attempt, *c)
			}
		}
	}
	for turn := 1; turn <= turns; turn++ {
		if c := calls[turn]; c == nil || c.completed != 1 {
			t.Errorf("turn %d: %+v, want one completed answer", turn, c)
		}
	}
}

// toolStory is what became of a tool call.
type toolStory struct {
	started  int
	executed bool
	result   event.ToolResult
	effects  int
}

// checkTool looks at what holds for the only tool call of a run whose model
// repeats its result, and returns its story.
func checkTool(t *testing.T, f *fleet, facts []fact) toolStory {
	t.Helper()
	s := checkCall(t, f, facts, only[event.ToolProposed](t, facts))
	for _, e := range effects(t, f.effects, facts[0].RunID) {
		if e.call != s.result.CallID {
			t.Errorf("the tool was entered with call %s; the log has %s", e.call, s.result.CallID)
		}
	}
	checkTold(t, facts, s.result)
	return s
}

// checkCall looks at what holds for every tool call, and returns its story.
func checkCall(t *testing.T, f *fleet, facts []fact, call event.ToolProposed) toolStory {
	t.Helper()
	var s toolStory
	results := 0
	for _, p := range decoded[event.Payload](t, facts) {
		switch p := p.(type) {
		case event.ToolStarted:
			if p.CallID != call.CallID {
				continue
			}
			if s.started++; p.Attempt != s.started {
				t.Errorf("start %d of %s is attempt %d", s.started, call.Name, p.Attempt)
			}
		case event.ToolExecuted:
			s.executed = s.executed || p.CallID == call.CallID
		case event.ToolResult:
			if p.CallID == call.CallID {
				s.result = p
				results++
			}
		}
	}
	if results != 1 {
		t.Fatalf("%s has %d results", call.Name, results)
	}
	for _, e := range effects(t, f.effects, facts[0].RunID) {
		if e.call != call.CallID {
			continue
		}
		if e.attempt > s.started {
			t.Errorf("%s was entered in attempt %d; the log has %d starts", call.Name, e.attempt, s.started)
		}
		if e.what == noteEffect {
			s.effects++
		}
	}
	if call.Name != toolPut && (s.started != 1 || s.effects > 1) {
		t.Errorf("%s was started %d times and took effect %d times", call.Name, s.started, s.effects)
	}
	switch {
	case s.executed:
		if s.result.IsError || s.effects == 0 {
			t.Errorf("executed, %d effects, and the result is %+v", s.effects, s.result)
		}
	case call.Name == toolPut || !s.result.IsError || s.result.Reason != hooks.ReasonOutcomeUnknown:
		t.Errorf("%s was not executed, and the result is %+v", call.Name, s.result)
	}
	return s
}

// checkTold: the model was sent the result, and answered on it.
func checkTold(t *testing.T, facts []fact, result event.ToolResult) {
	t.Helper()
	for _, f := range facts {
		if f.Turn != 2 {
			continue
		}
		switch p := decoded[event.Payload](t, []fact{f})[0].(type) {
		case event.ModelRequested:
			if !slices.Contains(p.MessageIDs, result.MessageID) {
				t.Errorf("attempt %d of the second call is made without the tool's result", p.Attempt)
			}
		case event.AssistantCompleted:
			if text := textOf(p.Parts); !strings.Contains(text, result.Content) {
				t.Errorf("the model answered %q on %q", text, result.Content)
			}
		}
	}
}

func textOf(parts []hooks.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}
