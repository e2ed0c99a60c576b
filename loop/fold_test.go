package loop_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// anyEvent draws an event that may or may not make sense.
func anyEvent(t *rapid.T) event.Event {
	id := rapid.SampledFrom([]string{"", "run", "c1", "c2", "m"})
	n := rapid.Int64Range(-1, 3)
	types := append(event.Types(), "from.the.future", "")
	typ := rapid.SampledFrom(types).Draw(t, "type")
	fields := map[string]any{
		"ticket": n.Draw(t, "ticket"), "epoch": n.Draw(t, "epoch"), "attempt": n.Draw(t, "attempt"), "number": n.Draw(t, "number"),
		"call_id": id.Draw(t, "call"), "approval_id": id.Draw(t, "approval"), "decision": rapid.SampledFrom([]event.ApprovalDecision{"", "approved", "denied", "cancelled", "edited", "expired"}).Draw(t, "decision"), "message_id": id.Draw(t, "message"), "tenant_id": "t", "text": rapid.String().Draw(t, "text"),
		"lane": rapid.SampledFrom([]stream.Lane{stream.LaneText, stream.LaneReasoning, "odd"}).Draw(t, "lane"), "block_id": id.Draw(t, "block"),
		"cause": rapid.SampledFrom([]string{"worker_dead", event.QueuedForRetry}).Draw(t, "cause"), "title": rapid.String().Draw(t, "title"),
		"edited_arguments": rapid.SampledFrom([]*string{nil, new("{}"), new(`{"n":2}`)}).Draw(t, "edited"),
		"tools":            rapid.SliceOfN(id, 0, 3).Draw(t, "tools"),
		"metadata":         map[string]any{"k": "v"}, "from_message_id": id.Draw(t, "from"), "message_ids": rapid.SliceOfN(id, 0, 2).Draw(t, "replaced"), "parts": []hooks.Part{{Type: hooks.PartText, Text: "x"}, {Type: hooks.PartToolCall}},
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	if rapid.IntRange(0, 9).Draw(t, "garbage") == 0 {
		raw = rapid.SliceOf(rapid.Byte()).Draw(t, "payload")
	}
	return event.Event{
		SessionID: rapid.SampledFrom([]string{"s", "s", "s", ""}).Draw(t, "session"), Seq: n.Draw(t, "seq"), Type: typ,
		RunID: rapid.SampledFrom([]string{"run", "run", "run2", ""}).Draw(t, "run"), Turn: rapid.IntRange(-1, 3).Draw(t, "turn"),
		At: at, Payload: raw,
	}
}

func TestFoldIsTotal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s loop.State
		for _, e := range rapid.SliceOfN(rapid.Custom(anyEvent), 0, 30).Draw(t, "events") {
			before, last := dump(t, s), s.LastSeq
			next := loop.Fold(s, e)
			if dump(t, s) != before {
				t.Fatalf("folding %s changed its input", e.Type)
			}
			if next.LastSeq != max(last, e.Seq) {
				t.Fatalf("last seq %d after %d and seq %d", next.LastSeq, last, e.Seq)
			}
			if _, known := knownTypes[e.Type]; loop.Allows(s, e) != nil || !known {
				want := s
				want.LastSeq = next.LastSeq
				if dump(t, next) != dump(t, want) {
					t.Fatalf("%s is refused or unknown and changed the state", e.Type)
				}
			}
			s = next
			sane(t, s)
		}
	})
}

var knownTypes = func() map[event.Type]bool {
	out := map[event.Type]bool{}
	for _, typ := range event.Types() {
		out[typ] = true
	}
	return out
}()

// sane checks what holds of every state that a fold can reach.
func sane(t *rapid.T, s loop.State) {
	active := 0
	for _, r := range s.Runs {
		if r.Status.Active() {
			active++
		}
		if (r.WorkerID != "") && r.Status != loop.RunRunning {
			t.Fatalf("run %s is %s and held by %s", r.ID, r.Status, r.WorkerID)
		}
		if r.Status.Terminal() == r.EndedAt.IsZero() {
			t.Fatalf("run %s is %s and ended at %v", r.ID, r.Status, r.EndedAt)
		}
		if r.Retrying && (r.Status == loop.RunRunning || r.Status == loop.RunWaiting) || r.Retries == 0 && r.RetriedFrom != 0 {
			t.Fatalf("run %s is %s after %d retries, from seq %d, retrying %v", r.ID, r.Status, r.Retries, r.RetriedFrom, r.Retrying)
		}
		for i, turn := range r.Turns {
			if over := turn.Status == loop.TurnCompleted || turn.Superseded; i < len(r.Turns)-1 && !over {
				t.Fatalf("turn %d of run %s is %s and not the last", turn.No, r.ID, turn.Status)
			}
			for _, c := range turn.Calls {
				if (c.Status == loop.CallAwaiting) != (c.ApprovalID != "" && c.Decision == "") {
					t.Fatalf("call %s is %s with approval %q decided %q", c.ID, c.Status, c.ApprovalID, c.Decision)
				}
				if c.Status != loop.CallDone && (turn.Status == loop.TurnCompleted || r.Status.Terminal()) {
					t.Fatalf("call %s is %s after the end", c.ID, c.Status)
				}
			}
		}
	}
	if active > 1 {
		t.Fatalf("%d active runs", active)
	}
	if !slices.IsSortedFunc(s.Messages, func(a, b hooks.Message) int { return int(a.Position - b.Position) }) {
		t.Fatalf("messages out of order: %+v", s.Messages)
	}
}

