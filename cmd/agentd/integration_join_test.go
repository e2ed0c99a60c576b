package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// runWriter writes a run event by event, without an engine.
type runWriter struct {
	*stack
	job  loop.Job
	last int64
	text string
}

// open starts a run whose model call has begun.
func (s *stack) open(t *testing.T) *runWriter {
	t.Helper()
	w := &runWriter{stack: s}
	w.job = s.Start(t, s.Session(t), "talk")
	head, err := s.store.Head(t.Context(), looptest.Tenant, w.job.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	w.last = head.LastSeq
	w.write(t, 0, event.RunStarted{WorkerID: looptest.NewID(), Epoch: head.Epoch + 1, Ticket: 1})
	w.write(t, 1, event.TurnStarted{}, event.ModelRequested{Attempt: 1, Model: "m", MessageIDs: []string{}})
	return w
}

func (w *runWriter) write(t *testing.T, turn int, payloads ...event.Payload) {
	t.Helper()
	a := loop.Append{ID: looptest.NewID(), TenantID: looptest.Tenant, SessionID: w.job.SessionID, Expected: w.last}
	for _, p := range payloads {
		e, err := event.New(event.Scope{
			SessionID: w.job.SessionID, RunID: w.job.RunID, Turn: turn, At: time.Now(), Actor: looptest.Tester,
		}, p)
		if err != nil {
			t.Fatal(err)
		}
		a.Events = append(a.Events, e)
	}
	done, err := w.store.Append(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	w.last = done.LastSeq
}

// say writes up to n pieces of the answer, in one append.
func (w *runWriter) say(t *testing.T, n int) {
	t.Helper()
	var pieces []event.Payload
	for i := range n {
		text := fmt.Sprintf("%d.%d ", w.last, i)
		w.text += text
		pieces = append(pieces, event.AssistantDelta{Attempt: 1, Lane: stream.LaneText, BlockID: "0", Text: text})
	}
	w.write(t, 1, pieces...)
}

// end completes the answer and the run.
func (w *runWriter) end(t *testing.T) {
	t.Helper()
	w.write(t, 1, event.AssistantCompleted{
		Attempt: 1, MessageID: looptest.NewID(), Finish: stream.FinishStop,
		Parts: []hooks.Part{{Type: hooks.PartText, Text: w.text}},
	}, event.TurnCompleted{})
	w.write(t, 0, event.RunCompleted{Reason: stream.FinishStop})
}

// joiner is a client that comes at some time with some cursor, and leaves and
// comes back as it likes, until the run is over.
type joiner struct {
	*stack
	sessionID string
	cursor    int64
	ids       []int64
	// at is the last id, for others to look at.
	at  atomic.Int64
	err error
}

func (j *joiner) run(ctx context.Context) {
	for visit := 0; ; visit++ {
		n := -1 // to the end
		if visit < 6 {
			n = rand.IntN(1500)
		}
		over, err := j.visit(ctx, n)
		if over || err != nil {
			j.err = err
			return
		}
	}
}

// visit reads up to n events, all with n < 0.
func (j *joiner) visit(ctx context.Context, n int) (over bool, err error) {
	after := j.cursor
	if len(j.ids) > 0 {
		after = j.ids[len(j.ids)-1]
	}
	res, err := j.openSSE(ctx, j.sessionID, "?until=idle", after)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusNoContent:
		return true, nil
	case http.StatusOK:
	default:
		return false, fmt.Errorf("status %d at cursor %d", res.StatusCode, after)
	}
	for r := newSSEReader(res.Body); n != 0; n-- {
		fr, err := r.event()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		j.ids = append(j.ids, fr.id)
		j.at.Store(fr.id)
	}
	return false, nil
}

// check wants every seq above the cursor, once and in order.
func (j *joiner) check(seqs []int64) error {
	if j.err != nil {
		return fmt.Errorf("after %d events: %w", len(j.ids), j.err)
	}
	want := seqs[j.cursor:] // seqs count from 1 without holes
	for i, id := range j.ids {
		if i >= len(want) || id != want[i] {
			return fmt.Errorf("event %d has id %d, which is too many, twice, or behind a hole", i+1, id)
		}
	}
	if len(j.ids) != len(want) {
		return fmt.Errorf("%d events, want %d", len(j.ids), len(want))
	}
	return nil
}

// mute is a schema whose pg_notify says nothing. A process that has it in front
// of its search path notifies nobody.
const mute = `
	CREATE SCHEMA mute;
	CREATE FUNCTION mute.pg_notify(text, text) RETURNS void LANGUAGE sql AS ''`

func silent(p *stackParts) { p.pool.ConnConfig.RuntimeParams["search_path"] = "mute, pg_catalog" }

func polling(every time.Duration) stackOption {
	return func(p *stackParts) { p.store.PollEvery = every }
}

// ear counts the notifications that are sent in the database.
func ear(t *testing.T, db *storetest.DB) (heard func() int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `LISTEN agentd_events`); err != nil {
		t.Fatal(err)
	}
	return func() (n int) {
		if err := conn.Ping(t.Context()); err != nil { // brings what is there
			t.Fatal(err)
		}
		now, cancel := context.WithCancel(t.Context())
		cancel()
		for {
			if _, err := conn.WaitForNotification(now); err != nil {
				return n
			}
			n++
		}
	}
}

