package store_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// shelf creates sessions, each as it is described, and names them.
func shelf(t *testing.T, b *looptest.Bench, tenantID string, all ...loop.CreateSession) map[string]string {
	t.Helper()
	names := map[string]string{}
	for i, cmd := range all {
		cmd.TenantID, cmd.Actor = tenantID, looptest.Tester
		ref, err := b.Commands.CreateSession(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		names[ref.SessionID] = fmt.Sprint(i + 1)
	}
	return names
}

func TestListSessionsByWhatClientsSayOfThem(t *testing.T) {
	t.Parallel()
	_, s, b := library(t)
	meta := func(pairs ...string) map[string]string {
		out := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	names := shelf(t, b, looptest.Tenant,
		loop.CreateSession{Title: "Trip to Rome", User: "ann", Metadata: meta("team", "a", "plan", "gold")},
		loop.CreateSession{Title: "ÖLFARBEN: what they are", User: "bob", Metadata: meta("team", "a")},
		loop.CreateSession{User: "ann", Metadata: meta("team", "b", `a "key"`, `100% \o/`)},
		loop.CreateSession{Title: "the roman trip, again 100%", User: "ann b"},
		loop.CreateSession{},
	)
	theirs := shelf(t, b, another, loop.CreateSession{Title: "Trip to Rome", User: "ann", Metadata: meta("team", "a")})
	for id, name := range names {
		if name == "1" || name == "4" {
			j := b.Start(t, id, "hi")
			if name == "4" {
				b.Advance(t, j)
			}
		}
	}
	for name, c := range map[string]struct {
		filter loop.SessionFilter
		want   []string
	}{
		"all":                      {loop.SessionFilter{}, []string{"5", "4", "3", "2", "1"}},
		"user":                     {loop.SessionFilter{User: "ann"}, []string{"3", "1"}},
		"no such user":             {loop.SessionFilter{User: "an"}, nil},
		"user with U+0000":         {loop.SessionFilter{User: "ann\x00"}, nil},
		"word":                     {loop.SessionFilter{Query: "rome"}, []string{"1"}},
		"part of a word":           {loop.SessionFilter{Query: "ROM"}, []string{"4", "1"}},
		"words in any order":       {loop.SessionFilter{Query: " trip\tROM "}, []string{"4", "1"}},
		"words of which one lacks": {loop.SessionFilter{Query: "trip paris"}, nil},
		"case of other alphabets":  {loop.SessionFilter{Query: "ölFARB"}, []string{"2"}},
		"signs of a pattern":       {loop.SessionFilter{Query: "100%"}, []string{"4"}},
		"any sign":                 {loop.SessionFilter{Query: "_"}, nil},
		"blanks":                   {loop.SessionFilter{Query: " \t"}, []string{"5", "4", "3", "2", "1"}},
		"metadata":                 {loop.SessionFilter{Metadata: meta("team", "a")}, []string{"2", "1"}},
		"all of the metadata":      {loop.SessionFilter{Metadata: meta("team", "a", "plan", "gold")}, []string{"1"}},
		"metadata with quotes":     {loop.SessionFilter{Metadata: meta(`a "key"`, `100% \o/`)}, []string{"3"}},
		"metadata of another key":  {loop.SessionFilter{Metadata: meta("plan", "a")}, nil},
		"active":                   {loop.SessionFilter{ActiveOnly: true}, []string{"1"}},
		"everything at once":       {loop.SessionFilter{User: "ann", Query: "trip", Metadata: meta("team", "a"), ActiveOnly: true}, []string{"1"}},
		"everything but one":       {loop.SessionFilter{User: "bob", Query: "trip", Metadata: meta("team", "a"), ActiveOnly: true}, nil},
	} {
		for _, limit := range []int{0, 1} {
			var got []string
			page := loop.Page{Limit: limit}
			for {
				list, err := s.ListSessions(t.Context(), looptest.Tenant, c.filter, page)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for _, i := range list {
					got = append(got, names[i.ID])
					page.After = i.ID
				}
				if len(list) == 0 || limit == 0 {
					break
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, pages of %d: %v; want %v", name, limit, got, c.want)
			}
		}
	}
	list, err := s.ListSessions(t.Context(), another, loop.SessionFilter{User: "ann", Query: "rome"}, loop.Page{})
	if err != nil || len(list) != 1 || theirs[list[0].ID] != "1" {
		t.Errorf("the other tenant: %+v, %v; want its own", list, err)
	}
	for field, f := range map[string]loop.SessionFilter{
		"query": {Query: strings.Repeat("é", 201)}, "metadata": {Metadata: maps.Collect(func(yield func(string, string) bool) {
			for i := range 17 {
				if !yield(fmt.Sprint(i), "") {
					return
				}
			}
		})},
	} {
		var invalid *loop.InvalidError
		if _, err := s.ListSessions(t.Context(), looptest.Tenant, f, loop.Page{}); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v; want an InvalidError", field, err)
		}
	}
}

// TestPagesOfSessionsAreStableUnderWrites: sessions are made, renamed, written
// to and deleted between two pages, the one that ended a page as well.
func TestPagesOfSessionsAreStableUnderWrites(t *testing.T) {
	t.Parallel()
	_, s, b := library(t)
	all := make([]loop.CreateSession, 6)
	for i := range all {
		all[i] = loop.CreateSession{Title: "trip", User: "ann"}
	}
	names := shelf(t, b, looptest.Tenant, all...)
	byName := map[string]string{}
	for id, name := range names {
		byName[name] = id
	}
	list := func(after string) (got []string) {
		t.Helper()
		page, err := s.ListSessions(t.Context(), looptest.Tenant, loop.SessionFilter{User: "ann", Query: "trip"}, loop.Page{Limit: 2, After: byName[after]})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page {
			got = append(got, names[i.ID])
		}
		return got
	}
	rename := func(name string) {
		t.Helper()
		err := b.Commands.UpdateSession(t.Context(), loop.UpdateSession{
			TenantID: looptest.Tenant, SessionID: byName[name], Title: new("other"), Actor: looptest.Tester,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	got := list("")
	shelf(t, b, looptest.Tenant, all[0])
	b.Start(t, byName["1"], "hi")
	rename("5") // it ended the page, and passes the filter no more
	rename("3")
	got = append(got, list("5")...)
	remove(t, b, byName["2"])
	got = append(got, list("2")...)
	if want := []string{"6", "5", "4", "2", "1"}; !slices.Equal(got, want) {
		t.Errorf("pages %v; want %v", got, want)
	}
}

func TestSessionsShowTheirDescription(t *testing.T) {
	t.Parallel()
	_, s, b := library(t)
	names := shelf(t, b, looptest.Tenant, loop.CreateSession{}, loop.CreateSession{
		ExternalID: "mine", Title: "Trip <to> Rome", User: "ann", Metadata: map[string]string{"team": `"a"`, "none": ""},
	})
	for id, name := range names {
		got, err := s.GetSession(t.Context(), looptest.Tenant, id)
		if err != nil {
			t.Fatal(err)
		}
		want := loop.SessionInfo{}
		if name == "2" {
			want = loop.SessionInfo{Title: "Trip <to> Rome", User: "ann", Metadata: map[string]string{"team": `"a"`, "none": ""}}
		}
		if got.Title != want.Title || got.User != want.User || !reflect.DeepEqual(got.Metadata, want.Metadata) {
			t.Errorf("session %s: %+v; want %+v", name, got, want)
		}
	}
}

// broken is a library whose agent's answers break off.
func broken(t *testing.T) (*storetest.DB, *store.Store, *looptest.Bench) {
	t.Helper()
	db, s, b := library(t)
	agent := b.Engine.Agents["demo"]
	agent.Model = looptest.Answers(looptest.Answer(looptest.Text("do")))
	b.Engine.Agents["demo"] = agent
	return db, s, b
}

func TestListMessagesHidesWhatWasReplaced(t *testing.T) {
	t.Parallel()
	_, s, b := library(t)
	id := create(t, b, looptest.Tenant, "")
	b.Advance(t, b.Start(t, id, "one"))
	b.Advance(t, b.Start(t, id, "two"))
	list := func(replaced bool, page loop.Page) []loop.MessageInfo {
		t.Helper()
		got, err := s.ListMessages(t.Context(), looptest.Tenant, id, loop.MessageFilter{Replaced: replaced}, page)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	before := list(false, loop.Page{})
	run, err := b.Commands.StartRun(t.Context(), loop.StartRun{
		TenantID: looptest.Tenant, SessionID: id, ReplaceFrom: before[5].ID, Actor: looptest.Tester,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Advance(t, loop.Job{TenantID: looptest.Tenant, SessionID: id, RunID: run.RunID, Ticket: 1})
	now, all := list(false, loop.Page{}), list(true, loop.Page{})
	idOf := func(m loop.MessageInfo) string { return m.ID }
	if len(before) != 8 || len(now) != 8 || len(all) != 12 || !reflect.DeepEqual(now[:4], before[:4]) || now[4].RunID != run.RunID {
		t.Errorf("%d messages before, %d now, %d in all; want 8, 8 and 12", len(before), len(now), len(all))
	}
	for i, m := range all {
		gone := i >= 4 && i < 8
		if gone != (m.ReplacedSeq != 0) || gone && (m.ReplacedSeq != run.Seq+1 || m.ID != before[i].ID) {
			t.Errorf("message %d %s replaced at %d", i, m.ID, m.ReplacedSeq)
		}
	}
	for _, replaced := range []bool{false, true} {
		want := map[bool][]loop.MessageInfo{false: now, true: all}[replaced]
		got := pages(t, func(p loop.Page) ([]loop.MessageInfo, error) { return list(replaced, p), nil }, idOf)
		for i, m := range want {
			if len(got) != len(want) || got[i] != m.ID {
				t.Fatalf("pages with replaced %t: %v", replaced, got)
			}
		}
	}
	// A page that ended with a message which is gone goes on behind it.
	if rest := list(false, loop.Page{After: before[5].ID}); len(rest) != 4 || rest[0].ID != now[4].ID {
		t.Errorf("after a replaced message: %v", rest)
	}
}

func TestARetriedRunShowsNothingOfItsFailure(t *testing.T) {
	t.Parallel()
	db, s, b := broken(t)
	id := create(t, b, looptest.Tenant, "")
	j := b.Start(t, id, "hi")
	b.Advance(t, j)
	failed, err := s.GetRun(t.Context(), looptest.Tenant, j.RunID)
	if err != nil || failed.Status != loop.RunFailed || failed.EndedSeq != int64(len(b.Events(t, id))) || failed.EndedAt == nil || failed.Error == "" || failed.Retries != 0 {
		t.Fatalf("failed %+v, %v", failed, err)
	}
	retry := func() {
		t.Helper()
		if _, err := b.Commands.RetryRun(t.Context(), loop.RetryRun{TenantID: looptest.Tenant, SessionID: id, RunID: j.RunID, Actor: looptest.Tester}); err != nil {
			t.Fatal(err)
		}
	}
	retry()
	queued, err := s.GetRun(t.Context(), looptest.Tenant, j.RunID)
	if err != nil || queued.Status != loop.RunQueued || queued.Reason != "" || queued.Error != "" || queued.EndedAt != nil || queued.EndedSeq != 0 || queued.Retries != 1 {
		t.Errorf("queued %+v, %v; want nothing of the failure", queued, err)
	}
	j.Ticket = 2
	b.Advance(t, j)
	retry()
	b.Engine.Agents["demo"] = looptest.NewBench(s, looptest.Answers(looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)))).Engine.Agents["demo"]
	j.Ticket = 3
	b.Advance(t, j)
	done, err := s.GetRun(t.Context(), looptest.Tenant, j.RunID)
	if err != nil || done.Status != loop.RunCompleted || done.Retries != 2 || done.Turns != 3 || done.Error != "" || done.EndedSeq != int64(len(b.Events(t, id))) {
		t.Errorf("done %+v, %v", done, err)
	}
	list, err := s.ListMessages(t.Context(), looptest.Tenant, id, loop.MessageFilter{}, loop.Page{})
	if err != nil || len(list) != 2 || list[1].Text() != "done" || list[1].Partial {
		t.Errorf("conversation %+v, %v", list, err)
	}
	wantLines(t, "run_summary", lines(t, db, `SELECT status, reason, error, turns, retries FROM agentd.run_summary WHERE run_id = $1`, j.RunID),
		[]string{"completed|stop|<nil>|3|2"})
	wantLines(t, "timeline", lines(t, db, `
		SELECT type, summary FROM agentd.timeline
		WHERE session_id = $1 AND type IN ('run.failed', 'messages.replaced', 'run.queued', 'run.resumed', 'assistant.stopped') ORDER BY seq`, id),
		timelineOf(b.Events(t, id)))
}

// timelineOf is what the timeline has to say of a run that failed twice.
func timelineOf(events []event.Event) (out []string) {
	for _, e := range events {
		p, _ := event.Decode(e)
		switch p := p.(type) {
		case event.RunQueued:
			out = append(out, fmt.Sprintf("%s|%s", e.Type, strings.TrimSpace(fmt.Sprintf("ticket %d %s", p.Ticket, p.Cause))))
		case event.RunResumed:
			out = append(out, fmt.Sprintf("%s|retry worker %s epoch %d", e.Type, p.WorkerID, p.Epoch))
		case event.MessagesReplaced:
			out = append(out, fmt.Sprintf("%s|1 messages", e.Type))
		case event.RunFailed:
			out = append(out, fmt.Sprintf("%s|%s: %s", e.Type, p.Reason, p.Error))
		case event.AssistantStopped:
			out = append(out, fmt.Sprintf("%s|%s: do", e.Type, p.Reason))
		}
	}
	return out
}

func TestTimelineTellsWhatClientsSayOfASession(t *testing.T) {
	t.Parallel()
	db, s, b := library(t)
	ref, err := b.Commands.CreateSession(t.Context(), loop.CreateSession{
		TenantID: looptest.Tenant, ExternalID: "mine", Title: "Ann's trip", Metadata: map[string]string{"a": "1"}, Actor: looptest.Tester,
	})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, appendOf(ref.SessionID, 1,
		encode(t, ref.SessionID, "", 0, event.SessionUpdated{Title: new("Rome"), Metadata: map[string]*string{"a": nil}}),
		encode(t, ref.SessionID, "", 0, event.InputRejected{InputID: looptest.NewID(), Policy: "replace_from"}),
		encode(t, ref.SessionID, "", 0, event.InputRejected{InputID: looptest.NewID(), Policy: "reject", ActiveRunID: "x"})))
	wantLines(t, "timeline", lines(t, db, `SELECT type, summary FROM agentd.timeline WHERE session_id = $1 ORDER BY seq`, ref.SessionID), []string{
		"session.created|mine 'Ann''s trip'", `session.updated|'Rome' {"a":null}`, "input.rejected|replace_from", "input.rejected|reject run x is active",
	})
}

func TestTailReportsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{})
	id := newSession(t, s)
	message := looptest.NewID()
	mustAppend(t, s, appendOf(id, 1, encode(t, id, "", 0, event.MessageCreated{
		MessageID: message, Role: hooks.RoleUser, Parts: []hooks.Part{{Type: hooks.PartText, Text: "hi"}},
	})))
	if got, err := s.Tail(limit(t), looptest.Tenant, strings.ToUpper(id), strings.ToUpper(message)); err != nil ||
		!reflect.DeepEqual(got, loop.Tail{Role: hooks.RoleUser, Text: "hi", MessageIDs: []string{message}}) {
		t.Errorf("a message of no run: %+v, %v", got, err)
	}
	exec(t, db, `UPDATE agentd.messages SET parts = '"x"'`)
	if _, err := s.Tail(limit(t), looptest.Tenant, id, message); err == nil || !strings.Contains(err.Error(), "parts of message "+message) {
		t.Errorf("unreadable parts: %v", err)
	}
	exec(t, db, `ALTER TABLE agentd.messages RENAME COLUMN parts TO pieces`)
	if _, err := s.Tail(limit(t), looptest.Tenant, id, message); err == nil || errors.Is(err, loop.ErrNotFound) {
		t.Errorf("without the column: %v", err)
	}
}
