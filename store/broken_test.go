package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// nextCommit is what becomes of the next COMMIT on a line.
func nextCommit(line *storetest.Line, f storetest.Fault) {
	var once sync.Once
	line.Faults(func(request []byte) (is storetest.Fault) {
		if storetest.IsCommit(request) {
			once.Do(func() { is = f })
		}
		return is
	})
}

func TestBrokenCommitIsResolvedEitherWay(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]storetest.Fault{"CommitLost": {LoseRequest: true}, "AnswerLost": {LoseReply: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			line := storetest.NewLine(t, db.URL)
			g := newGate()
			s := startStoreAt(t, line.URL, store.Options{BeforeCommit: g.beforeCommit})
			id := newSession(t, s)
			before := g.commits.Load()
			nextCommit(line, cut)
			got := mustAppend(t, s, say(t, id, 1))
			if got.LastSeq != 2 || got.Events[0].Seq != 2 {
				t.Errorf("append: %+v; want seq 2", got)
			}
			if h := headOf(t, s, id); h.LastSeq != 2 {
				t.Errorf("last seq %d; want 2", h.LastSeq)
			}
			if g.commits.Load()-before != 2 {
				t.Errorf("%d attempts; want 2", g.commits.Load()-before)
			}
		})
	}
}

func TestBrokenCommitBesideALockedRow(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]storetest.Fault{"CommitLost": {LoseRequest: true}, "AnswerLost": {LoseReply: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			line := storetest.NewLine(t, db.URL)
			s := startStoreAt(t, line.URL, store.Options{BeforeCommit: func(context.Context) {}})
			id := newSession(t, s)
			tx, err := db.Pool.Begin(limit(t))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(limit(t), `SELECT FROM agentd.sessions WHERE id = $1 FOR UPDATE`, id); err != nil {
				t.Fatal(err)
			}
			waiting := begin(t, s, say(t, id, 1))
			lockWaiters(t, db, 1)
			nextCommit(line, cut)
			if err := tx.Rollback(limit(t)); err != nil {
				t.Fatal(err)
			}
			if r := <-waiting; r.err != nil || r.got.LastSeq != 2 {
				t.Errorf("append: %+v, %v; want seq 2", r.got, r.err)
			}
			if h := headOf(t, s, id); h.LastSeq != 2 {
				t.Errorf("last seq %d; want 2", h.LastSeq)
			}
		})
	}
}

func TestBrokenDatabaseIsTheCallersToKnowAfterAWhile(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	line := storetest.NewLine(t, db.URL)
	s := startStoreAt(t, line.URL, store.Options{})
	id := newSession(t, s)
	line.Cut()
	a := say(t, id, 1)
	_, err := s.Append(limit(t), a)
	if !errors.Is(err, loop.ErrUnavailable) {
		t.Errorf("append: %v; want ErrUnavailable", err)
	}
	line.Mend()
	if got := mustAppend(t, s, a); got.LastSeq != 2 {
		t.Errorf("the same append later: %+v; want seq 2", got)
	}
}

