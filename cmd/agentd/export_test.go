package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// exportedSession runs agentd export.
func exportedSession(t *testing.T, db *storetest.DB, id string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	err := run(t.Context(), []string{"export", id, "--database-url", db.URL}, nil, &o, &e)
	return exitCode(err, &e), o.String(), e.String()
}

// exportedFacts are the events of an export.
func exportedFacts(t *testing.T, out string) []fact {
	t.Helper()
	var facts []fact
	for line := range strings.Lines(out) {
		var e struct {
			Kind      string          `json:"kind"`
			SessionID string          `json:"session_id"`
			Seq       int64           `json:"seq"`
			AtUS      int64           `json:"at_us"`
			Type      event.Type      `json:"type"`
			RunID     string          `json:"run_id"`
			Turn      int             `json:"turn_no"`
			ActorKind string          `json:"actor_kind"`
			ActorID   string          `json:"actor_id"`
			Payload   json.RawMessage `json:"payload"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Kind == "event" {
			facts = append(facts, fact{
				Seq: e.Seq, SessionID: e.SessionID, RunID: e.RunID, Turn: e.Turn, Type: e.Type, At: factTime(time.UnixMicro(e.AtUS)),
				ActorKind: e.ActorKind, ActorID: e.ActorID, Payload: string(e.Payload),
			})
		}
	}
	return facts
}

// exportedText is what an agent said, as the messages of an export have it.
func exportedText(t *testing.T, out string) (text string) {
	t.Helper()
	for line := range strings.Lines(out) {
		var m struct {
			Kind, Role string
			Parts      []struct{ Text string }
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m.Kind != "message" || m.Role != "assistant" {
			continue
		}
		for _, p := range m.Parts {
			text += p.Text
		}
	}
	return text
}

func kinds(t *testing.T, out string) map[string]int {
	t.Helper()
	n := map[string]int{}
	for line := range strings.Lines(out) {
		var l struct{ Kind string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		n[l.Kind]++
	}
	return n
}

func TestASessionIsExportedWhole(t *testing.T) {
	t.Parallel()
	python := findPython(t)
	db := storetest.New(t)
	s := decidingStack(t, db)
	id, purged := decidedSession(t, s), decidedSession(t, s)
	if code, _, errs := ledgerCommand(t, db, "purge", purged, "--reason", "test", "--yes"); code != 0 {
		t.Fatalf("purge: %d, %s", code, errs)
	}
	code, out, errs := exportedSession(t, db, strings.ToUpper(id))
	facts := stored(t, db, id)
	messages := scalar[int](t, db, `SELECT count(*) FROM agentd.messages WHERE session_id = $1`, id)
	if want := count(int64(len(facts)), "event") + ", " + count(int64(messages), "message"); code != 0 || errs != "1 session, "+want+", 6 decisions\n" {
		t.Errorf("%d, %q, want %s", code, errs, want)
	}
	sameStory(t, "export", exportedFacts(t, out), facts)
	if n := kinds(t, out); n["export"] != 1 || n["session"] != 1 || n["decision"] != 6 || n["message"] != messages || n["end"] != 1 {
		t.Errorf("lines: %v", n)
	}
	if python != "" {
		if list, whole := runPython(t, python, []byte(out)); len(list) > 0 || !whole {
			t.Errorf("the script: %v, whole %t", list, whole)
		}
	}
	if code, out, errs := exportedSession(t, db, purged); code != 0 || errs != "0 sessions, 1 purged session, 0 events, 0 messages, 0 decisions\n" || !strings.Contains(out, `"reason":"test"`) {
		t.Errorf("a purged session: %d, %q, %s", code, errs, out)
	}
	for _, none := range []string{looptest.NewID(), "nonsense"} {
		if code, _, errs := exportedSession(t, db, none); code != exitFailure || !strings.Contains(errs, "there is no session "+none) {
			t.Errorf("%s: %d, %q", none, code, errs)
		}
	}
}

// TestAnExportHasPagesAndWhatIsEnqueued: more events than a page, and a message
// whose place is before all others.
func TestAnExportHasPagesAndWhatIsEnqueued(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := newStack(t, db)
	id := s.Session(t)
	s.Start(t, id, "active")
	s.Say(t, id, "first of those that wait", event.PolicyInterrupt)
	titled := func(n int) event.Payload {
		title := strings.Repeat("x", n%7+1)
		return event.SessionUpdated{Title: &title}
	}
	for range 2 {
		s.appendAll(t, id, 600, titled)
	}
	_, out, errs := exportedSession(t, db, id)
	sameStory(t, "export", exportedFacts(t, out), stored(t, db, id))
	if n := kinds(t, out); n["event"] < 1200 || n["message"] != 2 {
		t.Errorf("%v, %s", n, errs)
	}
}

func TestAnExportThatCannotBeWrittenFails(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := newStack(t, db)
	id := s.Session(t)
	s.appendAll(t, id, 600, func(int) event.Payload {
		title := strings.Repeat("long ", 40)
		return event.SessionUpdated{Title: &title}
	})
	whole := scalar[int](t, db, `SELECT sum(length(payload::text)) FROM agentd.events WHERE session_id = $1`, id)
	for room := 0; room < whole; room += whole / 4 {
		err := run(t.Context(), []string{"export", id, "--database-url", db.URL}, nil, &fullDisk{room}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%d bytes: %v", room, err)
		}
	}
}

// appendAll writes payloads that belong to no run, in one append.
func (s *stack) appendAll(t *testing.T, id string, n int, payload func(i int) event.Payload) {
	t.Helper()
	h, err := s.store.Head(t.Context(), looptest.Tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	a := loop.Append{ID: looptest.NewID(), TenantID: looptest.Tenant, SessionID: id, Expected: h.LastSeq}
	for i := range n {
		e, err := event.New(event.Scope{SessionID: id, At: time.Now(), Actor: looptest.Tester}, payload(i))
		if err != nil {
			t.Fatal(err)
		}
		a.Events = append(a.Events, e)
	}
	if _, err := s.store.Append(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}
