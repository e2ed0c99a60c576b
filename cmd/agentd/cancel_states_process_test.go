package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// cancelStates are the states in which a worker has the run, or nobody, and
// nobody dies. Each brings a run there.
var cancelStates = map[string]func(t *testing.T, f *cancelFleet) *cancelled{
	"a provider that does not answer": func(t *testing.T, f *cancelFleet) *cancelled {
		c := f.begin(t, "silent", openaitest.Text("no").Hold(openaitest.BeforeHeaders, openaitest.NewHold()), cancelEnd{asked: true})
		c.awaitAsked(t, 1)
		return c
	},
	"a provider that falls silent": func(t *testing.T, f *cancelFleet) *cancelled {
		c := f.begin(t, "stalls", fallsSilent(), cancelEnd{partial: "thinking", asked: true})
		c.awaitSQL(t, `SELECT FROM agentd.events WHERE run_id = $run AND type = 'assistant.delta'`)
		return c
	},
	"a stream that goes on": func(t *testing.T, f *cancelFleet) *cancelled {
		slow := openaitest.Text(strings.SplitAfter(strings.Repeat("on and ", 10_000), " ")...)
		slow.Every, slow.Pause = 200, 10*time.Millisecond
		c := f.begin(t, "slow", slow, cancelEnd{partial: "on ", asked: true})
		c.awaitSQL(t, `SELECT FROM agentd.events WHERE run_id = $run AND type = 'assistant.delta'`)
		return c
	},
	"a tool that stops": func(t *testing.T, f *cancelFleet) *cancelled {
		c := f.begin(t, "tool", call(toolCharge, holdAfter), cancelEnd{calls: []hooks.ResultReason{hooks.ReasonOutcomeUnknown}, effects: 1})
		awaitEffect(t, f.effects, c.run)
		return c
	},
	"a tool that does not stop": func(t *testing.T, f *cancelFleet) *cancelled {
		c := f.begin(t, "deaf tool", call(toolCharge, holdDeaf+f.gate), cancelEnd{calls: []hooks.ResultReason{hooks.ReasonOutcomeUnknown}, effects: 1})
		awaitEffect(t, f.effects, c.run)
		return c
	},
	"a question to a person": func(t *testing.T, f *cancelFleet) *cancelled {
		c := f.begin(t, "ask", call(toolPay, holdNever), cancelEnd{calls: []hooks.ResultReason{hooks.ReasonCancelled}})
		c.awaitSQL(t, `SELECT FROM agentd.runs WHERE id = $run AND status = 'waiting'`)
		return c
	},
	"a short wait before another attempt": func(t *testing.T, f *cancelFleet) *cancelled {
		c := f.begin(t, "busy", openaitest.RateLimited("2"), cancelEnd{asked: true})
		c.awaitSQL(t, `SELECT FROM agentd.events WHERE run_id = $run AND type = 'assistant.discarded'`)
		return c
	},
	"a long wait before another attempt": func(t *testing.T, f *cancelFleet) *cancelled {
		c := f.begin(t, "very busy", openaitest.RateLimited("40"), cancelEnd{asked: true})
		c.awaitSQL(t, `SELECT FROM agentd.runs WHERE id = $run AND status = 'queued' AND not_before IS NOT NULL`)
		return c
	},
	"a place behind another run": func(t *testing.T, f *cancelFleet) *cancelled {
		first := f.begin(t, "first", fallsSilent(), cancelEnd{partial: "thinking", asked: true})
		first.awaitSQL(t, `SELECT FROM agentd.events WHERE run_id = $run AND type = 'assistant.delta'`)
		c := &cancelled{cancelFleet: f, say: "second", session: first.session, want: cancelEnd{outside: true}}
		c.run = say(t, f.front, c.session, c.say, "enqueue").GetRunId()
		cancelRun(t, f.front, c.run)
		if s := scalar[string](t, f.db, `SELECT status FROM agentd.runs WHERE id = $1`, first.run); s != "running" {
			t.Errorf("with the run behind it the first one became %s", s)
		}
		first.cancel(t)
		return c
	},
}

