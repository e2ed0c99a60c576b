package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

const another = "another"

// library is a store with two tenants. Its bench's agent calls a tool, and
// then answers.
func library(t *testing.T) (*storetest.DB, *store.Store, *looptest.Bench) {
	t.Helper()
	db := storetest.New(t)
	exec(t, db, `INSERT INTO agentd.tenants (id, name) VALUES ('another', 'Another')`)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	return db, s, looptest.NewBench(s, looptest.Answers(
		looptest.Answer(looptest.ToolCall("c1", "ping", `{}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	), looptest.Says("ping", "pong"))
}

func create(t *testing.T, b *looptest.Bench, tenantID, externalID string) string {
	t.Helper()
	ref, err := b.Commands.CreateSession(t.Context(), loop.CreateSession{TenantID: tenantID, ExternalID: externalID, Actor: looptest.Tester})
	if err != nil {
		t.Fatal(err)
	}
	return ref.SessionID
}

func TestReadWhatARunLeftBehind(t *testing.T) {
	t.Parallel()
	_, s, b := library(t)
	id := create(t, b, looptest.Tenant, "mine")
	before := time.Now().Add(-time.Minute)
	job := b.Start(t, id, "hello")

	session, err := s.GetSession(t.Context(), looptest.Tenant, id)
	if err != nil || session.ActiveRunID != job.RunID || session.ExternalID != "mine" || session.TenantID != looptest.Tenant {
		t.Errorf("session while it runs: %+v, %v", session, err)
	}
	run, err := s.GetRun(t.Context(), looptest.Tenant, job.RunID)
	if err != nil || run.Status != loop.RunQueued || run.StartedAt != nil || run.EndedAt != nil || run.Turns != 0 {
		t.Errorf("run before its claim: %+v, %v", run, err)
	}
	b.Advance(t, job)

	run, err = s.GetRun(t.Context(), looptest.Tenant, job.RunID)
	if err != nil {
		t.Fatal(err)
	}
	if run.Status != loop.RunCompleted || run.Reason != string(stream.FinishStop) || run.Turns != 2 || run.InputTokens != 6 || run.OutputTokens != 10 || run.Agent != "demo" ||
		run.SessionID != id || run.CancelRequested || run.MessageID == "" || run.AssistantMessageID == "" {
		t.Errorf("run at its end: %+v", run)
	}
	if run.StartedAt == nil || run.EndedAt == nil || run.CreatedAt.Before(before) || run.EndedAt.Before(*run.StartedAt) || run.CreatedAt.Location() != time.UTC {
		t.Errorf("times of the run: %v, %v, %v", run.CreatedAt, run.StartedAt, run.EndedAt)
	}
	events := b.Events(t, id)
	session, err = s.GetSession(t.Context(), looptest.Tenant, "mine")
	if err != nil || session.ID != id || session.ActiveRunID != "" || session.LastSeq != int64(len(events)) ||
		!session.UpdatedAt.Equal(events[len(events)-1].At) || !session.CreatedAt.Equal(events[0].At) {
		t.Errorf("session at the end, by its external id: %+v, %v", session, err)
	}

	messages, err := s.ListMessages(t.Context(), looptest.Tenant, id, loop.MessageFilter{}, loop.Page{})
	if err != nil {
		t.Fatal(err)
	}
	state, err := s.Load(t.Context(), looptest.Tenant, id, job.RunID)
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, m := range messages {
		got = append(got, fmt.Sprintf("%s %s %d %v", m.Role, m.ID, m.Position, m.Parts))
		if m.CreatedAt.Before(before) || (m.Role == hooks.RoleUser) != (m.Turn == 0) || m.RunID != job.RunID {
			t.Errorf("message %+v", m)
		}
	}
	for _, m := range state.Messages {
		want = append(want, fmt.Sprintf("%s %s %d %v", m.Role, m.ID, m.Position, m.Parts))
	}
	if len(got) != 4 || len(want) != len(got) {
		t.Errorf("messages:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// pages lists page by page, and the ids of all.
func pages[T any](t *testing.T, list func(loop.Page) ([]T, error), id func(T) string) (ids []string) {
	t.Helper()
	page := loop.Page{Limit: 2}
	for {
		got, err := list(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range got {
			ids = append(ids, id(e))
		}
		if len(got) < page.Limit {
			return ids
		}
		page.After = ids[len(ids)-1]
	}
}

func TestListsComeInPagesAndShowATenantItsOwn(t *testing.T) {
	t.Parallel()
	_, s, b := library(t)
	var sessions, runs []string
	for i := range 5 {
		id := create(t, b, looptest.Tenant, fmt.Sprint("number ", i))
		job := b.Start(t, id, "hello")
		b.Advance(t, job)
		sessions, runs = append(sessions, id), append(runs, job.RunID)
	}
	second := b.Start(t, sessions[4], "again")
	runs = append(runs, second.RunID)
	foreign := create(t, b, another, "number 0")
	// The newest first.
	slices.Reverse(sessions)
	slices.Reverse(runs)

	listSessions := func(p loop.Page) ([]loop.SessionInfo, error) {
		return s.ListSessions(t.Context(), looptest.Tenant, loop.SessionFilter{}, p)
	}
	listRuns := func(session string) func(loop.Page) ([]loop.RunInfo, error) {
		return func(p loop.Page) ([]loop.RunInfo, error) {
			return s.ListRuns(t.Context(), looptest.Tenant, session, p)
		}
	}
	sessionID := func(i loop.SessionInfo) string { return i.ID }
	runID := func(i loop.RunInfo) string { return i.ID }
	if got := pages(t, listSessions, sessionID); !slices.Equal(got, sessions) {
		t.Errorf("sessions %v, want %v", got, sessions)
	}
	if got := pages(t, listRuns(""), runID); !slices.Equal(got, runs) {
		t.Errorf("runs %v, want %v", got, runs)
	}
	if got := pages(t, listRuns(sessions[0]), runID); !slices.Equal(got, runs[:2]) {
		t.Errorf("runs of a session %v, want %v", got, runs[:2])
	}
	list, err := s.ListRuns(t.Context(), looptest.Tenant, sessions[0], loop.Page{})
	if err != nil || len(list) != 2 || list[0].Turns != 0 || list[1].Turns != 2 {
		t.Errorf("turns of the runs of a session: %+v, %v", list, err)
	}
	all, err := s.ListMessages(t.Context(), looptest.Tenant, sessions[0], loop.MessageFilter{}, loop.Page{})
	if err != nil || len(all) != 5 {
		t.Fatalf("%d messages, %v; want 5", len(all), err)
	}
	messageID := func(m loop.MessageInfo) string { return m.ID }
	got := pages(t, func(p loop.Page) ([]loop.MessageInfo, error) {
		return s.ListMessages(t.Context(), looptest.Tenant, sessions[0], loop.MessageFilter{}, p)
	}, messageID)
	for i, m := range all {
		if got[i] != m.ID {
			t.Errorf("message %d is %s, want %s", i, got[i], m.ID)
		}
	}

	theirs, err := s.ListSessions(t.Context(), another, loop.SessionFilter{}, loop.Page{})
	if err != nil || len(theirs) != 1 || theirs[0].ID != foreign {
		t.Errorf("sessions of the other tenant: %v, %v", theirs, err)
	}
	if got, err := s.ListRuns(t.Context(), another, "", loop.Page{}); err != nil || len(got) != 0 {
		t.Errorf("runs of the other tenant: %v, %v", got, err)
	}

	// The element that ended a page may be hidden before the next is asked for.
	remove(t, b, sessions[1])
	rest, err := listSessions(loop.Page{After: sessions[1]})
	if err != nil || len(rest) != 3 || rest[0].ID != sessions[2] {
		t.Errorf("after a deleted session: %v, %v", rest, err)
	}
	if got := pages(t, listSessions, sessionID); slices.Contains(got, sessions[1]) {
		t.Error("a deleted session is listed")
	}
	if got := pages(t, listRuns(""), runID); slices.Contains(got, runs[2]) {
		t.Error("a run of a deleted session is listed")
	}
}

func remove(t *testing.T, b *looptest.Bench, sessionID string) {
	t.Helper()
	if err := b.Commands.DeleteSession(t.Context(), looptest.Tenant, sessionID, looptest.Tester); err != nil {
		t.Fatal(err)
	}
}

func TestReadsOfWhatATenantDoesNotSeeAreNotFound(t *testing.T) {
	t.Parallel()
	_, s, b := library(t)
	id := create(t, b, looptest.Tenant, "mine")
	job := b.Start(t, id, "hello")
	b.Advance(t, job)
	gone := create(t, b, looptest.Tenant, "gone")
	goneJob := b.Start(t, gone, "hello")
	b.Advance(t, goneJob)
	remove(t, b, gone)
	other := create(t, b, looptest.Tenant, "")

	none := looptest.NewID()
	ctx := t.Context()
	for name, read := range map[string]func() error{
		"foreign session":          func() error { _, err := s.GetSession(ctx, another, id); return err },
		"foreign external id":      func() error { _, err := s.GetSession(ctx, another, "mine"); return err },
		"missing session":          func() error { _, err := s.GetSession(ctx, looptest.Tenant, none); return err },
		"deleted session":          func() error { _, err := s.GetSession(ctx, looptest.Tenant, gone); return err },
		"deleted external id":      func() error { _, err := s.GetSession(ctx, looptest.Tenant, "gone"); return err },
		"session with U+0000":      func() error { _, err := s.GetSession(ctx, looptest.Tenant, "\x00"); return err },
		"tenant with U+0000":       func() error { _, err := s.GetSession(ctx, "\x00", id); return err },
		"foreign run":              func() error { _, err := s.GetRun(ctx, another, job.RunID); return err },
		"missing run":              func() error { _, err := s.GetRun(ctx, looptest.Tenant, none); return err },
		"no run id":                func() error { _, err := s.GetRun(ctx, looptest.Tenant, "x"); return err },
		"run of a deleted session": func() error { _, err := s.GetRun(ctx, looptest.Tenant, goneJob.RunID); return err },
		"runs, foreign":            func() error { _, err := s.ListRuns(ctx, another, id, loop.Page{}); return err },
		"runs, deleted":            func() error { _, err := s.ListRuns(ctx, looptest.Tenant, gone, loop.Page{}); return err },
		"runs, no id":              func() error { _, err := s.ListRuns(ctx, looptest.Tenant, "x", loop.Page{}); return err },
		"runs, no tenant":          func() error { _, err := s.ListRuns(ctx, "\x00", "", loop.Page{}); return err },
		"runs after nothing":       func() error { _, err := s.ListRuns(ctx, looptest.Tenant, id, loop.Page{After: none}); return err },
		"runs after no id":         func() error { _, err := s.ListRuns(ctx, looptest.Tenant, "", loop.Page{After: "x"}); return err },
		"runs after another's": func() error {
			_, err := s.ListRuns(ctx, looptest.Tenant, other, loop.Page{After: job.RunID})
			return err
		},
		"sessions after a foreign one": func() error {
			_, err := s.ListSessions(ctx, another, loop.SessionFilter{}, loop.Page{After: id})
			return err
		},
		"sessions after no id": func() error {
			_, err := s.ListSessions(ctx, looptest.Tenant, loop.SessionFilter{}, loop.Page{After: "x"})
			return err
		},
		"messages, foreign": func() error {
			_, err := s.ListMessages(ctx, another, id, loop.MessageFilter{}, loop.Page{})
			return err
		},
		"messages, deleted": func() error {
			_, err := s.ListMessages(ctx, looptest.Tenant, gone, loop.MessageFilter{}, loop.Page{})
			return err
		},
		"messages after nothing": func() error {
			_, err := s.ListMessages(ctx, looptest.Tenant, id, loop.MessageFilter{}, loop.Page{After: none})
			return err
		},
		"messages after no id": func() error {
			_, err := s.ListMessages(ctx, looptest.Tenant, id, loop.MessageFilter{}, loop.Page{After: "x"})
			return err
		},
	} {
		if err := read(); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", name, err)
		}
	}
	if got, err := s.ListSessions(ctx, "\x00", loop.SessionFilter{}, loop.Page{}); err != nil || len(got) != 0 {
		t.Errorf("sessions of no tenant: %v, %v", got, err)
	}
}

func TestGetSessionPrefersTheIDToAnExternalID(t *testing.T) {
	t.Parallel()
	_, s, b := library(t)
	id := create(t, b, looptest.Tenant, "")
	create(t, b, looptest.Tenant, id)
	got, err := s.GetSession(t.Context(), looptest.Tenant, strings.ToUpper(id))
	if err != nil || got.ID != id {
		t.Errorf("got %+v, %v; want session %s", got, err, id)
	}
}

func TestReadsReportABrokenDatabase(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Empty)
	s := store.New(db.Pool, store.Options{})
	id := looptest.NewID()
	ctx := t.Context()
	for name, read := range map[string]func() error{
		"GetSession": func() error { _, err := s.GetSession(ctx, looptest.Tenant, id); return err },
		"ListSessions": func() error {
			_, err := s.ListSessions(ctx, looptest.Tenant, loop.SessionFilter{}, loop.Page{})
			return err
		},
		"ListSessions, page 2": func() error {
			_, err := s.ListSessions(ctx, looptest.Tenant, loop.SessionFilter{}, loop.Page{After: id})
			return err
		},
		"GetRun":            func() error { _, err := s.GetRun(ctx, looptest.Tenant, id); return err },
		"ListRuns":          func() error { _, err := s.ListRuns(ctx, looptest.Tenant, "", loop.Page{}); return err },
		"ListRuns, session": func() error { _, err := s.ListRuns(ctx, looptest.Tenant, id, loop.Page{}); return err },
		"ListRuns, page 2":  func() error { _, err := s.ListRuns(ctx, looptest.Tenant, "", loop.Page{After: id}); return err },
		"ListMessages": func() error {
			_, err := s.ListMessages(ctx, looptest.Tenant, id, loop.MessageFilter{}, loop.Page{})
			return err
		},
		"Tail":           func() error { _, err := s.Tail(ctx, looptest.Tenant, id, id); return err },
		"Next":           func() error { _, err := s.Next(ctx, looptest.Tenant, id, 0, 1); return err },
		"WriteMemory":    func() error { return s.WriteMemory(ctx, looptest.Tenant, "k", "v") },
		"ReadMemory":     func() error { _, _, err := s.ReadMemory(ctx, looptest.Tenant, "k"); return err },
		"DeleteMemory":   func() error { _, err := s.DeleteMemory(ctx, looptest.Tenant, "k"); return err },
		"ClearMemories":  func() error { _, err := s.ClearMemories(ctx, looptest.Tenant); return err },
		"SearchMemories": func() error { _, err := s.SearchMemories(ctx, looptest.Tenant, "k", 0); return err },
	} {
		if err := read(); err == nil || errors.Is(err, loop.ErrNotFound) || !strings.Contains(err.Error(), "42P01") {
			t.Errorf("%s: %v, want that a table is missing", name, err)
		}
	}
}

func TestListMessagesReportsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{})
	id := newSession(t, s)
	mustAppend(t, s, say(t, id, 1))
	exec(t, db, `UPDATE agentd.messages SET parts = '"x"'`)
	if _, err := s.ListMessages(t.Context(), looptest.Tenant, id, loop.MessageFilter{}, loop.Page{}); err == nil || !strings.Contains(err.Error(), "parts of message") {
		t.Errorf("unreadable parts: %v", err)
	}
	exec(t, db, `ALTER TABLE agentd.messages RENAME COLUMN parts TO pieces`)
	if _, err := s.ListMessages(t.Context(), looptest.Tenant, id, loop.MessageFilter{}, loop.Page{}); err == nil {
		t.Error("no error without the column")
	}
}

func TestForgottenMemoriesAreTheTenantsOwn(t *testing.T) {
	t.Parallel()
	_, s, _ := library(t)
	ctx := t.Context()
	for _, tenant := range []string{looptest.Tenant, another} {
		for _, key := range []string{"a", "b", "c\uFFFD"} {
			if err := s.WriteMemory(ctx, tenant, key, "x"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, want := range []bool{true, false} {
		if ok, err := s.DeleteMemory(ctx, looptest.Tenant, "c\x00"); ok != want || err != nil {
			t.Errorf("delete: %t, %v, want %t", ok, err, want)
		}
	}
	for _, want := range []int64{2, 0} {
		if n, err := s.ClearMemories(ctx, looptest.Tenant); n != want || err != nil {
			t.Errorf("clear: %d, %v, want %d", n, err, want)
		}
	}
	if left, err := s.SearchMemories(ctx, another, "", 0); len(left) != 3 || err != nil {
		t.Errorf("the other tenant has %v, %v", left, err)
	}
}

func TestMemories(t *testing.T) {
	t.Parallel()
	_, s, _ := library(t)
	ctx := t.Context()
	for _, m := range []struct{ tenant, key, content string }{
		{looptest.Tenant, "coffee", "The user drinks espresso, never filter coffee. Coffee at nine."},
		{looptest.Tenant, "breakfast", "Coffee and a croissant"},
		{looptest.Tenant, "office", "overwritten below"},
		{looptest.Tenant, "office", "Room 17, second floor, \x00"},
		{another, "coffee", "Tea. The other tenant has tea in place of coffee."},
	} {
		if err := s.WriteMemory(ctx, m.tenant, m.key, m.content); err != nil {
			t.Fatalf("write %s: %v", m.key, err)
		}
	}
	if content, ok, err := s.ReadMemory(ctx, looptest.Tenant, "office"); content != "Room 17, second floor, \uFFFD" || !ok || err != nil {
		t.Errorf("read = %q, %t, %v", content, ok, err)
	}
	if content, ok, err := s.ReadMemory(ctx, another, "office"); content != "" || ok || err != nil {
		t.Errorf("read of another tenant = %q, %t, %v", content, ok, err)
	}
	for query, want := range map[string][]string{
		"coffee":              {"coffee", "breakfast"}, // the better match first
		"COFFEE -croissant":   {"coffee"},
		`"second floor"`:      {"office"},
		"espresso or 17":      {"coffee", "office"},
		"tea":                 nil,
		"' ; drop | & ! <-> ": nil,
		"":                    {"office", "breakfast", "coffee"}, // the newest first
		" ... ":               {"office", "breakfast", "coffee"},
	} {
		found, err := s.SearchMemories(ctx, looptest.Tenant, query, 10)
		if err != nil {
			t.Errorf("search %q: %v", query, err)
		}
		var got []string
		for _, m := range found {
			got = append(got, m.Key)
		}
		if query == "espresso or 17" {
			slices.Sort(got)
		}
		if !slices.Equal(got, want) {
			t.Errorf("search %q = %q, want %q", query, got, want)
		}
	}
	if found, err := s.SearchMemories(ctx, looptest.Tenant, "coffee", 1); len(found) != 1 || err != nil {
		t.Errorf("search with limit 1 = %v, %v", found, err)
	}
	for name, m := range map[string][2]string{
		"no key": {"", "x"}, "long key": {strings.Repeat("ü", loop.MaxMemoryKey/2) + "k", "x"},
		"long content": {"k", strings.Repeat("x", loop.MaxMemoryContent+1)},
	} {
		if err := s.WriteMemory(ctx, looptest.Tenant, m[0], m[1]); !errors.Is(err, loop.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if err := s.WriteMemory(ctx, looptest.Tenant, strings.Repeat("ü", loop.MaxMemoryKey/2), strings.Repeat("ab ü", loop.MaxMemoryContent/5)+"word"); err != nil {
		t.Errorf("the longest: %v", err)
	}
}
