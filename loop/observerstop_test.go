package loop_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/audit"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// halting stops before each chunk that says "no".
func halting(policy stream.StopPolicy) stream.Registration {
	r := watches("halts", ofText(func(c stream.Chunk) stream.Verdict {
		if strings.Contains(c.Text, "no") {
			return stream.Stop("it refuses")
		}
		return stream.Continue()
	}))
	r.OnStop = policy
	return r
}

// scriptedTurns is a model that answers the nth call of a run with the nth text, in
// pieces, and remembers what it was asked.
type scriptedTurns struct {
	mu    sync.Mutex
	asked []loop.ModelRequest
	say   []string
}

func (m *scriptedTurns) model(t *testing.T) looptest.Model {
	return paced(strict(t, func(ctx context.Context, req loop.ModelRequest, yield func(stream.Chunk, error) bool) {
		m.mu.Lock()
		n := len(m.asked)
		m.asked = append(m.asked, req)
		m.mu.Unlock()
		var chunks []any
		for _, piece := range strings.SplitAfter(m.say[min(n, len(m.say)-1)], " ") {
			chunks = append(chunks, looptest.Text(piece))
		}
		looptest.Answers(looptest.Answer(append(chunks, looptest.Finish(stream.FinishStop))...))(ctx, req, yield)
	}))
}

// toldIn is what a request has, a message a line.
func toldIn(req loop.ModelRequest) []string {
	var out []string
	for _, m := range req.Messages {
		out = append(out, string(m.Role)+": "+m.Text())
	}
	return out
}

const (
	noticeShown = "system: The answer to the message above was stopped by a check (halts), which says: it refuses\n" +
		"The user has been shown the part of it that you see; the rest was dropped. Answer again, with this in mind, and do not repeat that part."
	noticeNothing = "system: The answer to the message above was stopped by a check (halts), which says: it refuses\n" +
		"Nothing of it was shown to the user. Answer again, with this in mind."
)

func TestWhatFollowsWhenAnObserverStopsAnAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy    stream.StopPolicy
		say       []string
		fallbacks int
		status    string
		said      []string // by the model, message by message
		policies  []stream.StopPolicy
		second    []string // what the second call is told
		models    string
	}{
		"the turn ends": {
			stream.StopEndTurn, []string{"I say no more"}, 1, "completed stopped", []string{"I say "}, []stream.StopPolicy{"end_turn"}, nil, "test-model",
		},
		"the turn ends by default": {
			"", []string{"I say no more"}, 1, "completed stopped", []string{"I say "}, []stream.StopPolicy{"end_turn"}, nil, "test-model",
		},
		"the run fails": {
			stream.StopFail, []string{"I say no more"}, 1, "failed stopped", []string{"I say "}, []stream.StopPolicy{"fail"}, nil, "test-model",
		},
		"the model is asked again": {
			stream.StopRetry, []string{"I say no more", "very well"}, 1, "completed stop", []string{"I say ", "very well"}, []stream.StopPolicy{"retry"},
			[]string{"user: hi", "assistant: I say ", noticeShown}, "test-model test-model",
		},
		"it is asked again with nothing shown": {
			stream.StopRetry, []string{"no more", "very well"}, 1, "completed stop", []string{"very well"}, []stream.StopPolicy{"retry"},
			[]string{"user: hi", noticeNothing}, "test-model test-model",
		},
		"it is asked again once": {
			stream.StopRetry, []string{"I say no more", "I said no"}, 1, "failed stopped", []string{"I say ", "I said "}, []stream.StopPolicy{"retry", "fail"},
			[]string{"user: hi", "assistant: I say ", noticeShown}, "test-model test-model",
		},
		"another model is asked": {
			stream.StopFallback, []string{"I say no more", "very well"}, 1, "completed stop", []string{"I say ", "very well"}, []stream.StopPolicy{"fallback"},
			[]string{"user: hi", "assistant: I say ", noticeShown}, "test-model second",
		},
		"each other model is asked": {
			stream.StopFallback, []string{"I say no more", "I said no", "no", "no"}, 2, "failed stopped", []string{"I say ", "I said "}, []stream.StopPolicy{"fallback", "fallback", "fail"},
			[]string{"user: hi", "assistant: I say ", noticeShown}, "test-model second third",
		},
		"there is no other model": {
			stream.StopFallback, []string{"I say no more"}, 0, "failed stopped", []string{"I say "}, []stream.StopPolicy{"fail"}, nil, "test-model",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &scriptedTurns{say: c.say}
				b := looptest.NewBench(looptest.NewLog(), m.model(t))
				withFallbacks(b, m.model(t), c.fallbacks)
				b.Observe(t, halting(c.policy))
				j := b.Start(t, b.Session(t), "hi")
				run := b.Advance(t, j)
				if got := string(run.Status) + " " + run.Reason; got != c.status {
					t.Errorf("the run is %s %q; want %s", got, run.Error, c.status)
				}
				if failed := run.Status == loop.RunFailed; failed != (run.Error == "the observer halts stopped the model's answer: it refuses") {
					t.Errorf("the run says %q", run.Error)
				}
				events, s := checked(t, b, j.SessionID)
				var said []string
				for _, msg := range s.Messages[1:] {
					said = append(said, msg.Text())
				}
				if !slices.Equal(said, c.said) {
					t.Errorf("the conversation has %q; want %q", said, c.said)
				}
				checkStops(t, events, c.policies)
				for _, v := range audit.Check(events, nil) {
					if v.Rule == audit.RuleRequest {
						t.Error(v)
					}
				}
				if len(c.second) > 0 && !slices.Equal(toldIn(m.asked[1]), c.second) {
					t.Errorf("the second call is told %q; want %q", toldIn(m.asked[1]), c.second)
				}
				var models []string
				for _, r := range payloads[event.ModelRequested](t, events) {
					models = append(models, r.Model)
				}
				var asked []string
				for _, req := range m.asked {
					asked = append(asked, req.Model)
				}
				if got := strings.Join(models, " "); got != c.models || !slices.Equal(asked, models) {
					t.Errorf("asked %q, announced %q; want %q", asked, got, c.models)
				}
				// A later run is told of what was said, and of no notice.
				m.say = []string{"fine"}
				b.Advance(t, b.Start(t, j.SessionID, "and?"))
				want := []string{"user: hi"}
				for _, text := range c.said {
					want = append(want, "assistant: "+text)
				}
				if got := toldIn(m.asked[len(m.asked)-1]); !slices.Equal(got, append(want, "user: and?")) {
					t.Errorf("the next run is told %q", got)
				}
			})
		})
	}
}

