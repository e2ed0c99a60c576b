package main

import (
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// quirkyTexts are what users see of a text where it is not the straight one.
var quirkyTexts = map[string]telling{
	"fr_content_filter": {run: "completed content_filter", finish: "content_filter/content_filter 11/7", said: []string{"Hello ü🚀"}},
	"fr_end_turn":       {run: "completed stop", finish: "stop/end_turn 11/7", said: []string{"Hello ü🚀"}},
	"fr_eos":            {run: "completed stop", finish: "stop/eos 11/7", said: []string{"Hello ü🚀"}},
	"fr_function_call":  {run: "completed tool_calls", finish: "tool_calls/function_call 11/7", said: []string{"Hello ü🚀"}},
	"badargs+nofinish":  {run: "completed unknown", finish: "unknown/ 11/7", said: []string{"Hello ü🚀"}},
	"html":              {run: "failed model_error", error: "502 Bad Gateway", finish: "/ 0/0"},
	"midstream":         {run: "failed model_error", error: "scripted provider failure", finish: "/ 0/0", said: []string{cutOff + "Hello ü🚀"}},
	"nofinish":          {run: "completed unknown", finish: "unknown/ 11/7", said: []string{"Hello ü🚀"}},
	"rate":              {run: "failed model_error", error: "too many requests", finish: "/ 0/0"},
	"reset":             {run: "failed model_incomplete", error: "ended in the middle", finish: "/ 0/0", said: []string{cutOff + "Hel"}},
	"truncate":          {run: "failed model_incomplete", error: "ended in the middle", finish: "/ 0/0", said: []string{cutOff + "Hel"}},
}

// quirkyCalls are the same for two calls. A proxy's page and a reset are the
// same for both.
var quirkyCalls = map[string]telling{
	"badargs": {run: "completed stop", finish: "tool_calls/tool_calls 11/7", said: []string{"Done."}, calls: []string{
		`lookup_order{"order_id":"A-17 done invalid_arguments → ` + notAll, `get_time{"zone":"UTC done invalid_arguments → ` + notAll,
	}},
	"badargs+nofinish": {run: "completed stop", finish: "unknown/ 11/7", said: []string{"Done."}, calls: []string{
		`lookup_order{"order_id":"A-17 done invalid_arguments → ` + notAll, `get_time{"zone":"UTC done invalid_arguments → ` + notAll,
	}},
	"fr_content_filter": {run: "completed stop", finish: "content_filter/content_filter 11/7", said: []string{"Done."}, calls: []string{ranBoth, ranTime}},
	"fr_end_turn":       {run: "completed stop", finish: "tool_calls/end_turn 11/7", said: []string{"Done."}, calls: []string{ranBoth, ranTime}},
	"fr_eos":            {run: "completed stop", finish: "tool_calls/eos 11/7", said: []string{"Done."}, calls: []string{ranBoth, ranTime}},
	"fr_function_call":  {run: "completed stop", finish: "tool_calls/function_call 11/7", said: []string{"Done."}, calls: []string{ranBoth, ranTime}},
	"fr_stop":           {run: "completed stop", finish: "tool_calls/stop 11/7", said: []string{"Done."}, calls: []string{ranBoth, ranTime}},
	"html":              quirkyTexts["html"],
	"midstream":         {run: "failed model_error", error: "scripted provider failure", finish: "/ 0/0"},
	"nofinish":          {run: "completed stop", finish: "unknown/ 11/7", said: []string{"Done."}, calls: []string{ranBoth, ranTime}},
	"rate":              quirkyTexts["rate"],
	"reset":             {run: "completed stop", finish: "tool_calls/tool_calls 11/7", said: []string{"Done."}, calls: []string{ranBoth, ranTime}},
}

// TestProvidersWithQuirksAreUnderstood plays a text and two calls with each
// quirk.
func TestProvidersWithQuirksAreUnderstood(t *testing.T) {
	t.Parallel()
	text := openaitest.Script{Reasoning: "hm", Text: []string{"Hel", "lo ü🚀"}}
	calls := openaitest.Script{Calls: []openaitest.Call{
		{ID: "call_A", Name: "lookup_order", Arguments: `{"order_id":"A-17"}`}, {ID: "call_B", Name: "get_time", Arguments: `{"zone":"UTC"}`},
	}}
	straight := map[string]telling{
		"text":  {run: "completed stop", finish: "stop/stop 11/7", said: []string{"Hello ü🚀"}},
		"calls": {run: "completed stop", finish: "tool_calls/tool_calls 11/7", said: []string{"Done."}, calls: []string{ranBoth, ranTime}},
	}
	bent := map[string]map[string]telling{"text": quirkyTexts, "calls": quirkyCalls}
	scripts := map[string]openaitest.Script{"text": text, "calls": calls}
	p := openaitest.New(t)
	p.Respond(func(r openaitest.Request) openaitest.Answer {
		last := r.Chat.Messages[len(r.Chat.Messages)-1]
		if last.Role == "tool" {
			return openaitest.Text("Done.")
		}
		kind, quirk, _ := strings.Cut(last.Text(), " ")
		return scripts[kind].Answer(strings.Split(quirk, "+")...)
	})
	s, d := newProvided(t, p, openai.Config{})
	for kind := range scripts {
		for _, quirk := range append(openaitest.Quirks(), "badargs+nofinish", "noid+noindex", "noid+dupindex", "objargs+noid+noindex", "repeatname+noid", "comment+crlf+nospace") {
			want, ok := bent[kind][quirk]
			if !ok {
				want = straight[kind]
			}
			t.Run(kind+"/"+quirk, func(t *testing.T) {
				t.Parallel()
				said := kind + " " + quirk
				j := s.Start(t, s.Session(t), said)
				s.advance(t, j).wait(t)
				s.wantTold(t, j, want)
				if n := strings.Count(strings.Join(want.calls, "|"), " ran →"); d.uses(j.SessionID) != n {
					t.Errorf("tools ran %d times, want %d", d.uses(j.SessionID), n)
				}
				if t.Failed() {
					t.Logf("%s: %s", quirk, openaitest.Meaning(quirk))
				}
				wantPairs(t, p, said, want)
			})
		}
	}
}
