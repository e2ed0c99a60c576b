package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// over puts a line between a stack and its database.
func over(t *testing.T, line *storetest.Line) stackOption {
	t.Helper()
	return func(p *stackParts) {
		config, err := poolConfig(line.URL)
		if err != nil {
			t.Fatal(err)
		}
		store.Guard(config, store.Limits{Acquire: acquireLimit, Answer: statementTimeout})
		p.pool = config
	}
}

// startSurely starts a run however often it has to be asked for.
func (s *stack) startSurely(ctx context.Context, sessionID, text string) (loop.Job, error) {
	for {
		run, err := s.Commands.StartRun(ctx, loop.StartRun{
			TenantID: looptest.Tenant, SessionID: sessionID, Text: text, IdempotencyKey: text, Actor: looptest.Tester,
		})
		if !errors.Is(err, loop.ErrUnavailable) {
			return loop.Job{TenantID: looptest.Tenant, SessionID: sessionID, RunID: run.RunID, Ticket: 1}, err
		}
	}
}

// TestNoTurnIsLostOrDoneTwiceWhenAnswersOfCommitsAreLost: one in twenty requests
// to the database is carried out, and its answer is lost with the connection.
// Several sessions at once share commits; one alone has its own.
func TestNoTurnIsLostOrDoneTwiceWhenAnswersOfCommitsAreLost(t *testing.T) {
	t.Parallel()
	turns := 16
	if fullSize() {
		turns = 200
	}
	for name, sessions := range map[string]int{"InGroups": 4, "Alone": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			line := storetest.NewLine(t, db.URL)
			var mu sync.Mutex
			ran := map[string]int{}
			count := looptest.Tool{Name: "count", Run: func(_ context.Context, in loop.ToolInput) (loop.ToolOutput, error) {
				mu.Lock()
				defer mu.Unlock()
				ran[in.CallID]++
				return loop.ToolOutput{Content: "counted"}, nil
			}}
			s := newStack(t, db, over(t, line), playing(callsOnce("count", "{}"), count))
			ids := make([]string, sessions)
			for i := range ids {
				ids[i] = s.Session(t)
			}
			var requests, lost atomic.Int64
			line.Faults(func([]byte) (f storetest.Fault) {
				if requests.Add(1)%20 == 0 {
					f.LoseReply = true
					lost.Add(1)
				}
				return f
			})
			var all sync.WaitGroup
			for _, id := range ids {
				all.Go(func() {
					for n := range turns / sessions {
						j, err := s.startSurely(t.Context(), id, fmt.Sprintf("turn %d", n))
						if err == nil {
							err = s.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: looptest.NewID()})
						}
						if err != nil {
							t.Errorf("turn %d: %v", n, err)
							return
						}
					}
				})
			}
			all.Wait()
			line.Faults(nil)
			for id, n := range ran {
				if n != 1 {
					t.Errorf("call %s ran %d times", id, n)
				}
			}
			for _, id := range ids {
				if err := looptest.CheckLog(events(t, stored(t, db, id))); err != nil {
					t.Error(err)
				}
			}
			got := scalar[string](t, db, `SELECT format('%s runs, %s calls, %s said, %s answered, %s results',
				(SELECT count(*) FROM agentd.runs WHERE status = 'completed'), (SELECT count(*) FROM agentd.tool_calls WHERE status = 'done'),
				(SELECT count(DISTINCT (session_id, parts::text)) FROM agentd.messages WHERE role = 'user'),
				(SELECT count(*) FROM agentd.messages WHERE role = 'assistant'), (SELECT count(*) FROM agentd.messages WHERE role = 'tool'))`)
			if want := fmt.Sprintf("%d runs, %d calls, %d said, %d answered, %d results", turns, turns, turns, 2*turns, turns); got != want || len(ran) != turns {
				t.Errorf("%s and %d effects; want %s", got, len(ran), want)
			}
			if t.Logf("%d of %d answers were lost", lost.Load(), requests.Load()); lost.Load() < int64(turns)/4 {
				t.Error("next to none was lost")
			}
		})
	}
}

// TestATokenIsNoCommit: a model speaks in tokens, and the database is some
// milliseconds away.
func TestATokenIsNoCommit(t *testing.T) {
	t.Parallel()
	tokens := 200
	if fullSize() {
		tokens = 4000
	}
	const pace = 5 * time.Millisecond
	speaks := looptest.Model(func(ctx context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for i := range tokens {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if !yield(looptest.Text(fmt.Sprintf("t%d ", i)), nil) {
				return
			}
		}
		yield(looptest.Finish(stream.FinishStop), nil)
	})
	for name, test := range map[string]struct {
		window time.Duration
		perSec float64
	}{
		"WithTheDefaultWindow": {0, 200}, "WithALongWindow": {50 * time.Millisecond, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			line := storetest.NewLine(t, db.URL)
			line.Delay(5 * time.Millisecond)
			s := newStack(t, db, over(t, line), playing(speaks), func(p *stackParts) { p.store.CommitWindow = test.window })
			id := s.Session(t)
			j := s.Start(t, id, "speak")
			began := time.Now()
			if r := s.Advance(t, j); r.Status != loop.RunCompleted {
				t.Fatalf("run is %s", r.Status)
			}
			most := int(time.Since(began).Seconds()*test.perSec) + 2 // the first goes at once, the last with the rest
			facts := stored(t, db, id)
			joined := ""
			deltas := decoded[event.AssistantDelta](t, facts)
			for _, d := range deltas {
				joined += d.Text
			}
			if said := textOf(only[event.AssistantCompleted](t, facts).Parts); said != joined || len(said) < 3*tokens {
				t.Errorf("the message has %d bytes, its deltas %d", len(said), len(joined))
			}
			if t.Logf("%d tokens, %d deltas", tokens, len(deltas)); len(deltas) > most {
				t.Errorf("%d deltas, want at most %d", len(deltas), most)
			}
		})
	}
}
