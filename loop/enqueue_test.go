package loop_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
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

// ending is a way in which an active run ends.
type ending struct {
	model looptest.Model
	// prepare changes the bench before the run is started.
	prepare func(b *looptest.Bench)
	// end brings the run to its end.
	end    func(t *testing.T, b *looptest.Bench, j loop.Job)
	status loop.RunStatus
	reason string
}

func advances(t *testing.T, b *looptest.Bench, j loop.Job) { b.Advance(t, j) }

// endings are all of them.
func endings() map[string]ending {
	broken := looptest.Model(func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		yield(stream.Chunk{}, &loop.ModelError{Message: "no"})
	})
	stop := func(t *testing.T, b *looptest.Bench, j loop.Job) {
		if err := cancel(t, b, j); err != nil {
			t.Error(err)
		}
	}
	asks := func(b *looptest.Bench) { permit(b, loop.Permission{Tools: "look", Mode: loop.PermissionAsk}) }
	return map[string]ending{
		"completed":                    {says("hi"), nil, advances, loop.RunCompleted, "stop"},
		"failed":                       {broken, nil, advances, loop.RunFailed, "model_error"},
		"cancelled while it is queued": {says("hi"), nil, stop, loop.RunCancelled, "enough"},
		"cancelled while it runs": {stalls(nil, looptest.Text("once")), nil, func(t *testing.T, b *looptest.Bench, j loop.Job) {
			w := work(t, b, j)
			pause(t.Context(), time.Minute)
			stop(t, b, j)
			if err := w.wait(t); err != nil {
				t.Error(err)
			}
		}, loop.RunCancelled, "enough"},
		"cancelled while it waits": {calls("look"), asks, func(t *testing.T, b *looptest.Bench, j loop.Job) {
			b.Advance(t, j)
			stop(t, b, j)
		}, loop.RunCancelled, "enough"},
		"cancelled under a dead worker": {stalls(nil), nil, func(t *testing.T, b *looptest.Bench, j loop.Job) {
			claimed(t, b, j, "w", 1)
			stop(t, b, j)
			release(t, b, j, "w")
		}, loop.RunCancelled, "enough"},
		"poisoned": {stalls(nil), nil, func(t *testing.T, b *looptest.Bench, j loop.Job) {
			for range 5 {
				claimed(t, b, j, "w", 1)
				release(t, b, j, "w")
			}
		}, loop.RunFailed, "poisoned"},
		"out of time":              {stalls(nil), func(b *looptest.Bench) { limit(b, loop.Limits{RunTime: time.Minute}) }, advances, loop.RunFailed, "timeout"},
		"out of turns":             {calls("look"), func(b *looptest.Bench) { limit(b, loop.Limits{Turns: 1}) }, advances, loop.RunFailed, "turn_limit"},
		"of an agent that is gone": {says("hi"), func(b *looptest.Bench) { b.Commands.Agents = []string{"gone", "demo"} }, advances, loop.RunFailed, "unknown_agent"},
		"ended by force": {says("hi"), nil, func(t *testing.T, b *looptest.Bench, j loop.Job) {
			claimed(t, b, j, "w", 1)
			if err := fail(t, b, j, "it hangs"); err != nil {
				t.Error(err)
			}
		}, loop.RunFailed, "forced"},
		"refused by a hook": {says("hi"), func(b *looptest.Bench) {
			b.Engine.Hooks = hooks.Hooks{BeforeRunStart: hooks.Named("no", "1", func(_ context.Context, in hooks.BeforeRunStart) (hooks.BeforeRunStartResult, error) {
				if len(in.Messages) == 1 {
					return hooks.BeforeRunStartResult{Action: hooks.ActionBlock, Reason: hooks.Reason{Code: "no"}}, nil
				}
				return hooks.BeforeRunStartResult{Action: hooks.ActionContinue}, nil
			})}
			b.Engine.Asker = &hooks.Asker{HookSet: b.Engine.Hooks.Set().Digest}
		}, advances, loop.RunFailed, "blocked"},
	}
}

