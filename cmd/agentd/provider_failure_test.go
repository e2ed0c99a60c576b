package main

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop/event"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// TestFailuresBeforeTheAnswerAreMetByTheirKind: another attempt for what may
// pass, none for what will not, and what the provider said is in the log.
func TestFailuresBeforeTheAnswerAreMetByTheirKind(t *testing.T) {
	t.Parallel()
	overloaded := openaitest.Answer{Body: []byte(`data: {"error":{"message":"busy","type":"overloaded_error"}}` + "\n\ndata: [DONE]\n\n")}
	failures := map[string]struct {
		answer openaitest.Answer
		again  bool
		status int
		code   string
		text   string
	}{
		"RateLimit":       {openaitest.RateLimited(""), true, 429, "requests/rate_limit_exceeded", "too many requests, wait a moment"},
		"Quota":           {openaitest.Error(429, "insufficient_quota", "insufficient_quota", "pay first"), false, 429, "insufficient_quota", "pay first"},
		"Busy":            {openaitest.Error(503, "server_error", "", "busy"), true, 503, "server_error", "busy"},
		"Page":            {openaitest.Page(502), true, 502, "", "502 Bad Gateway"},
		"BadRequest":      {openaitest.Error(400, "invalid_request_error", "", "no such field"), false, 400, "invalid_request_error", "no such field"},
		"WrongKey":        {openaitest.Error(401, "invalid_request_error", "invalid_api_key", "who are you?"), false, 401, "", "who are you?"},
		"QuotaInStream":   {openaitest.Fixture("error_first"), false, 200, "insufficient_quota", "quota used up"},
		"BusyInStream":    {overloaded, true, 200, "overloaded_error", "busy"},
		"OnlyKeepAlives":  {openaitest.Answer{Body: []byte(": ping\n\n: ping\n\n")}, true, 0, "", "ended in the middle"},
		"EmptyStream":     {openaitest.Answer{}, true, 0, "", "ended in the middle"},
		"NothingButDone":  {openaitest.Chunks(), true, 200, "empty_answer", "before it had begun"},
		"ResetAtOnce":     {openaitest.Answer{End: openaitest.EndReset}, true, 0, "", "ended in the middle"},
		"CutBehindAFrame": {openaitest.Answer{Body: openaitest.FixtureBytes("stall")[:180], End: openaitest.EndCut}, true, 0, "", "ended in the middle"},
	}
	p := openaitest.New(t)
	p.Respond(func(r openaitest.Request) openaitest.Answer {
		said := lastUser(r.Chat)
		if len(askedAbout(p, said)) > 1 {
			return openaitest.Text("Here again.")
		}
		return failures[said].answer
	})
	s, _ := newProvided(t, p, openai.Config{})
	s.retrying(2)
	for name, c := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := s.Start(t, s.Session(t), name)
			s.advance(t, j).wait(t)
			asked := askedAbout(p, name)
			if !c.again {
				s.wantTold(t, j, telling{run: "failed model_error", error: c.text, finish: "/ 0/0"})
				if len(asked) != 1 {
					t.Errorf("the provider was asked %d times", len(asked))
				}
				return
			}
			s.wantTold(t, j, telling{run: "completed stop", finish: "stop/stop 11/7", said: []string{"Here again."}})
			void := only[event.AssistantDiscarded](t, stored(t, s.db, j.SessionID))
			if void.Status != c.status || void.Code != c.code || !strings.Contains(void.Error, c.text) {
				t.Errorf("discarded %+v, want status %d, code %q, error %q", void, c.status, c.code, c.text)
			}
			wantSame(t, asked)
		})
	}
}

// wantSame holds that the provider was asked the same thing twice.
func wantSame(t *testing.T, list []openaitest.Request) {
	t.Helper()
	if len(list) != 2 || string(list[0].Body) != string(list[1].Body) {
		t.Errorf("the provider was asked %d times, or something else", len(list))
	}
}

func TestTheProviderSaysHowLongToWait(t *testing.T) {
	t.Parallel()
	p := openaitest.New(t, openaitest.RateLimited("1"), openaitest.Text("Here again."))
	s, _ := newProvided(t, p, openai.Config{})
	s.retrying(2)
	j := s.Start(t, s.Session(t), "hello")
	s.advance(t, j).wait(t)
	s.wantTold(t, j, telling{run: "completed stop", finish: "stop/stop 11/7", said: []string{"Here again."}})
	facts := stored(t, s.db, j.SessionID)
	void := only[event.AssistantDiscarded](t, facts)
	for _, f := range facts {
		if f.Type != event.TypeAssistantDiscarded {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, f.At)
		if err != nil || void.RetryAt == nil || void.RetryAt.Sub(at) < 900*time.Millisecond {
			t.Errorf("said at %s, asked again at %v (%v): want a second in between", f.At, void.RetryAt, err)
		}
	}
	wantSame(t, p.Requests())
}

// TestALineThatIsTooLongRunsNothing: there is a limit, and it is an error.
func TestALineThatIsTooLongRunsNothing(t *testing.T) {
	t.Parallel()
	long := openaitest.Calls(openaitest.Call{ID: "a", Name: "save_note", Arguments: "{}"})
	long.Body = []byte(strings.Replace(string(long.Body), `"arguments":"{}"`, `"arguments":"{\"body\":\"`+strings.Repeat("x", 5<<20)+`\"}"`, 1))
	p := openaitest.New(t, long)
	s, d := newProvided(t, p, openai.Config{})
	j := s.Start(t, s.Session(t), "hello")
	s.advance(t, j).wait(t)
	s.wantTold(t, j, telling{run: "failed model_error", error: "a line longer than", finish: "/ 0/0"})
	if d.uses(j.SessionID) != 0 {
		t.Error("a tool ran")
	}
}