// writeAmong writes a run of so many events, at full speed, while clients join
// at random, and returns when all have seen the end.
func writeAmong(t *testing.T, writer, reader *stack, events, clients int) *runWriter {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := writer.open(t)
	joiners := make([]*joiner, clients)
	joinAt := map[int64][]*joiner{} // by what is written by then
	for i := range joiners {
		joiners[i] = &joiner{stack: reader, sessionID: w.job.SessionID}
		at := w.last + rand.Int64N(int64(events))
		joinAt[at] = append(joinAt[at], joiners[i])
	}
	var reading sync.WaitGroup
	target, seen := w.last+int64(events), int64(0)
	for {
		for ; seen <= w.last; seen++ {
			for _, j := range joinAt[seen] {
				j.cursor = rand.Int64N(w.last + 1)
				j.at.Store(j.cursor)
				reading.Go(func() { j.run(ctx) })
			}
		}
		if w.last >= target {
			break
		}
		w.say(t, int(min(1+rand.Int64N(10), target-w.last)))
	}
	// At first the clients run after the writer, and each that asks finds out
	// for all. Then all have seen everything, and somebody has to tell them.
	for range 3 {
		awaitAt(t, joiners, w.last)
		w.say(t, 1)
	}
	awaitAt(t, joiners, w.last)
	w.end(t)
	reading.Wait()
	seqs := scalar[[]int64](t, writer.db, `SELECT array_agg(seq ORDER BY seq) FROM agentd.events WHERE session_id = $1`, w.job.SessionID)
	if int64(len(seqs)) != w.last || seqs[w.last-1] != w.last {
		t.Fatalf("%d events up to seq %d, want %d without a hole", len(seqs), seqs[len(seqs)-1], w.last)
	}
	for i, j := range joiners {
		if err := j.check(seqs); err != nil {
			t.Errorf("client %d, which came with cursor %d: %v", i, j.cursor, err)
		}
	}
	return w
}

// awaitAt returns when all have the event seq.
func awaitAt(t *testing.T, joiners []*joiner, seq int64) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	behind := func(j *joiner) bool { return j.at.Load() < seq }
	for slices.ContainsFunc(joiners, behind) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not all clients have come to seq %d", seq)
		}
	}
}

func TestClientsThatJoinWhileARunWritesMissAndRepeatNothing(t *testing.T) {
	t.Parallel()
	events, clients := 5000, 200
	if underRace {
		events = 600
	}

	t.Run("InTheSameProcess", func(t *testing.T) {
		t.Parallel()
		s := newStack(t, storetest.New(t))
		writeAmong(t, s, s, events, clients)
	})

	t.Run("InAnotherProcessThatIsNotified", func(t *testing.T) {
		t.Parallel()
		const poll = 10 * time.Minute
		db := storetest.New(t)
		heard := ear(t, db)
		writer, reader := newStack(t, db), newStack(t, db, polling(poll))
		began := time.Now()
		writeAmong(t, writer, reader, events, clients)
		if took := time.Since(began); took > poll {
			t.Errorf("it took %s: the poll brought the end, not a notification", took)
		}
		if heard() == 0 {
			t.Error("nobody was notified")
		}
	})

	t.Run("InAnotherProcessThatIsDeaf", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		execute(t, db, mute)
		heard := ear(t, db)
		writer, reader := newStack(t, db, silent), newStack(t, db, polling(200*time.Millisecond))
		writeAmong(t, writer, reader, events, clients)
		if n := heard(); n != 0 {
			t.Errorf("%d notifications, want a test without any", n)
		}
	})
}
