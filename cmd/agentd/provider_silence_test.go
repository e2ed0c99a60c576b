package main

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// soon is a limit that a silent provider exceeds, never one that does not.
const soon, never = 2 * time.Second, time.Hour

// silences are the places at which a provider falls silent for good, and what
// it had shown by then.
var silences = map[string]struct {
	answer openaitest.Answer
	hold   int
	shown  []string
	// limit is what ends the call, and why is what it says.
	limit openai.Config
	why   string
}{
	"before the headers": {
		openaitest.Text("Hi."), openaitest.BeforeHeaders, nil,
		openai.Config{FirstByteTimeout: soon, IdleTimeout: never}, "sent nothing for 2s",
	},
	"behind the headers": {
		openaitest.Text("Hi."), 0, nil,
		openai.Config{FirstByteTimeout: soon, IdleTimeout: never}, "sent nothing for 2s",
	},
	"behind a piece of text": {
		openaitest.Fixture("stall"), openaitest.AtEnd, []string{cutOff + "thinking"},
		openai.Config{FirstByteTimeout: never, IdleTimeout: soon}, "went silent for 2s",
	},
	"behind a piece of a call": {
		openaitest.Answer{Body: openaitest.FixtureBytes("no_index_sequential")[:900]}, openaitest.AtEnd, nil,
		openai.Config{FirstByteTimeout: never, IdleTimeout: soon}, "went silent for 2s",
	},
	"but for keep-alives": {
		openaitest.Answer{Body: []byte(strings.Repeat(": ping\n\n", 100_000)), Every: 8, Pause: 5 * time.Millisecond}, openaitest.AtEnd, nil,
		openai.Config{FirstByteTimeout: never, IdleTimeout: never, DataTimeout: soon}, "for 2s",
	},
}

func TestASilentProviderEndsTheCallAndNotTheSession(t *testing.T) {
	t.Parallel()
	for name, c := range silences {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openaitest.New(t, c.answer.Hold(c.hold, openaitest.NewHold()), openaitest.Text("Here again."))
			s, _ := newProvided(t, p, c.limit)
			id := s.Session(t)
			j := s.Start(t, id, "hello")
			s.advance(t, j).wait(t)
			got := s.lookAt(t, j)
			if got.run != "failed model_error" || !strings.Contains(got.error, c.why) || strings.Join(got.said, "|") != strings.Join(c.shown, "|") {
				t.Errorf("got %+v, want it failed because it %s", got, c.why)
			}
			<-p.Await(t, 1).Ended()
			j = s.Start(t, id, "hello?")
			s.advance(t, j).wait(t)
			s.wantTold(t, j, telling{run: "completed stop", finish: "stop/stop 11/7", said: []string{"Here again."}})
		})
	}
}

// TestASilentProviderIsAskedAgain: silence is worth another attempt, unless
// people have seen a part of the answer.
func TestASilentProviderIsAskedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range silences {
		if c.shown != nil || name == "behind a piece of a call" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openaitest.New(t, c.answer.Hold(c.hold, openaitest.NewHold()), openaitest.Text("Here again."))
			s, _ := newProvided(t, p, c.limit)
			s.retrying(2)
			j := s.Start(t, s.Session(t), "hello")
			s.advance(t, j).wait(t)
			s.wantTold(t, j, telling{run: "completed stop", finish: "stop/stop 11/7", said: []string{"Here again."}})
			if void := only[event.AssistantDiscarded](t, stored(t, s.db, j.SessionID)); !strings.HasSuffix(void.Code, "_timeout") || !strings.Contains(void.Error, c.why) {
				t.Errorf("discarded %+v", void)
			}
		})
	}
}

// TestARunIsCancelledWhileItsProviderIsSilent: no limit helps here, and the
// connection is given up all the same.
func TestARunIsCancelledWhileItsProviderIsSilent(t *testing.T) {
	t.Parallel()
	p := openaitest.New(t)
	asked := map[string]chan openaitest.Request{}
	for name := range silences {
		asked[name] = make(chan openaitest.Request, 1)
	}
	p.Respond(func(r openaitest.Request) openaitest.Answer {
		name := lastUser(r.Chat)
		c, ok := silences[name]
		if !ok {
			return openaitest.Text("Here again.")
		}
		asked[name] <- r
		return c.answer.Hold(c.hold, openaitest.NewHold())
	})
	s, _ := newProvided(t, p, openai.Config{FirstByteTimeout: -1, IdleTimeout: -1})
	for name, c := range silences {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := s.Session(t)
			j := s.Start(t, id, name)
			run := s.advance(t, j)
			asked := <-asked[name]
			s.awaitShown(t, j, strings.TrimPrefix(strings.Join(c.shown, ""), cutOff))
			if _, err := s.runs.CancelRun(t.Context(), connect.NewRequest(&agentdv1.CancelRunRequest{RunId: j.RunID})); err != nil {
				t.Fatal(err)
			}
			run.wait(t)
			<-asked.Ended()
			if got := s.lookAt(t, j); !strings.HasPrefix(got.run, "cancelled ") || strings.Join(got.said, "|") != strings.Join(c.shown, "|") || len(got.calls) > 0 {
				t.Errorf("got %+v, want it cancelled, with %q", got, c.shown)
			}
			j = s.Start(t, id, "hello?")
			s.advance(t, j).wait(t)
			s.wantTold(t, j, telling{run: "completed stop", finish: "stop/stop 11/7", said: []string{"Here again."}})
		})
	}
}

// awaitShown returns when the stream of events has shown this text of a run.
func (s *stack) awaitShown(t *testing.T, j loop.Job, text string) {
	t.Helper()
	r := s.listen(t, j.SessionID, "", fromStart)
	for got := ""; got != text; {
		for _, d := range decoded[event.AssistantDelta](t, r.facts(t, 1)) {
			got += d.Text
		}
	}
}