// TestEveryEndOfARunBeginsTheNextOne: in the same append, with a job, and once.
func TestEveryEndOfARunBeginsTheNextOne(t *testing.T) {
	t.Parallel()
	for name, c := range endings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				log := looptest.NewLog()
				b := looptest.NewBench(log, paced(c.model), looptest.Says("look", "seen"))
				if c.prepare != nil {
					c.prepare(b)
				}
				id := b.Session(t)
				first := b.Start(t, id, "one")
				b.Commands.Agents = []string{"demo"}
				second, third := b.Say(t, id, "two", event.PolicyEnqueue), b.Say(t, id, "three", event.PolicyEnqueue)
				var last loop.Append
				log.FailAppends(func(a loop.Append) error {
					last = a
					return nil
				})
				c.end(t, b, first)
				if r := b.Run(t, first); r.Status != c.status || r.Reason != c.reason {
					t.Fatalf("the run ended %s %q; want %s %q", r.Status, r.Reason, c.status, c.reason)
				}
				n := len(last.Events)
				if n < 2 || last.Events[n-2].RunID != first.RunID || last.Events[n-1].RunID != second.RunID || last.Events[n-1].Type != event.TypeRunQueued {
					t.Errorf("the last append is %v; want the end of the one and the beginning of the other", looptest.Types(last.Events))
				}
				if !slices.Equal(last.Jobs, []loop.Job{second}) {
					t.Errorf("its jobs are %v; want %v", last.Jobs, second)
				}
				if r := b.Run(t, third); r.Status != loop.RunEnqueued {
					t.Errorf("the third run is %s; want it enqueued", r.Status)
				}
				agent := b.Engine.Agents["demo"]
				agent.Model, agent.Limits = strict(t, says("as you wish")), loop.Limits{}
				b.Engine.Agents["demo"] = agent
				for _, j := range []loop.Job{second, third} {
					if r := b.Advance(t, j); r.Status != loop.RunCompleted {
						t.Errorf("run %+v; want it completed", r)
					}
				}
				_, s := checked(t, b, id)
				var said []string
				for _, m := range s.Messages {
					if m.Role == hooks.RoleUser {
						said = append(said, m.Text())
					}
				}
				if want := []string{"one", "two", "three"}; !slices.Equal(said, want) {
					t.Errorf("the user said %q; want %q", said, want)
				}
			})
		})
	}
}

// TestTheModelSeesAMessageWhenItsRunHasBegun: not before, and behind the answer
// to the one before, although the log has it earlier.
func TestTheModelSeesAMessageWhenItsRunHasBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent [][]string
		b := looptest.NewBench(looptest.NewLog(), nil, looptest.Says("look", "seen"))
		var enqueue func()
		answers := calls("look")
		agent := b.Engine.Agents["demo"]
		agent.Model = looptest.Model(func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			var texts []string
			for _, m := range req.Messages {
				texts = append(texts, string(m.Role)+" "+m.Text())
			}
			sent = append(sent, texts)
			enqueue()
			answers(ctx, req, yield)
		})
		b.Engine.Agents["demo"] = agent
		id := b.Session(t)
		first := b.Start(t, id, "one")
		var second loop.Job
		enqueue = func() {
			enqueue = func() {}
			second = b.Say(t, id, "two", event.PolicyEnqueue)
		}
		b.Advance(t, first)
		b.Advance(t, second)
		want := [][]string{
			{"user one"},
			{"user one", "assistant ", "tool "},
			{"user one", "assistant ", "tool ", "assistant done", "user two"},
			{"user one", "assistant ", "tool ", "assistant done", "user two", "assistant ", "tool "},
		}
		if !reflect.DeepEqual(sent, want) {
			t.Errorf("the model was sent %q; want %q", sent, want)
		}
		checked(t, b, id)
	})
}

// TestAMessageIsCheckedWhenItArrives: hooks are asked once, and what they decided
// is stored with the message.
func TestAMessageIsCheckedWhenItArrives(t *testing.T) {
	t.Parallel()
	b, asked := onInput(says("ok"), hooks.BeforeInputResult{Action: hooks.ActionContinue})
	id := b.Session(t)
	first := b.Start(t, id, "one")
	second := b.Say(t, id, "two", event.PolicyEnqueue)
	events, _ := checked(t, b, id)
	if rec := ledger(b, id); len(rec) != 2 || rec[1].EventSeq != events[len(events)-1].Seq {
		t.Errorf("ledger %v; want two decisions, the last with run.created", rows(rec))
	}
	b.Advance(t, first)
	b.Advance(t, second)
	checked(t, b, id)
	if asked.Load() != 2 {
		t.Errorf("asked %d times; want 2", asked.Load())
	}
}

