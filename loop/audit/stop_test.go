package audit_test

import (
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/audit"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// stopping is the log of a run whose first answer an observer has stopped.
func stopping(t *testing.T, policy stream.StopPolicy) (w written) {
	t.Helper()
	log := looptest.NewLog()
	b := looptest.NewBench(log, looptest.Answers(
		looptest.Answer(looptest.Text("so far "), looptest.Text("forbidden"), looptest.Finish(stream.FinishStop)),
		looptest.Answer(looptest.Text("done"), looptest.Finish(stream.FinishStop)),
	))
	r := looptest.Watches("watch", func() looptest.Observer {
		return func(c stream.Chunk) stream.Verdict {
			if c.Text == "forbidden" {
				return stream.Stop("not that")
			}
			return stream.Continue()
		}
	})
	r.OnStop = policy
	b.Observe(t, r)
	j := b.Start(t, b.Session(t), "hi")
	b.Advance(t, j)
	w.events = b.Events(t, j.SessionID)
	for _, row := range log.Ledger(j.SessionID) {
		w.decisions = append(w.decisions, audit.DecisionOf(row))
	}
	return w
}

func TestRulesOfStops(t *testing.T) {
	t.Parallel()
	type stop = event.AssistantStopped
	notice := &event.PreparedMessage{MessageID: "n"}
	for name, c := range map[string]struct {
		policy stream.StopPolicy
		change func(*written)
		broken bool
	}{
		"the turn ends":                  {stream.StopEndTurn, nil, false},
		"the run fails":                  {stream.StopFail, nil, false},
		"the model is asked again":       {stream.StopRetry, nil, false},
		"another reason":                 {stream.StopEndTurn, edit(0, func(_ *event.Event, p *stop) { p.Reason = "cancelled" }), true},
		"no such policy":                 {stream.StopFail, edit(0, func(_ *event.Event, p *stop) { p.Policy = "perhaps" }), true},
		"a notice to nobody":             {stream.StopFail, edit(0, func(_ *event.Event, p *stop) { p.Notice = notice }), true},
		"no notice":                      {stream.StopRetry, edit(0, func(_ *event.Event, p *stop) { p.Notice = nil }), true},
		"another end":                    {stream.StopEndTurn, edit(0, func(_ *event.Event, p *event.RunCompleted) { p.Reason = "stop" }), true},
		"an end where it is asked again": {stream.StopEndTurn, edit(0, func(_ *event.Event, p *stop) { p.Policy, p.Notice = stream.StopRetry, notice }), true},
		"stopped where nothing has been": {stream.StopRetry, edit(0, func(_ *event.Event, p *event.RunCompleted) { p.Reason = event.StoppedByObserver }), true},
		"asked again twice":              {stream.StopRetry, twice, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := stopping(t, c.policy)
			if c.change != nil {
				c.change(&w)
			}
			found := false
			for _, v := range audit.Check(w.events, w.decisions) {
				found = found || v.Rule == audit.RuleStop
				if !c.broken {
					t.Error(v)
				}
			}
			if found != c.broken {
				t.Errorf("found: %t; want %t", found, c.broken)
			}
		})
	}
}

// twice makes a stop of the second answer, which asks for a third.
func twice(w *written) {
	for i, e := range w.events {
		p, _ := event.Decode(e)
		q, ok := p.(event.AssistantCompleted)
		if !ok {
			continue
		}
		next, err := event.New(event.Scope{SessionID: e.SessionID, RunID: e.RunID, Turn: e.Turn, At: e.At, Actor: e.Actor}, event.AssistantStopped{
			Attempt: 1, MessageID: q.MessageID, Parts: q.Parts, Reason: event.StoppedByObserver, FirstSeq: q.FirstSeq,
			Observer: "watch", Policy: stream.StopRetry, Notice: &event.PreparedMessage{MessageID: "n"},
		})
		if err != nil {
			panic(err)
		}
		next.Seq = e.Seq
		w.events[i] = next
	}
}