// walk draws a legal log: at each step any event that the tables allow.
func walk(t *rapid.T, tb testing.TB, steps int) (states []loop.State, events []event.Event) {
	s := loop.State{}
	states = []loop.State{s}
	for range rapid.IntRange(1, steps).Draw(t, "steps") {
		allowed := following(tb, s)
		if len(allowed) == 0 {
			break
		}
		e := rapid.SampledFrom(allowed).Draw(t, "event")
		s = loop.Fold(s, e)
		events, states = append(events, e), append(states, s)
	}
	return states, events
}

// following lists the candidates that s allows, but for the end of the
// session, and a second call whenever one may be proposed.
func following(t testing.TB, s loop.State) []event.Event {
	var out []event.Event
	for _, typ := range event.Types() {
		if e := candidate(t, s, typ); typ != event.TypeSessionDeleted && loop.Allows(s, e) == nil {
			out = append(out, e)
		}
	}
	for _, p := range []event.Payload{
		event.ToolProposed{CallID: "c2", Number: 2, Name: "look", Arguments: "{}"},
		event.ToolResult{CallID: "c2", MessageID: "t2", Content: "seen too"},
		event.ApprovalRequested{ApprovalID: "ap2", CallID: "c2", Name: "look", Arguments: "{}", By: "permission"},
		event.ApprovalDecided{ApprovalID: "ap2", CallID: "c2", Decision: event.DecisionApproved},
		denied, edited, expired, event.ApprovalDecided{ApprovalID: "ap1", CallID: "c1", Decision: event.DecisionCancelled},
	} {
		if e := numbered(candidateFor(t, s, p), s.LastSeq+1); loop.Allows(s, e) == nil {
			out = append(out, e)
		}
	}
	return out
}

func TestFoldIsPureAndSharesNothingThatChanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		states, events := walk(r, t, 12)
		prints := make([]string, len(states))
		for i, s := range states {
			prints[i] = dump(r, s)
		}
		// Every way to go on from every state, while all of them are alive.
		for i, s := range states {
			var branches []loop.State
			var branchPrints []string
			for _, e := range following(t, s) {
				b := loop.Fold(s, e)
				branches, branchPrints = append(branches, b), append(branchPrints, dump(r, b))
			}
			for j, b := range branches {
				if dump(r, b) != branchPrints[j] {
					r.Fatalf("a later fold of state %d changed an earlier one's result", i)
				}
			}
		}
		for i, s := range states {
			if dump(r, s) != prints[i] {
				r.Fatalf("state %d was changed by a later fold", i)
			}
		}
		if again := loop.FoldAll(loop.State{}, events); dump(r, again) != prints[len(prints)-1] {
			r.Fatalf("folding the log again gives another state")
		}
	})
}

// TestFoldBranchesDoNotAlias grows each list of a state to every length, and so
// past every spare capacity, and goes on from each in two ways.
func TestFoldBranchesDoNotAlias(t *testing.T) {
	t.Parallel()
	in := func(s loop.State, run string, p event.Payload) event.Event {
		e := candidateFor(t, s, p)
		e.RunID = run
		return numbered(e, s.LastSeq+1)
	}
	for name, c := range map[string]struct {
		scene string
		grow  func(s loop.State, id string) []event.Event
	}{
		"messages": {"no run", func(s loop.State, id string) []event.Event {
			return []event.Event{in(s, "", event.MessageCreated{MessageID: id, Role: hooks.RoleUser})}
		}},
		"runs": {"no run", func(s loop.State, id string) []event.Event {
			return []event.Event{in(s, id, created), in(s, id, queued), in(s, id, cancelled)}
		}},
		"calls": {"turn answered", func(s loop.State, id string) []event.Event {
			return []event.Event{in(s, "run", event.ToolProposed{CallID: id})}
		}},
		"partial text": {"turn calling", func(s loop.State, id string) []event.Event {
			return []event.Event{in(s, "run", event.AssistantDelta{Attempt: 1, BlockID: id, Text: id})}
		}},
		"text of a block": {"turn calling", func(s loop.State, id string) []event.Event {
			return []event.Event{in(s, "run", event.AssistantDelta{Attempt: 1, BlockID: "0", Text: id})}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scenes()[c.scene].build(t)
			for n := range 20 {
				base := dump(t, s)
				left := loop.FoldAll(s, c.grow(s, fmt.Sprintf("left%d", n)))
				before := dump(t, left)
				loop.FoldAll(s, c.grow(s, fmt.Sprintf("right%d", n)))
				if dump(t, left) != before || dump(t, s) != base || before == base {
					t.Fatalf("at length %d one branch changed the other, or its base", n)
				}
				s = left
			}
		})
	}
}