// TestACancelThroughAnotherProcessStopsARunInEveryState: with notifications, and
// where none arrives.
func TestACancelThroughAnotherProcessStopsARunInEveryState(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("deaf=%t", deaf), func(t *testing.T) {
			t.Parallel()
			if deaf {
				takesLong(t)
			}
			f := newCancelFleet(t, deaf, 1)
			t.Run("states", func(t *testing.T) {
				for name, bring := range cancelStates {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						c := bring(t, f)
						c.cancel(t)
						c.goesOn(t)
					})
				}
			})
			// What did not stop when told to returns, and nothing comes of it.
			before := scalar[int](t, f.db, `SELECT count(*) FROM agentd.events`)
			f.open(t, f.gate)
			f.front, f.alive = f.alive[0], f.alive[1:]
			f.alive[0].signal(t, 15)
			f.alive[0].wait(t)
			if n := scalar[int](t, f.db, `SELECT count(*) FROM agentd.events`); n != before {
				t.Errorf("%d events came after all runs had ended", n-before)
			}
			if n := f.notified(); (n == 0) != deaf {
				t.Errorf("%d notifications", n)
			}
			f.verify(t)
		})
	}
}

// TestACancelOfARunThatNoWorkerHas: it is queued, or held back.
func TestACancelOfARunThatNoWorkerHas(t *testing.T) {
	t.Parallel()
	f := newCancelFleet(t, true, 0)
	queued := f.begin(t, "queued", openaitest.Text("no"), cancelEnd{})
	queued.cancel(t)
	f.add(t, "--roles", "worker")
	queued.goesOn(t)
	pause := func(args ...string) {
		if code, _, said := f.here(t, args...); code != 0 {
			t.Fatalf("%s: exit code %d: %s", args, code, said)
		}
	}
	pause("pause", "--all")
	awaitRow(t, f.db, `SELECT 'x' FROM agentd.workers AS w, agentd.pauses AS p WHERE w.heartbeat_at > p.since + interval '0.1 seconds'`)
	paused := f.begin(t, "paused", openaitest.Text("no"), cancelEnd{})
	paused.awaitSQL(t, `SELECT FROM agentd.river_job WHERE args ->> 'run_id' = $run AND state = 'completed'`)
	paused.cancel(t)
	pause("resume", "--all")
	paused.goesOn(t)
	for _, r := range f.provider.Requests() {
		if said := lastUser(r.Chat); !strings.HasPrefix(said, "next ") {
			t.Errorf("the provider was asked about %q", said)
		}
	}
	f.verify(t)
}

// TestACancelDuringATakeOver: before anybody has noticed the death, before the
// next claim, and right behind it.
func TestACancelDuringATakeOver(t *testing.T) {
	t.Parallel()
	t.Run("before the death is noticed", func(t *testing.T) {
		t.Parallel()
		f := newCancelFleet(t, false, 2)
		c := f.begin(t, "stalls", fallsSilent(), cancelEnd{partial: "thinking", asked: true})
		c.awaitSQL(t, `SELECT FROM agentd.events WHERE run_id = $run AND type = 'assistant.delta'`)
		_, victim := f.holder(t, c.run)
		f.kill(t, victim)
		c.cancel(t)
		c.goesOn(t)
		f.verify(t)
	})
	t.Run("before the next claim", func(t *testing.T) {
		t.Parallel()
		f := newCancelFleet(t, false, 3)
		c := f.begin(t, "dies", openaitest.Calls(openaitest.Call{ID: "call_1", Name: toolDie, Arguments: `{"times":"9"}`}),
			cancelEnd{calls: []hooks.ResultReason{hooks.ReasonOutcomeUnknown}, effects: 2})
		c.awaitSQL(t, `SELECT FROM agentd.runs WHERE id = $run AND status = 'queued' AND takeovers = 2 AND not_before IS NOT NULL`)
		c.cancel(t)
		c.goesOn(t)
		f.verify(t)
	})
	t.Run("behind the next claim", func(t *testing.T) {
		t.Parallel()
		f := newCancelFleet(t, false, 2)
		c := f.begin(t, "silent", openaitest.Text("no").Hold(openaitest.BeforeHeaders, openaitest.NewHold()), cancelEnd{asked: true})
		c.awaitAsked(t, 1)
		_, victim := f.holder(t, c.run)
		f.kill(t, victim)
		c.awaitSQL(t, `SELECT FROM agentd.events WHERE run_id = $run AND type = 'run.resumed'`)
		c.cancel(t)
		c.goesOn(t)
		f.verify(t)
	})
}