func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	for _, gate := range []bool{false, true} {
		t.Run(fmt.Sprintf("gate=%v", gate), func(t *testing.T) {
			t.Parallel()
			b, _ := onInput(says("ok"), hooks.BeforeInputResult{Action: hooks.ActionContinue})
			if !gate {
				quiet(b)
			}
			id := b.Session(t)
			first := b.Start(t, id, "one")
			var last loop.Job
			for i := range loop.MaxEnqueued {
				last = b.Say(t, id, fmt.Sprint("more ", i), event.PolicyEnqueue)
			}
			before := len(b.Events(t, id))
			start := func() (loop.StartedRun, error) {
				return b.Commands.StartRun(t.Context(), loop.StartRun{
					TenantID: looptest.Tenant, SessionID: id, Text: "one more", Policy: event.PolicyEnqueue, IdempotencyKey: "k", Actor: looptest.Tester,
				})
			}
			_, err := start()
			var full *loop.BusyError
			if !errors.Is(err, loop.ErrQueueFull) || errors.Is(err, loop.ErrBusy) || !errors.As(err, &full) || full.ActiveRunID != first.RunID || !strings.Contains(err.Error(), "64 runs are enqueued") {
				t.Errorf("%v; want ErrQueueFull", err)
			}
			events, _ := checked(t, b, id)
			if got := payloads[event.InputRejected](t, events); gate != (len(got) == 1) || gate && got[0].Policy != "enqueue" || !gate && len(events) != before {
				t.Errorf("rejected %+v; want it recorded if a hook was asked", got)
			}
			if err := cancel(t, b, last); err != nil {
				t.Fatal(err)
			}
			if run, err := start(); err != nil || !run.Enqueued || run.Repeated {
				t.Errorf("when there is room: %+v, %v; want a run", run, err)
			}
		})
	}
}