func TestFoldOfALegalLogIsSane(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		states, events := walk(r, t, 30)
		for i, s := range states {
			if s.LastSeq != int64(i) {
				r.Fatalf("state %d has last seq %d", i, s.LastSeq)
			}
			sane(r, s)
		}
		for i, e := range events {
			if err := loop.Allows(states[i], e); err != nil {
				r.Fatal(err)
			}
		}
	})
}

func TestFoldIgnoresWhatItCannotRead(t *testing.T) {
	t.Parallel()
	base := scenes()["queued"].build(t)
	bad := numbered(fact(t, 0, queued), base.LastSeq+1)
	bad.Payload = json.RawMessage(`{"ticket":"two"}`)
	if err := loop.Allows(base, bad); err == nil {
		t.Error("a payload that does not fit its type is allowed")
	}
	want := base
	want.LastSeq++
	if got := loop.Fold(base, bad); dump(t, got) != dump(t, want) {
		t.Errorf("a payload that does not fit its type changed the state to %s", dump(t, got))
	}
}

func TestFoldSkipsTypesOfALaterVersion(t *testing.T) {
	t.Parallel()
	for name, sc := range scenes() {
		base := sc.build(t)
		r, _ := base.Run("run")
		turn, _ := r.Turn()
		e := event.Event{SessionID: "s", Seq: base.LastSeq + 1, Type: "from.the.future", RunID: "run", Turn: turn.No, At: at, Payload: []byte(`{"call_id":"c1"}`)}
		want := base
		want.LastSeq++
		if err, got := loop.Allows(base, e), loop.Fold(base, e); err != nil || dump(t, got) != dump(t, want) {
			t.Errorf("%s: %v, and the state became %s", name, err, dump(t, got))
		}
	}
}

func TestFoldSaysWhatHappened(t *testing.T) {
	t.Parallel()
	s := scenes()["completed"].build(t)
	r, _ := s.Run("run")
	turn, _ := r.Turn()
	if r.Agent != "demo" || r.MessageID != "m" || r.Epoch != 1 || r.Ticket != 1 || !r.Started || r.Reason != "stop" || !r.EndedAt.Equal(at) {
		t.Errorf("run %+v", r)
	}
	if turn.No != 1 || turn.Attempt != 1 || turn.Model != "x" || turn.MessageID != "a" || turn.Finish != stream.FinishStop {
		t.Errorf("turn %+v", turn)
	}
	c := turn.Calls[0]
	if c.Number != 1 || c.Name != "look" || c.Attempt != 1 || !c.Success || c.ResultMessageID != "t" {
		t.Errorf("call %+v", c)
	}
	if len(s.Messages) != 2 || s.Messages[1].Position != c.Position {
		t.Errorf("messages %+v; want the result at position %d", s.Messages, c.Position)
	}
}

// TestFoldKeepsWhatWasApproved: what is approved is what runs.
func TestFoldKeepsWhatWasApproved(t *testing.T) {
	t.Parallel()
	s := scenes()["queued again after an approval"].build(t)
	r, _ := s.Run("run")
	turn, _ := r.Turn()
	c := turn.Calls[0]
	if c.Arguments != "{}" || c.Final == nil || *c.Final != `{"n":1}` || c.ApprovalID != "ap1" || c.Decision != event.DecisionApproved || c.DecidedBy != looptest.Tester || !c.DecidedAt.Equal(at) {
		t.Errorf("call %+v", c)
	}
	if r.WorkerID != "" || r.QueuedFor != "approval" || r.ReleasedFor != "" || r.Ticket != 2 {
		t.Errorf("run %+v; want it held by nobody", r)
	}
	for decision, want := range map[event.ApprovalDecision]loop.CallStatus{
		event.DecisionApproved: loop.CallApproved, event.DecisionDenied: loop.CallDenied, event.DecisionCancelled: loop.CallDenied, event.DecisionExpired: loop.CallDenied, "": loop.CallDenied, "maybe": loop.CallDenied,
	} {
		s := scenes()["waiting"].build(t)
		s = loop.Fold(s, numbered(fact(t, 1, event.ApprovalDecided{CallID: "c1", Decision: decision}), s.LastSeq+1))
		if got := statusOf(s).call; got != want {
			t.Errorf("decision %q makes the call %s; want %s", decision, got, want)
		}
	}
}