func TestBrokenReadsAreErrors(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	pool, err := pgxpool.New(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := store.New(pool, store.Options{})
	pool.Close()
	id, ctx := looptest.NewID(), t.Context()
	errs := map[string]error{}
	_, errs["Head"] = s.Head(ctx, looptest.Tenant, id)
	_, errs["HeadByExternalID"] = s.HeadByExternalID(ctx, looptest.Tenant, "x")
	_, errs["Load"] = s.Load(ctx, looptest.Tenant, id, id)
	_, errs["Events"] = s.Events(ctx, looptest.Tenant, id, 0, 1)
	_, _, errs["Request"] = s.Request(ctx, looptest.Tenant, id, "k")
	_, _, errs["Approval"] = s.Approval(ctx, looptest.Tenant, id)
	_, errs["GetApproval"] = s.GetApproval(ctx, looptest.Tenant, id)
	_, errs["ListApprovals"] = s.ListApprovals(ctx, looptest.Tenant, loop.ApprovalFilter{}, loop.Page{})
	_, errs["ListApprovals of a run"] = s.ListApprovals(ctx, looptest.Tenant, loop.ApprovalFilter{RunID: id}, loop.Page{})
	_, errs["ListDecisions"] = s.ListDecisions(ctx, looptest.Tenant, loop.DecisionFilter{SessionID: id}, loop.Page{})
	errs["PutHookSet"] = s.PutHookSet(ctx, hooks.HookSet{Hooks: []hooks.Registration{}})
	_, errs["HookSets"] = s.HookSets(ctx, []string{"x"})
	_, errs["Verify"] = store.Verify(ctx, pool)
	for call, err := range errs {
		if err == nil || errors.Is(err, loop.ErrNotFound) {
			t.Errorf("%s on a closed pool: %v; want an error", call, err)
		}
	}
}

func TestBrokenSchemaIsNoConflict(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	id, locked := newSession(t, s), newSession(t, s)
	tx, err := db.Pool.Begin(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(limit(t), `SELECT FROM agentd.sessions WHERE id = $1 FOR UPDATE`, locked); err != nil {
		t.Fatal(err)
	}
	aside := begin(t, s, say(t, locked, 1))
	lockWaiters(t, db, 1)
	mustAppend(t, s, say(t, id, 1))
	exec(t, db, `ALTER TABLE agentd.tenants RENAME TO away`)
	if _, err := s.Append(limit(t), say(t, id, 1)); err == nil || errors.Is(err, loop.ErrConflict) {
		t.Errorf("append: %v; want what the database said", err)
	}
	if _, err := tx.Exec(limit(t), `UPDATE agentd.sessions SET last_seq = 7 WHERE id = $1`, locked); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(limit(t)); err != nil {
		t.Fatal(err)
	}
	if r := <-aside; r.err == nil || errors.Is(r.err, loop.ErrConflict) {
		t.Errorf("append that waited: %v; want what the database said", r.err)
	}
	exec(t, db, `ALTER TABLE agentd.away RENAME TO tenants; UPDATE agentd.sessions SET last_seq = 1 WHERE last_seq = 7`)
}

func TestBrokenProjectionsFailTheRead(t *testing.T) {
	t.Parallel()
	db := storetest.New(t, storetest.Unverified)
	s := startStore(t, db, store.Options{Queue: jobs{}})
	exec(t, db, `ALTER TABLE agentd.turns RENAME TO away`)
	if _, err := store.Verify(limit(t), db.Pool); err == nil {
		t.Error("verify without turns and sessions: no error")
	}
	exec(t, db, `ALTER TABLE agentd.away RENAME TO turns`)
	id := oneRun(t, s)
	run := loadedRun(t, s, id)
	for _, name := range []string{
		"sessions", "events", "runs", "turns", "messages", "tool_calls", "approvals", "hook_decisions", "hook_payloads", "hook_sets",
	} {
		exec(t, db, `ALTER TABLE agentd.`+name+` RENAME TO away`)
		if _, err := store.Verify(limit(t), db.Pool); err == nil {
			t.Errorf("verify without %s: no error", name)
		}
		exec(t, db, `ALTER TABLE agentd.away RENAME TO `+name)
	}
	if _, err := s.Load(limit(t), looptest.Tenant, id, run); err != nil {
		t.Fatal(err)
	}
	exec(t, db, `UPDATE agentd.messages SET parts = '{}'`)
	if _, err := s.Load(limit(t), looptest.Tenant, id, run); err == nil {
		t.Error("load with a message that cannot be read: no error")
	}
	exec(t, db, `ALTER TABLE agentd.events DISABLE TRIGGER USER;
		UPDATE agentd.events SET type = 'input.handled', payload = '{"idempotency_key": "k", "reply": 1}' WHERE type = 'message.created'`)
	if _, _, err := s.Request(limit(t), looptest.Tenant, id, "k"); err == nil {
		t.Error("request for a message that cannot be read: no error")
	}
}

func TestReadsOfTextThatCannotBeStoredFindNothing(t *testing.T) {
	t.Parallel()
	s := startStore(t, storetest.New(t), store.Options{Queue: jobs{}})
	id := oneRun(t, s)
	run, ctx := loadedRun(t, s, id), limit(t)
	const tenant = looptest.Tenant + "\x00"
	errs := map[string]error{}
	_, errs["Head"] = s.Head(ctx, tenant, id)
	_, errs["HeadByExternalID of a tenant"] = s.HeadByExternalID(ctx, tenant, "x")
	_, errs["HeadByExternalID"] = s.HeadByExternalID(ctx, looptest.Tenant, "\xff")
	_, errs["Load"] = s.Load(ctx, tenant, id, run)
	_, errs["Events"] = s.Events(ctx, tenant, id, 0, 1)
	_, _, errs["Request"] = s.Request(ctx, tenant, id, "k")
	a := say(t, id, 1)
	a.TenantID = tenant
	_, errs["Append"] = s.Append(ctx, a)
	for call, err := range errs {
		if !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("%s: %v; want ErrNotFound", call, err)
		}
	}
	if _, ok, err := s.Request(ctx, looptest.Tenant, id, "k\x00"); ok || err != nil {
		t.Errorf("request: %t, %v; want none", ok, err)
	}
}

func TestStoreStartsOnceAndStopsAnyTime(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := store.New(db.Pool, store.Options{})
	id := looptest.NewID()
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stop before start: %v", err)
	}
	if _, err := s.Append(limit(t), say(t, id, 1)); err == nil {
		t.Error("append before start: no error")
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("second start: no error")
	}
	newSession(t, s)
	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	if _, err := s.Append(limit(t), say(t, id, 1)); err == nil {
		t.Error("append after stop: no error")
	}
}