func withFallbacks(b *looptest.Bench, model loop.Model, n int) {
	agent := b.Engine.Agents["demo"]
	for i := range n {
		agent.Fallbacks = append(agent.Fallbacks, loop.Fallback{Model: model, ModelName: []string{"second", "third"}[i], Prices: loop.Prices{Input: int64(i + 1), Output: int64(i + 1)}})
	}
	b.Engine.Agents["demo"] = agent
}

// checkStops: each stop says where it was, and what follows.
func checkStops(t *testing.T, events []event.Event, policies []stream.StopPolicy) {
	t.Helper()
	stops := payloads[event.AssistantStopped](t, events)
	var got []stream.StopPolicy
	for _, p := range stops {
		got = append(got, p.Policy)
		shown := hooks.Message{Parts: p.Parts}.Text()
		if p.Reason != event.StoppedByObserver || p.Observer != "halts" || p.Accepted != len(shown) || p.Chunk != 1+strings.Count(shown, " ") || (p.MessageID == "") != (shown == "") {
			t.Errorf("stopped %+v", p)
		}
		if again := p.Policy == stream.StopRetry || p.Policy == stream.StopFallback; again != (p.Notice != nil) {
			t.Errorf("a stop with policy %s has the notice %+v", p.Policy, p.Notice)
		}
	}
	if !slices.Equal(got, policies) {
		t.Errorf("the stops are %v; want %v", got, policies)
	}
}

// TestAStopIsDecidedOnce: the ledger has it in the append of the stop, with the
// summaries, and the end of a run that fails covers it.
func TestAStopIsDecidedOnce(t *testing.T) {
	t.Parallel()
	for policy, at := range map[stream.StopPolicy]event.Type{
		stream.StopFail: event.TypeRunFailed, stream.StopEndTurn: event.TypeAssistantStopped, stream.StopRetry: event.TypeAssistantStopped,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &scriptedTurns{say: []string{"I say no more", "fine"}}
				b := looptest.NewBench(looptest.NewLog(), m.model(t))
				b.Observe(t, counts, halting(policy))
				j := b.Start(t, b.Session(t), "hi")
				b.Advance(t, j)
				events, _ := checked(t, b, j.SessionID)
				all := ledger(b, j.SessionID)
				if got := rows(all)[:3]; !slices.Equal(got, []string{"OnEnd counts continue", "OnEnd halts continue", "OnChunk halts stop"}) {
					t.Fatalf("the ledger has %q", got)
				}
				stop := all[2]
				if stop.ReasonCode != "observer.stop" || stop.Payload.Reason != "it refuses" || stop.Payload.Annotations != `{"chunk":3,"accepted":6,"policy":"`+string(policy)+`"}` ||
					stop.Index != 2 || stop.ChainLength != 2 || stop.Outcome != hooks.OutcomeOK {
					t.Errorf("the stop is %+v", stop)
				}
				if got := events[stop.EventSeq-1].Type; got != at {
					t.Errorf("it is committed with %s; want %s", got, at)
				}
			})
		})
	}
}

