package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// observe has the stack's answers observed, and asks h at the gates.
func (s *stack) observe(t *testing.T, h hooks.Hooks, regs ...stream.Registration) {
	t.Helper()
	s.checked(t, h)
	s.Observe(t, regs...)
	if err := s.store.PutHookSet(t.Context(), h.Set().With(s.Engine.Observers.Hooks()...)); err != nil {
		t.Fatal(err)
	}
}

// seesText is an observer of the pieces of the text, and of its end.
func seesText(id string, see func(c stream.Chunk) stream.Verdict) stream.Registration {
	return looptest.Watches(id, func() looptest.Observer {
		return func(c stream.Chunk) stream.Verdict {
			if c.Lane != stream.LaneText || c.Kind != stream.KindDelta {
				return stream.Continue()
			}
			return see(c)
		}
	})
}

func withText(c stream.Chunk, text string) stream.Verdict {
	c.Kind, c.Text = stream.KindDelta, text
	return stream.Amend(c)
}

// The observers that these tests share.
var (
	amends = seesText("amends", func(c stream.Chunk) stream.Verdict {
		return withText(c, strings.ReplaceAll(c.Text, "forty-two", "[n]"))
	})
	drops = seesText("drops", func(c stream.Chunk) stream.Verdict {
		if c.Text == "is " {
			return withText(c, "")
		}
		return stream.Continue()
	})
	empties = seesText("empties", func(c stream.Chunk) stream.Verdict { return withText(c, "") })
	stops   = seesText("stops", func(c stream.Chunk) stream.Verdict {
		if strings.Contains(c.Text, "forty-two") {
			return stream.Stop("numbers are not to be said")
		}
		return stream.Continue()
	})
	adds = looptest.Watches("adds", func() looptest.Observer {
		said := false
		return func(c stream.Chunk) stream.Verdict {
			if c.Lane != stream.LaneText || c.Kind != stream.KindEnd || said {
				return stream.Continue()
			}
			said = true
			return withText(c, " (checked)")
		}
	})
	emits = seesText("emits", func(c stream.Chunk) stream.Verdict {
		return stream.Emit("metrics", fmt.Appendf(nil, `{"tokens":%d}`, len(c.Text)))
	})
)

var saysFortyTwo = openaitest.Text("the answer ", "is ", "forty-two", ", they say")

// TestWhatWasShownIsWhatIsStored: what observers make of an answer is in the live
// stream, in its replay, in the history, in the next request of the provider and in
// the export, and what they took out is in none of them.
func TestWhatWasShownIsWhatIsStored(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		observers  []stream.Registration
		want, gone string
		who        string
	}{
		"amends":          {[]stream.Registration{amends}, "the answer is [n], they say", "forty-two", "OnEnd amends transform {text}"},
		"drops a piece":   {[]stream.Registration{drops}, "the answer forty-two, they say", "answer is", "OnEnd drops transform {text}"},
		"leaves nothing":  {[]stream.Registration{empties}, "", "answer", "OnEnd empties transform {text}"},
		"stops":           {[]stream.Registration{stops}, "the answer is ", "forty-two", "OnEnd stops continue {}, OnChunk stops stop {}"},
		"adds":            {[]stream.Registration{adds}, "the answer is forty-two, they say (checked)", "", "OnEnd adds transform {text}"},
		"all but the end": {[]stream.Registration{amends, drops, adds, emits}, "the answer [n], they say (checked)", "forty-two", "OnEnd amends transform {text}, OnEnd drops transform {text}, OnEnd adds transform {text}, OnEnd emits continue {}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			p := openaitest.New(t, saysFortyTwo, openaitest.Text("So it is."))
			s := newStack(t, db, providedBy(t, p, openai.Config{}))
			s.observe(t, hooks.Hooks{}, test.observers...)
			id := s.Session(t)
			live := s.listen(t, id, "", fromStart)
			if run := s.Advance(t, s.Start(t, id, "what is it?")); run.Status != loop.RunCompleted {
				t.Fatalf("the run is %s, %s", run.Status, run.Error)
			}
			log := stored(t, db, id)
			seen := live.facts(t, len(log))
			sameStory(t, "live", seen, log)
			sameStory(t, "replay", s.replay(t, id, 0), log)
			if got := textShown(t, seen); got != test.want {
				t.Errorf("live: %q, want %q", got, test.want)
			}
			history, err := collect(s.dial(t).Messages(t.Context(), &agentdv1.ListMessagesRequest{SessionId: id}))
			if err != nil {
				t.Fatal(err)
			}
			if got := assistantText(history); got != test.want {
				t.Errorf("history: %q, want %q", got, test.want)
			}
			if who := scalar[string](t, db, `SELECT string_agg(concat_ws(' ', gate, hook_id, action, fields_changed), ', ' ORDER BY ledger_seq) FROM agentd.decisions`); who != test.who {
				t.Errorf("the ledger says %q, want %q", who, test.who)
			}
			code, out, errs := exportedSession(t, db, id)
			if code != 0 {
				t.Fatal(errs)
			}
			sameStory(t, "export", exportedFacts(t, out), log)
			if got := exportedText(t, out); got != test.want {
				t.Errorf("export: %q, want %q", got, test.want)
			}
			s.Advance(t, s.Start(t, id, "and then?"))
			next := p.Requests()[1]
			said := ""
			for _, m := range next.Chat.Messages {
				if m.Role == "assistant" {
					said += m.Text()
				}
			}
			if said != test.want {
				t.Errorf("the next request has %q, want %q", said, test.want)
			}
			for where, text := range map[string]string{"log": factsText(log), "export": out, "next request": string(next.Body), "log of the process": s.logged.String()} {
				if test.gone != "" && strings.Contains(text, test.gone) {
					t.Errorf("%q is in the %s", test.gone, where)
				}
			}
		})
	}
}

// textShown is the text of the deltas.
func textShown(t *testing.T, facts []fact) (text string) {
	t.Helper()
	for _, d := range decoded[event.AssistantDelta](t, facts) {
		if d.Lane == stream.LaneText {
			text += d.Text
		}
	}
	return text
}

func assistantText(messages []*agentdv1.Message) (text string) {
	for _, m := range messages {
		if m.GetRole() != agentdv1.Role_ROLE_ASSISTANT {
			continue
		}
		for _, p := range m.GetParts() {
			text += p.GetText()
		}
	}
	return text
}

func factsText(facts []fact) string {
	var b bytes.Buffer
	for _, f := range facts {
		b.WriteString(f.Payload)
	}
	return b.String()
}