// TestFoldKeepsEveryQuestion: a call that was approved and then interrupted is
// asked about once more, and both answers are there.
func TestFoldKeepsEveryQuestion(t *testing.T) {
	t.Parallel()
	s := scenes()["call approved"].build(t)
	for _, p := range []event.Payload{toolStart, unsure, missed, event.ToolStarted{CallID: "c1", Attempt: 2}} {
		e := numbered(fact(t, 1, p), s.LastSeq+1)
		if err := loop.Allows(s, e); err != nil {
			t.Fatal(err)
		}
		s = loop.Fold(s, e)
	}
	r, _ := s.Run("run")
	c := r.Turns[0].Calls[0]
	if c.Status != loop.CallStarted || c.Attempt != 2 || c.ApprovalID != "ap2" || c.Asked != event.ApprovalOfOutcome || c.Decision != event.DecisionDidNotHappen {
		t.Errorf("call %+v", c)
	}
	if want := []loop.Question{{ApprovalID: "ap1", Decision: event.DecisionApproved, DecidedBy: looptest.Tester, DecidedAt: at}}; !reflect.DeepEqual(c.Earlier, want) {
		t.Errorf("earlier %+v; want %+v", c.Earlier, want)
	}
}

// TestFoldKeepsWhatAPersonGave: it is what runs, until hooks make something else
// of it.
func TestFoldKeepsWhatAPersonGave(t *testing.T) {
	t.Parallel()
	s := scenes()["call edited"].build(t)
	r, _ := s.Run("run")
	c := r.Turns[0].Calls[0]
	if c.Arguments != "{}" || c.Final == nil || *c.Final != *edited.EditedArguments || c.Edits != 1 || c.EditedSHA256 != "00ff" {
		t.Errorf("call %+v", c)
	}
	given := *edited.EditedArguments
	for _, p := range []event.Payload{
		event.ApprovalRequested{ApprovalID: "ap2", CallID: "c1", Name: "look", Arguments: "{}", By: "BeforeToolCall", ChangedFrom: &given},
		event.ApprovalDecided{ApprovalID: "ap2", CallID: "c1", Decision: event.DecisionApproved},
	} {
		e := numbered(fact(t, 1, p), s.LastSeq+1)
		if err := loop.Allows(s, e); err != nil {
			t.Fatal(err)
		}
		s = loop.Fold(s, e)
	}
	r, _ = s.Run("run")
	c = r.Turns[0].Calls[0]
	if c.Final != nil || c.Edits != 1 || c.EditedSHA256 != "" || len(c.Earlier) != 1 || c.Earlier[0].EditedSHA256 != "00ff" {
		t.Errorf("changed back to what the model wrote: %+v", c)
	}
}

func TestFoldKeepsPartialTextByBlock(t *testing.T) {
	t.Parallel()
	s := scenes()["turn calling"].build(t)
	delta := func(lane stream.Lane, block, text string) {
		e := fact(t, 1, event.AssistantDelta{Attempt: 1, Lane: lane, BlockID: block, Text: text})
		s = loop.Fold(s, numbered(e, s.LastSeq+1))
	}
	delta(stream.LaneReasoning, "r", "h")
	delta(stream.LaneText, "0", "one ")
	delta(stream.LaneReasoning, "r", "m")
	delta(stream.LaneText, "0", "two")
	delta(stream.LaneText, "1", "three")
	r, _ := s.Run("run")
	turn, _ := r.Turn()
	want := []loop.PartialBlock{
		{Lane: stream.LaneReasoning, BlockID: "r", Text: "hm"}, {Lane: stream.LaneText, BlockID: "0", Text: "one two"},
		{Lane: stream.LaneText, BlockID: "1", Text: "three"},
	}
	if got := turn.Shown.Blocks(); !slices.Equal(got, want) {
		t.Errorf("shown %+v; want %+v", got, want)
	}
	if turn.FirstSeq != 7 {
		t.Errorf("first delta at seq %d; want 7", turn.FirstSeq)
	}
}
