package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/seed-2ca4966b/agentd/api/apitest"
	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// say runs one message of the session to its end.
func (s *stack) say(t *testing.T, sessionID, text string) {
	t.Helper()
	if r := s.Advance(t, s.Start(t, sessionID, text)); !r.Status.Terminal() {
		t.Fatalf("the run is %s", r.Status)
	}
}

func TestEveryCursorHasOneAnswer(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	id, long := s.Session(t), s.Session(t)
	s.say(t, id, "one")
	for range 3 {
		s.say(t, long, "many")
	}
	newest, foreign := int64(len(stored(t, s.db, id))), int64(len(stored(t, s.db, long)))
	cursors := append(apitest.Cursors(newest), apitest.Cursor{
		Name: "the newest id of a longer session", Header: []string{fmt.Sprint(foreign)}, Reason: "cursor_ahead",
	})

	check := func(t *testing.T, s *stack) {
		t.Helper()
		for _, c := range cursors {
			if err := apitest.CheckCursor(t.Context(), s.client, s.eventsURL(id, ""), "", newest, c); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
		if log := s.logged.String(); strings.Contains(log, "ERROR") {
			t.Errorf("a cursor broke something: %s", log)
		}
	}
	check(t, s)

	// An id that both sessions have is the session's own.
	for _, f := range s.replay(t, id, 3) {
		if f.SessionID != id {
			t.Errorf("seq %d of session %s in the stream of another", f.Seq, f.SessionID)
		}
	}
	before := s.replay(t, id, fromStart)
	s = s.again(t)
	sameStory(t, "after a restart", s.replay(t, id, fromStart), before)
	check(t, s)
	s.say(t, id, "more")
	if next := s.replay(t, id, newest); len(next) == 0 || next[0].Seq != newest+1 {
		t.Errorf("after a restart the ids go on with %+v, want %d", next, newest+1)
	}
}

func TestAFutureCursorIsRefusedOverConnect(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	id := s.Session(t)
	_, err := s.sessions.ListEvents(t.Context(), connect.NewRequest(&agentdv1.ListEventsRequest{SessionId: id, After: 2}))
	wantRefused(t, err, connect.CodeOutOfRange, "cursor_ahead")
	w, err := s.sessions.WatchEvents(t.Context(), connect.NewRequest(&agentdv1.WatchEventsRequest{SessionId: id, After: 1 << 63}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	if w.Receive() {
		t.Errorf("received %v", w.Msg())
	}
	wantRefused(t, w.Err(), connect.CodeOutOfRange, "cursor_ahead")
}

// wantRefused checks an error and returns its detail.
func wantRefused(t *testing.T, err error, code connect.Code, reason string) *agentdv1.ErrorReason {
	t.Helper()
	var e *connect.Error
	if !errors.As(err, &e) || e.Code() != code || len(e.Details()) != 1 || e.Message() == "" {
		t.Fatalf("error %v, want %s with a message and a detail", err, code)
	}
	v, err := e.Details()[0].Value()
	if err != nil {
		t.Fatal(err)
	}
	detail, ok := v.(*agentdv1.ErrorReason)
	if !ok || detail.GetReason() != reason {
		t.Fatalf("detail %v, want reason %s", v, reason)
	}
	return detail
}

func TestACursorInDeltasThatRetentionRemovedGoesOnWithTheWholeAnswer(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	answer := looptest.Answer(looptest.Finish(stream.FinishStop))
	for i := range 20 {
		answer = append(looptest.Answer(looptest.Text(fmt.Sprint("t", i, " ")), looptest.Reasoning(fmt.Sprint("r", i, " "))), answer...)
	}
	s := newStack(t, db, playing(looptest.Answers(answer)))
	id := s.Session(t)
	s.say(t, id, "one")
	all := stored(t, db, id)
	whole := only[event.AssistantCompleted](t, all)
	// A reader that stands in the middle of the answer, and is told what follows.
	cursor := whole.FirstSeq + 10
	following := s.listen(t, id, "", cursor)
	following.facts(t, len(above(all, cursor)))
	execute(t, db, `DELETE FROM agentd.events WHERE session_id = $1 AND type = 'assistant.delta'`, id)
	left := stored(t, db, id)
	if len(all)-len(left) != 40 {
		t.Fatalf("%d deltas were removed, want 40", len(all)-len(left))
	}

	there := newStack(t, db)
	for after := whole.FirstSeq - 1; after <= whole.FirstSeq+40; after++ {
		got := there.replay(t, id, after)
		sameStory(t, fmt.Sprint("after ", after), got, above(left, after))
		if after < whole.FirstSeq+39 && (got[0].Type != event.TypeAssistantCompleted || only[event.AssistantCompleted](t, got[:1]).FirstSeq > after+1) {
			t.Errorf("after %d it goes on with %s", after, got[0].Type)
		}
		// A process that has the deltas in its memory still may show them.
		sameStory(t, fmt.Sprint("here, after ", after), withoutDeltas(s.replay(t, id, after)), above(left, after))
	}
	sameStory(t, "from the start", there.replay(t, id, fromStart), left)
	sameStory(t, "watch", watched(t, there.watch(t, id, cursor)), above(left, cursor))
	sameStory(t, "list", there.listed(t, id, cursor, 2), above(left, cursor))

	// Old cursors go on over the hole and into what is live.
	job := s.Start(t, id, "two")
	behind, cold := there.listen(t, id, "?until=idle", cursor), newStack(t, db).listen(t, id, "?until=idle", whole.FirstSeq)
	s.Advance(t, job)
	now := stored(t, db, id)
	sameStory(t, "live over the hole", behind.facts(t, toTheEnd), above(now, cursor))
	sameStory(t, "live over the hole in a fresh process", cold.facts(t, toTheEnd), above(now, whole.FirstSeq))
	next := above(now, all[len(all)-1].Seq)
	sameStory(t, "the reader that was there all the time", following.facts(t, len(next)), next)
}

func withoutDeltas(facts []fact) []fact {
	return slices.DeleteFunc(facts, func(f fact) bool { return f.Type == event.TypeAssistantDelta })
}

func TestACursorAtTheEndHasNothingLeft(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	id := s.Session(t)
	s.say(t, id, "one")
	last := int64(len(stored(t, s.db, id)))
	res, err := s.openSSE(t.Context(), id, "?until=idle", last)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusNoContent {
		t.Errorf("status %d, want 204", res.StatusCode)
	}
	// Without until=idle it is live.
	live := s.listen(t, id, "", last)
	s.say(t, id, "two")
	if got := live.facts(t, 1); got[0].Seq != last+1 {
		t.Errorf("seq %d, want %d", got[0].Seq, last+1)
	}
}

func TestTheStreamOfARunIsItsPartOfTheSession(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	id := s.Session(t)
	s.say(t, id, "one")
	s.say(t, id, "two")
	url := func(runID string) string { return s.url + "/v1/runs/" + runID + "/events" }
	get := func(runID string, after int64) (status int, body io.Reader) {
		t.Helper()
		req, err := http.NewRequestWithContext(patient(t), http.MethodGet, url(runID), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Last-Event-ID", fmt.Sprint(after))
		res, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res.StatusCode, res.Body
	}
	all := stored(t, s.db, id)
	newest := all[len(all)-1].Seq
	runs := slices.Compact(slices.Collect(func(yield func(string) bool) {
		for _, f := range all[1:] {
			if !yield(f.RunID) {
				return
			}
		}
	}))
	if len(runs) != 2 {
		t.Fatalf("runs %v, want two, one behind the other", runs)
	}
	for _, runID := range runs {
		want := slices.DeleteFunc(slices.Clone(all), func(f fact) bool { return f.RunID != runID })
		last := want[len(want)-1].Seq
		for after := range last {
			_, body := get(runID, after)
			sameStory(t, fmt.Sprint("after ", after), newSSEReader(body).facts(t, toTheEnd), above(want, after))
		}
		for after := last; after <= newest+1; after++ {
			want := http.StatusNoContent
			if after > newest {
				want = http.StatusBadRequest
			}
			if status, _ := get(runID, after); status != want {
				t.Errorf("after %d: status %d, want %d", after, status, want)
			}
		}
	}
	if status, _ := get(id, 0); status != http.StatusNotFound {
		t.Errorf("a session's id: status %d, want 404", status)
	}
}
