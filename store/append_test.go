package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestAppendTwoProcessesTakeTurns(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	stores := []*store.Store{startStore(t, db, store.Options{}), startStore(t, db, store.Options{})}
	id := newSession(t, stores[0])
	const each = 40
	var wg sync.WaitGroup
	for _, s := range stores {
		for range 2 {
			wg.Go(func() {
				for n := 0; n < each; {
					h := headOf(t, s, id)
					_, err := s.Append(t.Context(), say(t, id, h.LastSeq))
					switch {
					case err == nil:
						n++
					case !errors.Is(err, loop.ErrConflict):
						t.Errorf("append: %v", err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if h := headOf(t, stores[1], id); h.LastSeq != 1+4*each {
		t.Errorf("last seq %d; want %d", h.LastSeq, 1+4*each)
	}
}

// started begins a run and claims it under epoch 1.
func started(t *testing.T, log loop.Log) (sessionID, runID string) {
	t.Helper()
	b := looptest.NewBench(log, nil)
	id := b.Session(t)
	j := b.Start(t, id, "hi")
	mustAppend(t, log, appendOf(id, headOf(t, log, id).LastSeq,
		encode(t, id, j.RunID, 0, event.RunStarted{WorkerID: looptest.NewID(), Epoch: 1, Ticket: 1})))
	return id, j.RunID
}

// takenOver is the append that takes the run from its worker.
func takenOver(t *testing.T, log loop.Log, id, runID string) loop.Append {
	t.Helper()
	return appendOf(id, headOf(t, log, id).LastSeq, encode(t, id, runID, 0, event.RunReleased{
		Cause: event.ReleaseWorkerDead, WorkerID: looptest.NewID(), Epoch: 2, Ticket: 2,
	}))
}

func TestAppendZombieThatWaitedForTheLockIsFenced(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	rival := startStore(t, db, store.Options{Queue: jobs{}, BeforeCommit: g.beforeCommit})
	id, runID := started(t, rival)
	take := takenOver(t, rival, id, runID)
	g.stopNext()
	taking := begin(t, rival, take)
	<-g.held
	zombie := startStore(t, db, store.Options{})
	a := say(t, id, take.Expected)
	a.Epoch = 1
	waiting := begin(t, zombie, a)
	lockWaiters(t, db, 1)
	g.release()
	if r := <-taking; r.err != nil {
		t.Fatalf("take over: %v", r.err)
	}
	if r := <-waiting; !errors.Is(r.err, loop.ErrLeaseLost) {
		t.Errorf("zombie that waited: %v; want ErrLeaseLost", r.err)
	}
	a = say(t, id, take.Expected+1)
	a.Epoch = 1
	if _, err := zombie.Append(limit(t), a); !errors.Is(err, loop.ErrLeaseLost) {
		t.Errorf("zombie with a fresh seq: %v; want ErrLeaseLost", err)
	}
	if h := headOf(t, rival, id); h.LastSeq != take.Expected+1 || h.Epoch != 2 {
		t.Errorf("head %+v; want seq %d, epoch 2: the zombie wrote", h, take.Expected+1)
	}
}

func TestAppendAfterALostTailLeavesNoGap(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	id := newSession(t, s)
	mustAppend(t, s, say(t, id, 1))
	last := mustAppend(t, s, say(t, id, 2)).LastSeq
	// What a fail-over to a replica that lags does.
	exec(t, db, `ALTER TABLE agentd.events DISABLE TRIGGER USER;
		DELETE FROM agentd.messages WHERE seq > 1; DELETE FROM agentd.events WHERE seq > 1;
		UPDATE agentd.sessions SET last_seq = 1, append_id = e.append_id, updated_at = created_at FROM agentd.events AS e WHERE e.seq = 1`)
	if _, err := s.Append(limit(t), say(t, id, last)); !errors.Is(err, loop.ErrConflict) {
		t.Errorf("append behind the gap: %v; want ErrConflict", err)
	}
	if got := mustAppend(t, s, say(t, id, 1)); got.LastSeq != 2 {
		t.Errorf("after reading again: last seq %d; want 2", got.LastSeq)
	}
}

func TestAppendGroupMembersSucceedOrFailByThemselves(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	s := startStore(t, db, store.Options{Queue: jobs{}, BeforeCommit: g.beforeCommit})
	const n = 50
	ids := make([]string, n)
	for i := range ids {
		ids[i] = newSession(t, s)
	}
	fencedID, runID := started(t, s)
	mustAppend(t, s, takenOver(t, s, fencedID, runID))
	door := newSession(t, s)

	g.stopNext()
	first := begin(t, s, say(t, door, 1))
	<-g.held // what comes now is one group
	before := g.commits.Load()
	answers := make([]<-chan result, n)
	conflicted := 17
	for i, id := range ids {
		a := say(t, id, 1)
		if i == conflicted {
			a = say(t, id, 5)
		}
		answers[i] = begin(t, s, a)
	}
	a := say(t, fencedID, headOf(t, s, fencedID).LastSeq)
	a.Epoch = 1
	fenced := begin(t, s, a)
	until(t, "all wait", func(context.Context) (bool, error) { return store.Pending(s) == n+1, nil })
	g.release()
	if r := <-first; r.err != nil {
		t.Fatal(r.err)
	}
	for i, answer := range answers {
		r := <-answer
		if i == conflicted && !errors.Is(r.err, loop.ErrConflict) || i != conflicted && (r.err != nil || r.got.LastSeq != 2) {
			t.Errorf("member %d: %+v, %v", i, r.got, r.err)
		}
	}
	if r := <-fenced; !errors.Is(r.err, loop.ErrLeaseLost) {
		t.Errorf("fenced member: %v; want ErrLeaseLost", r.err)
	}
	if commits := g.commits.Load() - before; commits != 1 {
		t.Errorf("%d commits; want one for the whole group", commits)
	}
}

func TestAppendRepeatedBesideOthersDoesNotBreakTheGroup(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	s := startStore(t, db, store.Options{BeforeCommit: g.beforeCommit})
	repeated, other, door := newSession(t, s), newSession(t, s), newSession(t, s)
	a := say(t, repeated, 1)
	want := mustAppend(t, s, a)
	g.stopNext()
	first := begin(t, s, say(t, door, 1))
	<-g.held
	before := g.commits.Load()
	again, beside := begin(t, s, a), begin(t, s, say(t, other, 1))
	until(t, "both wait", func(context.Context) (bool, error) { return store.Pending(s) == 2, nil })
	g.release()
	<-first
	if r := <-again; r.err != nil || r.got.LastSeq != want.LastSeq {
		t.Errorf("repeat: %+v, %v; want %+v", r.got, r.err, want)
	}
	if r := <-beside; r.err != nil {
		t.Errorf("beside it: %v", r.err)
	}
	if commits := g.commits.Load() - before; commits != 1 {
		t.Errorf("%d commits; want one", commits)
	}
}

func TestAppendPoisonFailsAlone(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	s := startStore(t, db, store.Options{BeforeCommit: g.beforeCommit})
	const n = 5
	ids := make([]string, n)
	for i := range ids {
		ids[i] = newSession(t, s)
	}
	door := newSession(t, s)
	g.stopNext()
	first := begin(t, s, say(t, door, 1))
	<-g.held
	answers := make([]<-chan result, n)
	for i, id := range ids {
		a := say(t, id, 1)
		if i == 2 {
			a.Events[0].Type, a.Events[0].Payload = "from.the.future", json.RawMessage(`{"broken`)
		}
		answers[i] = begin(t, s, a)
	}
	until(t, "all wait", func(context.Context) (bool, error) { return store.Pending(s) == n, nil })
	g.release()
	<-first
	for i, answer := range answers {
		r := <-answer
		if i == 2 {
			if r.err == nil || errors.Is(r.err, loop.ErrConflict) || !strings.Contains(r.err.Error(), "invalid input syntax for type json") {
				t.Errorf("poison: %v; want what the database said", r.err)
			}
		} else if r.err != nil {
			t.Errorf("member %d: %v", i, r.err)
		}
	}
	if h := headOf(t, s, ids[2]); h.LastSeq != 1 {
		t.Errorf("poison wrote up to %d", h.LastSeq)
	}
}

func TestAppendRefusesWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	id := newSession(t, s)
	for name, change := range map[string]func(*loop.Append){
		"NoEvents": func(a *loop.Append) { a.Events = nil },
		"AppendID": func(a *loop.Append) { a.ID = "nope" },
		"RunID":    func(a *loop.Append) { a.Events[0].RunID = "nope" },
		"Payload":  func(a *loop.Append) { a.Events[0].Payload = json.RawMessage(`[]`) },
		"MessageID": func(a *loop.Append) {
			a.Events[0].Payload = json.RawMessage(`{"message_id":"nope","role":"user","parts":[]}`)
		},
		"JobsAndNoQueue": func(a *loop.Append) { a.Jobs = []loop.Job{{SessionID: id}} },
		"SecondCreation": func(a *loop.Append) {
			a.Events = []event.Event{encode(t, id, "", 0, event.SessionCreated{TenantID: "default"})}
		},
		"ForeignCreation": func(a *loop.Append) {
			a.Expected = 0
			a.Events = []event.Event{encode(t, id, "", 0, event.SessionCreated{TenantID: "x"})}
		},
	} {
		a := say(t, id, 1)
		change(&a)
		if _, err := s.Append(limit(t), a); err == nil || errors.Is(err, loop.ErrConflict) {
			t.Errorf("%s: %v; want a refusal", name, err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Append(over, say(t, id, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v; want context.Canceled", err)
	}
	if h := headOf(t, s, id); h.LastSeq != 1 {
		t.Errorf("last seq %d; want 1", h.LastSeq)
	}
}

func TestAppendToAnUnknownTenantIsNotFound(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := startStore(t, db, store.Options{})
	id := looptest.NewID()
	a := appendOf(id, 0, encode(t, id, "", 0, event.SessionCreated{TenantID: "nobody"}))
	a.TenantID = "nobody"
	if _, err := s.Append(limit(t), a); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("create: %v; want ErrNotFound", err)
	}
}

func TestAppendCallerThatLeavesDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	g := newGate()
	s := startStore(t, db, store.Options{BeforeCommit: g.beforeCommit})
	door, id := newSession(t, s), newSession(t, s)
	g.stopNext()
	first := begin(t, s, say(t, door, 1))
	<-g.held
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := s.Append(ctx, say(t, id, 1))
		left <- err
	}()
	until(t, "it waits", func(context.Context) (bool, error) { return store.Pending(s) == 1, nil })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that left: %v; want context.Canceled", err)
	}
	next := begin(t, s, say(t, id, 1))
	g.release()
	<-first
	if r := <-next; r.err != nil || r.got.LastSeq != 2 {
		t.Errorf("next: %+v, %v; want seq 2", r.got, r.err)
	}
}

// failingQueue refuses the jobs of one session.
type failingQueue struct{ sessionID string }

var errQueueFull = errors.New("queue is full")

func (q failingQueue) InsertTx(_ context.Context, _ pgx.Tx, jobs []loop.Job) error {
	for _, j := range jobs {
		if j.SessionID == q.sessionID {
			return errQueueFull
		}
	}
	return nil
}

func TestAppendJobsGoWithTheEventsOrNotAtAll(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	q := &recordingQueue{}
	s := startStore(t, db, store.Options{Queue: q})
	id, stale := newSession(t, s), newSession(t, s)
	withJob := func(id string, expected int64) loop.Append {
		a := say(t, id, expected)
		a.Jobs = []loop.Job{{TenantID: looptest.Tenant, SessionID: id, RunID: looptest.NewID(), Ticket: 1, NotBefore: time.Now()}}
		return a
	}
	mustAppend(t, s, withJob(id, 1))
	if _, err := s.Append(limit(t), withJob(stale, 9)); !errors.Is(err, loop.ErrConflict) {
		t.Errorf("stale append: %v; want ErrConflict", err)
	}
	if got := q.sessions(); len(got) != 1 || got[0] != id {
		t.Errorf("jobs of %v; want those of %s", got, id)
	}

	refusing := startStore(t, db, store.Options{Queue: failingQueue{sessionID: id}})
	if _, err := refusing.Append(limit(t), withJob(id, 2)); !errors.Is(err, errQueueFull) {
		t.Errorf("append: %v; want the queue's error", err)
	}
	if h := headOf(t, s, id); h.LastSeq != 2 {
		t.Errorf("last seq %d; want 2: events without their job", h.LastSeq)
	}
}

type recordingQueue struct {
	mu   sync.Mutex
	jobs []loop.Job
}

func (q *recordingQueue) InsertTx(_ context.Context, _ pgx.Tx, jobs []loop.Job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.jobs = append(q.jobs, jobs...)
	return nil
}

func (q *recordingQueue) sessions() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var ids []string
	for _, j := range q.jobs {
		ids = append(ids, j.SessionID)
	}
	return ids
}