func TestAnObserverThatFailsIsLeftOutOrStopsTheAnswer(t *testing.T) {
	t.Parallel()
	panics := func(c stream.Chunk) stream.Verdict {
		if c.Text == "say " {
			panic("secret: " + c.Text)
		}
		return amended(c, strings.ToUpper(c.Text))
	}
	for name, c := range map[string]struct {
		onFailure stream.FailurePolicy
		redacting bool
		onStop    stream.StopPolicy
		status    string
		said      string
		rows      []string
	}{
		"left out":        {stream.FailDetach, false, "", "completed stop", "AH say no more", []string{"OnEnd odd transform panic"}},
		"stops":           {stream.FailStop, false, "", "completed stopped", "AH ", []string{"OnEnd odd transform panic", "OnChunk odd stop panic"}},
		"stops and fails": {stream.FailStop, false, stream.StopFail, "failed stopped", "AH ", []string{"OnEnd odd transform panic", "OnChunk odd stop panic"}},
		"takes secrets out": {
			stream.FailDetach, true, stream.StopFail, "failed stopped", "AH ", []string{"OnEnd odd transform panic", "OnChunk odd stop panic"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &scriptedTurns{say: []string{"ah say no more"}}
				b := looptest.NewBench(looptest.NewLog(), m.model(t))
				r := watches("odd", ofText(panics))
				r.OnFailure, r.Redacting, r.OnStop = c.onFailure, c.redacting, c.onStop
				b.Observe(t, r)
				j := b.Start(t, b.Session(t), "hi")
				run := b.Advance(t, j)
				events, s := checked(t, b, j.SessionID)
				if got := string(run.Status) + " " + run.Reason; got != c.status || s.Messages[1].Text() != c.said {
					t.Errorf("the run is %s %q and says %q; want %s, %q", got, run.Error, s.Messages[1].Text(), c.status, c.said)
				}
				all := ledger(b, j.SessionID)
				if got := rows(all); !slices.Equal(got, c.rows) {
					t.Errorf("the ledger has %q; want %q", got, c.rows)
				}
				open := c.onFailure == stream.FailDetach && !c.redacting
				for _, row := range all {
					if row.FailedOpen != open || (row.FailurePolicy == hooks.FailOpen) != open || row.ReasonCode != "observer.panic" || strings.Contains(row.Payload.Reason, "secret") {
						t.Errorf("the row is %+v", row)
					}
				}
				for _, e := range events {
					if strings.Contains(string(e.Payload), "secret") {
						t.Errorf("%s tells what it panicked with", e.Type)
					}
				}
			})
		})
	}
}

// TestAStopBreaksTheProviderOffAtOnce: the adapter is told that nobody reads on
// before anything of the stop is written.
func TestAStopBreaksTheProviderOffAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := looptest.NewLog()
		left, stoppedFirst := false, false
		var mu sync.Mutex
		log.FailAppends(func(a loop.Append) error {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range a.Events {
				if e.Type == event.TypeAssistantStopped && !left {
					stoppedFirst = true
				}
			}
			return nil
		})
		more := 0
		b := looptest.NewBench(log, looptest.Model(func(_ context.Context, _ loop.ModelRequest, yield func(stream.Chunk, error) bool) {
			for _, text := range []string{"I say ", "no ", "more", "and more"} {
				if !yield(looptest.Text(text), nil) {
					mu.Lock()
					left = true
					mu.Unlock()
					return
				}
				more++
			}
		}))
		b.Observe(t, halting(stream.StopEndTurn))
		j := b.Start(t, b.Session(t), "hi")
		began := time.Now()
		b.Advance(t, j)
		if !left || stoppedFirst || more != 1 || time.Since(began) > 0 {
			t.Errorf("left: %t, written before: %t, chunks taken: %d, after %v", left, stoppedFirst, more, time.Since(began))
		}
	})
}

