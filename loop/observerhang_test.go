package loop_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestAnObserverThatDoesNotComeBackStopsTheAnswer: the run goes on to its end, and
// what the observer still says is not heard.
func TestAnObserverThatDoesNotComeBackStopsTheAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		observer func(hold <-chan struct{}) stream.Registration
		said     string
		status   string
		rows     []string
	}{
		"in a chunk": {func(hold <-chan struct{}) stream.Registration {
			r := watches("hangs", ofText(func(c stream.Chunk) stream.Verdict {
				if c.Text == "say " {
					<-hold
				}
				return stream.Continue()
			}))
			r.AttemptTime = 0 // the default
			return r
		}, "I ", "failed stopped", []string{"OnChunk hangs stop timeout"}},
		"when it is made": {func(hold <-chan struct{}) stream.Registration {
			r := watches("hangs", nil)
			r.New = func(stream.Call) stream.Observer {
				<-hold
				return looptest.Observer(func(stream.Chunk) stream.Verdict { return stream.Continue() })
			}
			return r
		}, "", "failed stopped", nil},
		"at the end": {func(hold <-chan struct{}) stream.Registration {
			r := watches("hangs", nil)
			r.AttemptTime = 0
			r.New = func(stream.Call) stream.Observer { return hangsInTheEnd{hold} }
			return r
		}, "I say no more", "completed stop", []string{"OnEnd hangs continue timeout"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hold := make(chan struct{})
				var logged bytes.Buffer
				m := &scriptedTurns{say: []string{"I say no more"}}
				b := looptest.NewBench(looptest.NewLog(), m.model(t))
				b.Engine.Logger = slog.New(slog.NewTextHandler(&logged, nil))
				b.Observe(t, c.observer(hold))
				j := b.Start(t, b.Session(t), "hi")
				began := time.Now()
				run := b.Advance(t, j)
				if got := string(run.Status) + " " + run.Reason; got != c.status || time.Since(began) > 2*time.Second {
					t.Errorf("the run is %s %q after %v; want %s", got, run.Error, time.Since(began), c.status)
				}
				close(hold)
				synctest.Wait()
				events, s := checked(t, b, j.SessionID)
				if said := s.Messages[1:]; c.said == "" && len(said) > 0 || c.said != "" && said[0].Text() != c.said {
					t.Errorf("the conversation has %+v; want %q", said, c.said)
				}
				if run.Status == loop.RunFailed {
					p := only[event.AssistantStopped](t, events)
					if p.Policy != stream.StopFail || p.Accepted != len(c.said) || p.Observer == "" || !strings.Contains(run.Error, "did not come back") {
						t.Errorf("stopped %+v, and the run says %q", p, run.Error)
					}
				}
				all := ledger(b, j.SessionID)
				if c.rows != nil && !slices.Equal(rows(all), c.rows) {
					t.Errorf("the ledger has %q; want %q", rows(all), c.rows)
				}
				for _, r := range all {
					if r.ReasonCode != "observer.timeout" || r.FailedOpen != (r.Gate == hooks.GateOnEnd) {
						t.Errorf("the row is %+v", r)
					}
				}
				if !strings.Contains(logged.String(), "an observer does not come back") {
					t.Errorf("the worker's log says nothing of it: %s", logged.String())
				}
			})
		})
	}
}

type hangsInTheEnd struct{ hold <-chan struct{} }

func (hangsInTheEnd) OnChunk(stream.Chunk) stream.Verdict { return stream.Continue() }

func (h hangsInTheEnd) OnEnd(stream.Summary) { <-h.hold }

// TestObserversThatTakeTheirTimeDoNotHang: one that comes back now and then is
// judged by its own limits, and one without limits by none.
func TestObserversThatTakeTheirTimeDoNotHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &scriptedTurns{say: []string{"I say no more"}}
		b := looptest.NewBench(looptest.NewLog(), m.model(t))
		b.Observe(t, watches("slow", ofText(func(stream.Chunk) stream.Verdict {
			pause(context.Background(), time.Minute)
			return stream.Continue()
		})))
		j := b.Start(t, b.Session(t), "hi")
		if run := b.Advance(t, j); run.Status != loop.RunCompleted {
			t.Errorf("the run is %+v", run)
		}
	})
}

// TestATakenOverAttemptIsObservedAfresh: attempt 2 has observers of its own, and
// the run is stopped as it would have been.
func TestATakenOverAttemptIsObservedAfresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plays := paced(stalls(nil, looptest.Text("one "), looptest.Text("two ")))
		b := looptest.NewBench(looptest.NewLog(), looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			plays(ctx, req, yield)
		}))
		var calls []stream.Call
		third := watches("third", nil)
		third.New = func(c stream.Call) stream.Observer {
			calls = append(calls, c)
			n := 0
			return looptest.Observer(func(c stream.Chunk) stream.Verdict {
				if n++; n == 3 && c.Kind == stream.KindDelta {
					return stream.Stop("three are too many")
				}
				return stream.Continue()
			})
		}
		b.Observe(t, third)
		j := b.Start(t, b.Session(t), "hi")
		ctx, die := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Engine.Advance(ctx, j, loop.Holder{WorkerID: looptest.NewID()}) }()
		pause(t.Context(), time.Second)
		die()
		if err := <-done; err == nil {
			t.Error("the dead worker has come to an end")
		}
		run := b.Run(t, j)
		if _, err := b.Commands.ReleaseDead(t.Context(), loop.Release{
			TenantID: looptest.Tenant, SessionID: j.SessionID, RunID: j.RunID, WorkerID: run.WorkerID, Now: time.Now(), Actor: looptest.Tester,
		}); err != nil {
			t.Fatal(err)
		}
		plays = fails(nil, looptest.Text("uno "), looptest.Text("due "), looptest.Text("tre "), looptest.Text("quattro"))
		j.Ticket = b.Run(t, j).Ticket
		run = b.Advance(t, j)
		_, s := checked(t, b, j.SessionID)
		if run.Reason != event.StoppedByObserver || s.Messages[1].Text() != "uno due " {
			t.Errorf("the run is %+v and says %q", run, s.Messages[1].Text())
		}
		want := stream.Call{Class: stream.ClassMain, Attempt: 1, Model: "test-model", TenantID: looptest.Tenant, Agent: "demo"}
		again := want
		again.Attempt = 2
		if !slices.Equal(calls, []stream.Call{want, again}) {
			t.Errorf("observers were made for %+v", calls)
		}
		if all := ledger(b, j.SessionID); len(all) != 2 || all[0].Attempt != 2 {
			t.Errorf("the ledger has %q", rows(all))
		}
	})
}