func TestStopCommitsWhatWasAccepted(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	s := startStore(t, db, store.Options{BeforeCommit: g.beforeCommit})
	door, id := newSession(t, s), newSession(t, s)
	g.stopNext()
	first := begin(t, s, say(t, door, 1))
	<-g.held
	second := begin(t, s, say(t, id, 1))
	until(t, "it waits", func(context.Context) (bool, error) { return store.Pending(s) == 1, nil })
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(limit(t)) }()
	until(t, "appends are refused", func(context.Context) (bool, error) { return !store.Accepting(s), nil })
	g.release()
	for _, answer := range []<-chan result{first, second} {
		if r := <-answer; r.err != nil {
			t.Errorf("accepted append: %v", r.err)
		}
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestStopGivesUpWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	s := startStore(t, db, store.Options{BeforeCommit: g.beforeCommit})
	door, id := newSession(t, s), newSession(t, s)
	var locked []string
	for range 3 { // one more than may wait at once
		locked = append(locked, newSession(t, s))
	}
	tx, err := db.Pool.Begin(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(limit(t), `SELECT FROM agentd.sessions WHERE id = ANY($1) FOR UPDATE`, locked); err != nil {
		t.Fatal(err)
	}
	var aside []<-chan result
	for _, id := range locked {
		aside = append(aside, begin(t, s, say(t, id, 1)))
	}
	lockWaiters(t, db, 2)
	until(t, "the third is aside too", func(context.Context) (bool, error) { return store.Aside(s) == 3, nil })
	g.stopNext()
	first := begin(t, s, say(t, door, 1))
	<-g.held
	second := begin(t, s, say(t, id, 1))
	until(t, "it waits", func(context.Context) (bool, error) { return store.Pending(s) == 1, nil })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	t.Cleanup(cancel)
	if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stop: %v; want DeadlineExceeded", err)
	}
	for i, answer := range append(aside, first, second) {
		if r := <-answer; r.err == nil {
			t.Errorf("append %d: no error", i)
		}
	}
	if err := tx.Rollback(limit(t)); err != nil {
		t.Fatal(err)
	}
}