// TestAStopDropsToolCalls, also those that were whole, and keeps what the provider
// said of the usage.
func TestAStopDropsToolCalls(t *testing.T) {
	t.Parallel()
	b := looptest.NewBench(looptest.NewLog(), looptest.Answers(looptest.Answer(
		looptest.Text("let me see"), looptest.ToolCall("a", "look", `{"n":1}`), looptest.ToolCall("b", "look", `{"n":2}`), looptest.Finish(stream.FinishToolCalls),
	)), looptest.Says("look", "seen"))
	agent := b.Engine.Agents["demo"]
	agent.Prices = loop.Prices{Input: 1_000_000, Output: 1_000_000}
	b.Engine.Agents["demo"] = agent
	b.Observe(t, watches("late", func() looptest.Observer {
		return func(c stream.Chunk) stream.Verdict {
			if c.Kind == stream.KindFinish {
				return stream.Stop("too many calls")
			}
			return stream.Continue()
		}
	}))
	j := b.Start(t, b.Session(t), "hi")
	run := b.Advance(t, j)
	events, s := checked(t, b, j.SessionID)
	if len(payloads[event.ToolProposed](t, events)) > 0 || run.Reason != event.StoppedByObserver || s.Messages[1].Text() != "let me see" || len(s.Messages[1].Parts) != 1 {
		t.Errorf("the run is %+v, and the message %+v", run, s.Messages[1])
	}
	p := only[event.AssistantStopped](t, events)
	if p.Accepted != len(`let me see{"n":1}{"n":2}`) || p.Usage == nil || *p.Usage != (stream.Usage{InputTokens: 3, OutputTokens: 5}) || p.Cost == nil {
		t.Errorf("stopped %+v", p)
	}
}

// TestACancelInAnAnswerEndsItsObservers: the row of what they did is in the append
// that ends the attempt.
func TestACancelInAnAnswerEndsItsObservers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looptest.NewBench(looptest.NewLog(), paced(stalls(nil, looptest.Text("once "), looptest.Text("upon"))))
		var ended []stream.Summary
		r := counts
		r.New = func(stream.Call) stream.Observer { return toldOfEnd{&ended} }
		b.Observe(t, r)
		j := b.Start(t, b.Session(t), "hi")
		w := work(t, b, j)
		pause(t.Context(), time.Second)
		events, _ := cancelledNow(t, b, j, w, 0)
		all := ledger(b, j.SessionID)
		if got := rows(all); !slices.Equal(got, []string{"OnEnd counts continue"}) || events[all[0].EventSeq-1].Type != event.TypeRunCancelled {
			t.Errorf("the ledger has %q with %s", got, events[all[0].EventSeq-1].Type)
		}
		if len(ended) != 1 || ended[0].Ending != stream.EndCancelled || ended[0].Chunks != 2 {
			t.Errorf("the observer was told %+v", ended)
		}
	})
}

// toldOfEnd keeps what it is told of the end.
type toldOfEnd struct{ told *[]stream.Summary }

func (toldOfEnd) OnChunk(stream.Chunk) stream.Verdict { return stream.Continue() }

func (e toldOfEnd) OnEnd(s stream.Summary) { *e.told = append(*e.told, s) }

func TestObserversAreToldHowAnAttemptEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		model looptest.Model
		want  stream.Ending
	}{
		"whole":     {says("hi"), stream.EndFinished},
		"cut off":   {fails(nil, looptest.Text("hi")), stream.EndFailed},
		"failed":    {fails(errors.New("no"), looptest.Text("hi")), stream.EndFailed},
		"panicked":  {func(context.Context, loop.ModelRequest, func(stream.Chunk, error) bool) { panic("no") }, stream.EndFailed},
		"stopped":   {says("no"), stream.EndStopped},
		"went on":   {fails(nil, looptest.Text("hi"), looptest.Finish(stream.FinishStop), looptest.Text("and")), stream.EndFailed},
		"two ends":  {fails(nil, looptest.Finish(stream.FinishStop), looptest.Finish(stream.FinishStop)), stream.EndFailed},
		"no call":   {fails(nil, stream.Chunk{Lane: stream.LaneToolArguments, BlockID: "secret", Text: "{"}), stream.EndFailed},
		"bad ended": {fails(errModel, looptest.Finish(stream.FinishStop)), stream.EndFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := looptest.NewBench(looptest.NewLog(), c.model)
			var ended []stream.Summary
			r := counts
			r.New = func(stream.Call) stream.Observer { return toldOfEnd{&ended} }
			b.Observe(t, r, halting(stream.StopEndTurn))
			j := b.Start(t, b.Session(t), "hi")
			run := b.Advance(t, j)
			checked(t, b, j.SessionID)
			if len(ended) != 1 || ended[0].Ending != c.want {
				t.Errorf("the observer was told %+v; want %s", ended, c.want)
			}
			if strings.Contains(run.Error, "secret") {
				t.Errorf("the run says %q", run.Error)
			}
		})
	}
}
