package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// ids are what a tenant may know of a session.
type ids struct{ session, external, run, message, key string }

func TestAForeignIDBehavesAsOneThatDoesNotExist(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	execute(t, db, `INSERT INTO agentd.tenants (id, name) VALUES ('other', 'Other')`)
	s := newStack(t, db)
	ctx := t.Context()
	ref, err := s.Commands.CreateSession(ctx, loop.CreateSession{TenantID: looptest.Tenant, ExternalID: "ours", Actor: looptest.Tester})
	if err != nil {
		t.Fatal(err)
	}
	s.say(t, ref.SessionID, "a secret")
	run, err := s.Commands.StartRun(ctx, loop.StartRun{
		TenantID: looptest.Tenant, SessionID: ref.SessionID, Text: "wait", IdempotencyKey: "key", Actor: looptest.Tester,
	})
	if err != nil {
		t.Fatal(err)
	}
	ours := ids{session: ref.SessionID, external: "ours", run: run.RunID, message: run.MessageID, key: "key"}
	nobodys := ids{session: looptest.NewID(), external: "nobody's", run: looptest.NewID(), message: looptest.NewID(), key: "nobody's"}
	before := stored(t, db, ours.session)

	for name, ask := range map[string]func(ctx context.Context, tenant string, id ids) error{
		"GetSession": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.store.GetSession(ctx, tenant, id.session)
			return err
		},
		"GetSession by external id": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.store.GetSession(ctx, tenant, id.external)
			return err
		},
		"ListMessages": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.store.ListMessages(ctx, tenant, id.session, loop.MessageFilter{}, loop.Page{})
			return err
		},
		"ListMessages after a message": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.store.ListMessages(ctx, tenant, id.session, loop.MessageFilter{}, loop.Page{After: id.message})
			return err
		},
		"ListSessions after a session": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.store.ListSessions(ctx, tenant, loop.SessionFilter{}, loop.Page{After: id.session})
			return err
		},
		"GetRun": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.store.GetRun(ctx, tenant, id.run)
			return err
		},
		"ListRuns": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.store.ListRuns(ctx, tenant, id.session, loop.Page{})
			return err
		},
		"ListRuns after a run": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.store.ListRuns(ctx, tenant, "", loop.Page{After: id.run})
			return err
		},
		"Head": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.store.Head(ctx, tenant, id.session)
			return err
		},
		"HeadByExternalID": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.store.HeadByExternalID(ctx, tenant, id.external)
			return err
		},
		"Events": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.store.Events(ctx, tenant, id.session, 0, 10)
			return err
		},
		"Next": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.store.Next(ctx, tenant, id.session, 0, 10)
			return err
		},
		"Next at the end": func(ctx context.Context, tenant string, id ids) error {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			_, err := s.store.Next(ctx, tenant, id.session, 1<<40, 10)
			return err
		},
		"Load": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.store.Load(ctx, tenant, id.session, id.run)
			return err
		},
		"Append": func(ctx context.Context, tenant string, id ids) error {
			e, err := event.New(event.Scope{SessionID: id.session, At: time.Now(), Actor: looptest.Tester}, event.SessionDeleted{})
			if err != nil {
				return err
			}
			_, err = s.store.Append(ctx, loop.Append{
				ID: looptest.NewID(), TenantID: tenant, SessionID: id.session, Expected: int64(len(before)), Events: []event.Event{e},
			})
			return err
		},
		"DeleteSession": func(ctx context.Context, tenant string, id ids) error {
			return s.Commands.DeleteSession(ctx, tenant, id.session, looptest.Tester)
		},
		"UpdateSession": func(ctx context.Context, tenant string, id ids) error {
			return s.Commands.UpdateSession(ctx, loop.UpdateSession{TenantID: tenant, SessionID: id.session, Metadata: map[string]*string{"k": nil}, Actor: looptest.Tester})
		},
		"RetryRun": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.Commands.RetryRun(ctx, loop.RetryRun{TenantID: tenant, SessionID: id.session, RunID: id.run, Actor: looptest.Tester})
			return err
		},
		"Tail": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.store.Tail(ctx, tenant, id.session, id.message)
			return err
		},
		"StartRun": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.Commands.StartRun(ctx, loop.StartRun{TenantID: tenant, SessionID: id.session, Text: "x", Actor: looptest.Tester})
			return err
		},
		"StartRun with the same key": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.Commands.StartRun(ctx, loop.StartRun{TenantID: tenant, SessionID: id.session, Text: "wait", IdempotencyKey: id.key, Actor: looptest.Tester})
			return err
		},
		"CancelRun": func(ctx context.Context, tenant string, id ids) error {
			return s.Commands.CancelRun(ctx, loop.CancelRun{TenantID: tenant, SessionID: id.session, RunID: id.run, Actor: looptest.Tester})
		},
		"Requeue": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.Commands.Requeue(ctx, loop.Job{TenantID: tenant, SessionID: id.session, RunID: id.run, Ticket: 1}, "job_lost", looptest.Tester)
			return err
		},
		"ReleaseDead": func(ctx context.Context, tenant string, id ids) error {
			_, err := s.Commands.ReleaseDead(ctx, loop.Release{TenantID: tenant, SessionID: id.session, RunID: id.run, Now: time.Now(), Actor: looptest.Tester})
			return err
		},
		"Advance": func(ctx context.Context, tenant string, id ids) error {
			return s.Engine.Advance(ctx, loop.Job{TenantID: tenant, SessionID: id.session, RunID: id.run, Ticket: 1}, loop.Holder{WorkerID: looptest.NewID()})
		},
	} {
		foreign, missing := ask(ctx, "other", ours), ask(ctx, "other", nobodys)
		if !errors.Is(foreign, loop.ErrNotFound) || !errors.Is(missing, loop.ErrNotFound) {
			t.Errorf("%s: of a foreign id %v, of a missing one %v, want not found", name, foreign, missing)
			continue
		}
		if foreign.Error() != missing.Error() {
			t.Errorf("%s: %q and %q can be told apart", name, foreign, missing)
		}
	}

	if _, ok, err := s.store.Request(ctx, "other", ours.session, ours.key); ok || err != nil && !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("the key is found: %t, %v", ok, err)
	}
	for name, list := range map[string]func() (int, error){
		"sessions": func() (int, error) {
			l, err := s.store.ListSessions(ctx, "other", loop.SessionFilter{}, loop.Page{})
			return len(l), err
		},
		"runs": func() (int, error) {
			l, err := s.store.ListRuns(ctx, "other", "", loop.Page{})
			return len(l), err
		},
	} {
		if n, err := list(); n != 0 || err != nil {
			t.Errorf("the other tenant has %d %s, %v", n, name, err)
		}
	}
	// The name is free for the other tenant.
	theirs, err := s.Commands.CreateSession(ctx, loop.CreateSession{TenantID: "other", ExternalID: ours.external, Actor: looptest.Tester})
	if err != nil || !theirs.Created || theirs.SessionID == ours.session {
		t.Errorf("%+v, %v, want a session of its own", theirs, err)
	}
	// A page of one's own session, after a message of somebody else's.
	if _, err := s.store.ListMessages(ctx, "other", theirs.SessionID, loop.MessageFilter{}, loop.Page{After: ours.message}); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("a page after a foreign message: %v", err)
	}
	sameStory(t, "the log after all that", stored(t, db, ours.session), before)
}