// TestARepeatedRequestIsTheRunWhateverBecameOfIt of an enqueued one.
func TestARepeatedRequestIsTheRunWhateverBecameOfIt(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	id := b.Session(t)
	first := b.Start(t, id, "one")
	request := func(key string) loop.StartRun {
		return loop.StartRun{SessionID: id, Text: "two", Policy: event.PolicyEnqueue, IdempotencyKey: key}
	}
	kept, err := start(request("kept"))
	if err != nil || !kept.Enqueued || kept.Repeated || kept.Seq != 4 {
		t.Fatalf("%+v, %v; want it enqueued", kept, err)
	}
	dropped, err := start(request("dropped"))
	if err != nil {
		t.Fatal(err)
	}
	same := func(key string, was loop.StartedRun, enqueued bool) {
		t.Helper()
		was.Repeated, was.Enqueued = true, enqueued
		if got, err := start(request(key)); err != nil || got != was {
			t.Errorf("%s: %+v, %v; want %+v", key, got, err, was)
		}
	}
	same("kept", kept, true)
	if err := cancel(t, b, job(id, dropped)); err != nil {
		t.Fatal(err)
	}
	same("dropped", dropped, false)
	b.Advance(t, first)
	same("kept", kept, false)
	b.Advance(t, job(id, kept))
	same("kept", kept, false)
	other := request("kept")
	other.Policy = ""
	if _, err := start(other); !errors.Is(err, loop.ErrKeyReused) {
		t.Errorf("the key with another policy: %v; want ErrKeyReused", err)
	}
	plain, err := start(loop.StartRun{SessionID: id, Text: "three", IdempotencyKey: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := start(loop.StartRun{SessionID: id, Text: "three", IdempotencyKey: "plain", Policy: event.PolicyReject})
	if plain.Repeated = true; err != nil || again != plain {
		t.Errorf("the default policy, spelled out: %+v, %v; want %+v", again, err, plain)
	}
}

func TestThePolicyOfAnAgent(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	b.Commands.Policies = map[string]event.Policy{"other": event.PolicyEnqueue}
	id := b.Session(t)
	from := b.Run(t, b.Start(t, id, "one")).MessageID
	before := len(b.Events(t, id))
	for name, c := range map[string]struct {
		cmd  loop.StartRun
		want error
	}{
		"an agent without one":                {loop.StartRun{Text: "two"}, loop.ErrBusy},
		"a request that knows better":         {loop.StartRun{Text: "two", Agent: "other", Policy: event.PolicyReject}, loop.ErrBusy},
		"what is replaced has to stand still": {loop.StartRun{Text: "two", Agent: "other", ReplaceFrom: from}, loop.ErrBusy},
		"to replace what does not stand still": {
			loop.StartRun{Text: "two", ReplaceFrom: from, Policy: event.PolicyEnqueue}, &loop.InvalidError{Field: "policy"},
		},
		"no policy": {loop.StartRun{Text: "two", Policy: "Enqueue"}, &loop.InvalidError{Field: "policy"}},
	} {
		c.cmd.SessionID = id
		_, err := start(c.cmd)
		var invalid, want *loop.InvalidError
		if errors.As(c.want, &want) && errors.As(err, &invalid) && invalid.Field == want.Field {
			continue
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", name, err, c.want)
		}
	}
	if n := len(b.Events(t, id)); n != before {
		t.Errorf("%d events more; want none", n-before)
	}
	if run, err := start(loop.StartRun{SessionID: id, Text: "two", Agent: "other"}); err != nil || !run.Enqueued {
		t.Errorf("an agent that enqueues: %+v, %v; want it enqueued", run, err)
	}
}

// endsFirst is a log whose active run ends just before it is loaded.
type endsFirst struct {
	loop.Log
	end  func()
	fail error
}

func (l *endsFirst) Load(ctx context.Context, tenantID, sessionID, runID string) (loop.State, error) {
	if end := l.end; end != nil {
		l.end = nil
		end()
	}
	if l.fail != nil {
		return loop.State{}, l.fail
	}
	return l.Log.Load(ctx, tenantID, sessionID, runID)
}

func TestARunThatEndsJustThenKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	b, start := commands(t)
	id := b.Session(t)
	first := b.Start(t, id, "one")
	log := &endsFirst{Log: b.Log, end: func() { b.Advance(t, first) }}
	b.Commands.Log = log
	run, err := start(loop.StartRun{SessionID: id, Text: "two", Policy: event.PolicyEnqueue})
	if err != nil || run.Enqueued {
		t.Errorf("%+v, %v; want it started", run, err)
	}
	if _, s := checked(t, b, id); s.Runs[1].Status != loop.RunQueued || s.Runs[1].QueuedFor != "" {
		t.Errorf("run %+v; want it queued as if nobody had been there", s.Runs[1])
	}
	log.fail = loop.ErrUnavailable
	if _, err := start(loop.StartRun{SessionID: id, Text: "three", Policy: event.PolicyEnqueue}); !errors.Is(err, loop.ErrUnavailable) {
		t.Errorf("%v; want ErrUnavailable", err)
	}
}

// TestADeathInEveryAppendLosesNoEnqueuedRun and begins none twice: whatever the
// worker was writing, and whether or not it was written.
func TestADeathInEveryAppendLosesNoEnqueuedRun(t *testing.T) {
	t.Parallel()
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprintf("written=%v", written), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				survives := 0
				for n := 1; survives == 0; n++ {
					k := newTalk(t, looptest.NewLog())
					id := k.Session(t)
					jobs := []loop.Job{k.Start(t, id, "one"), k.Say(t, id, "two", event.PolicyEnqueue), k.Say(t, id, "three", event.PolicyEnqueue)}
					deaths, left := 0, n
					ctx, die := context.WithCancel(t.Context())
					kill := func(loop.Append) error {
						if left--; left == 0 {
							deaths++
							die()
							return errDead
						}
						return nil
					}
					if written {
						k.log.LoseAcks(kill)
					} else {
						k.log.FailAppends(kill)
					}
					k.settle(t, ctx, id)
					die()
					if deaths == 0 {
						survives = n
					}
					k.log.LoseAcks(nil)
					k.log.FailAppends(nil)
					k.settle(t, t.Context(), id)
					_, s := checked(t, k.Bench, id)
					var order []string
					for _, r := range s.Runs {
						order = append(order, r.ID)
						if r.Status != loop.RunCompleted || r.Started != true {
							t.Errorf("dead in append %d: run %+v; want it completed", n, r)
						}
					}
					if want := []string{jobs[0].RunID, jobs[1].RunID, jobs[2].RunID}; !slices.Equal(order, want) || len(s.Enqueued) > 0 {
						t.Errorf("dead in append %d: runs %v; want %v", n, order, want)
					}
					begun := 0
					for _, e := range k.Events(t, id) {
						if e.Type == event.TypeRunStarted {
							begun++
						}
					}
					if begun != 3 {
						t.Errorf("dead in append %d: %d starts; want 3", n, begun)
					}
				}
				if survives < 10 {
					t.Errorf("only %d appends", survives)
				}
			})
		})
	}
}

// settle does what workers do until nothing is left to do, or ctx ends: each job
// is taken, and who died is buried.
func (k *talk) settle(t *testing.T, ctx context.Context, sessionID string) {
	t.Helper()
	for ctx.Err() == nil {
		var j loop.Job
		for _, have := range k.log.Jobs() {
			if have.SessionID == sessionID && k.Run(t, have).Ticket == have.Ticket && k.Run(t, have).Status == loop.RunQueued {
				j = have
			}
		}
		if j.RunID == "" {
			h, err := k.Log.Head(ctx, looptest.Tenant, sessionID)
			if err != nil || h.ActiveRunID == "" {
				return
			}
			run := k.Run(t, loop.Job{SessionID: sessionID, RunID: h.ActiveRunID})
			if run.Status != loop.RunRunning {
				t.Fatalf("run %+v has no job", run)
			}
			buried(t, k.Bench, loop.Job{TenantID: looptest.Tenant, SessionID: sessionID, RunID: run.ID}, run.WorkerID)
			continue
		}
		_ = k.Engine.Advance(ctx, j, loop.Holder{WorkerID: looptest.NewID()})
	}
}
