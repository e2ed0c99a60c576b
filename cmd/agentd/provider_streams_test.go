package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

const (
	ranBoth = `lookup_order{"order_id":"A-17"} done ran → order {"order_id":"A-17"}`
	ranTime = `get_time{"zone":"UTC"} done ran → noon {"zone":"UTC"}`
	wasCut  = "The arguments were cut off by the output limit, so nothing was run. Send the call again with shorter arguments."
	notAll  = "The arguments are not whole JSON, so nothing was run. Send the call again with complete arguments."
)

// recordedStreams are what users see of streams as providers send them. The
// model says "Done." once it has the results of tools.
var recordedStreams = map[string]telling{
	"keepalive":            {run: "completed stop", finish: "stop/stop 11/7", said: []string{"Hello world"}},
	"no_index_one_chunk":   {run: "completed stop", finish: "tool_calls/tool_calls 0/0", said: []string{"Done."}, calls: []string{ranBoth, ranTime}},
	"no_index_sequential":  {run: "completed stop", finish: "tool_calls/tool_calls 0/0", said: []string{"Done."}, calls: []string{ranBoth, ranTime}},
	"colliding_index":      {run: "completed stop", finish: "tool_calls/tool_calls 0/0", said: []string{"Done."}, calls: []string{ranBoth, ranTime}},
	"empty_arguments":      {run: "completed stop", finish: "tool_calls/tool_calls 0/0", said: []string{"Done."}, calls: []string{"get_time{} done ran → noon {}"}},
	"empty_choices":        {run: "completed stop", finish: "stop/stop 11/7", said: []string{"ok"}},
	"finish_and_done":      {run: "completed stop", finish: "stop/stop 0/0", said: []string{"The total is 42."}},
	"finish_no_done":       {run: "completed stop", finish: "stop/stop 0/0", said: []string{"The total is 42."}},
	"done_no_finish":       {run: "completed unknown", finish: "unknown/ 0/0", said: []string{"The total is 42."}},
	"eof_no_finish":        {run: "failed model_incomplete", error: "ended in the middle", finish: "/ 0/0", said: []string{cutOff + "The total is 4"}},
	"error_first":          {run: "failed model_error", error: "quota used up", finish: "/ 0/0", said: []string{}},
	"error_mid":            {run: "failed model_error", error: "upstream failure 7f", finish: "/ 0/0", said: []string{cutOff + "Part"}},
	"utf8":                 {run: "completed stop", finish: "stop/stop 0/0", said: []string{"Preis 3€ 東京 🧭 e\u0301"}},
	"complete_then_length": {run: "completed stop", finish: "length/length 0/0", said: []string{"Done."}, calls: []string{ranTime}},
	"length_cut":           {run: "completed stop", finish: "length/length 0/0", said: []string{"Done."}, calls: []string{`save_note{"path":"r.md","body":"first half done invalid_arguments → ` + wasCut}},
	"misreported_cut":      {run: "completed stop", finish: "tool_calls/tool_calls 0/0", said: []string{"Done."}, calls: []string{`save_note{"path":"r.md","body":"first half done invalid_arguments → ` + notAll}},
	"repairable_cut":       {run: "completed stop", finish: "length/length 0/0", said: []string{"Done."}, calls: []string{`run_steps{"steps":["build","test" done invalid_arguments → ` + wasCut}},
	"stall":                {run: "failed model_incomplete", error: "ended in the middle", finish: "/ 0/0", said: []string{cutOff + "thinking"}},
	"long_line": {run: "completed stop", finish: "tool_calls/tool_calls 0/0", said: []string{"Done."}, calls: []string{
		`save_note{"body":"` + strings.Repeat("x", 91) + ` done ran → saved 2101473 bytes`,
	}},
}

// playModes are ways of sending the same bytes.
var playModes = map[string]func(name string, a openaitest.Answer) openaitest.Answer{
	"whole":    func(_ string, a openaitest.Answer) openaitest.Answer { return a },
	"bytewise": func(_ string, a openaitest.Answer) openaitest.Answer { return a.Bytewise() },
	"closed":   func(_ string, a openaitest.Answer) openaitest.Answer { return a.Ending(openaitest.EndClose) },
	"cut":      func(_ string, a openaitest.Answer) openaitest.Answer { return a.Ending(openaitest.EndCut) },
	"reset":    func(_ string, a openaitest.Answer) openaitest.Answer { return a.Bytewise().Ending(openaitest.EndReset) },
	"split": func(_ string, a openaitest.Answer) openaitest.Answer {
		offsets, _ := openaitest.UTF8Cuts()
		return a.Cut(offsets...)
	},
}

// TestRecordedStreamsMeanTheSameHoweverTheyAreSent plays each stream to an
// agent, in every way: what is in the tables and in the stream of events does
// not depend on the network, and a stream that was not finished never counts
// as one.
func TestRecordedStreamsMeanTheSameHoweverTheyAreSent(t *testing.T) {
	t.Parallel()
	p := openaitest.New(t)
	p.Respond(func(r openaitest.Request) openaitest.Answer {
		last := r.Chat.Messages[len(r.Chat.Messages)-1]
		if last.Role == "tool" {
			return openaitest.Text("Done.")
		}
		name, mode, _ := strings.Cut(last.Text(), " ")
		return playModes[mode](name, openaitest.Fixture(name))
	})
	s, d := newProvided(t, p, openai.Config{})
	s.retrying(3)
	for name, want := range recordedStreams {
		for _, mode := range slices.Sorted(maps.Keys(playModes)) {
			// Two million writes take their time.
			long := name == "long_line" && mode != "whole" && (mode != "bytewise" || underRace)
			if long || mode == "split" && name != "utf8" {
				continue
			}
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				j := s.Start(t, s.Session(t), name+" "+mode)
				s.advance(t, j).wait(t)
				s.wantTold(t, j, want)
				ran := 0
				for _, c := range want.calls {
					ran += strings.Count(c, " ran →")
				}
				if n := d.uses(j.SessionID); n != ran {
					t.Errorf("tools ran %d times, want %d", n, ran)
				}
				wantPairs(t, p, name+" "+mode, want)
			})
		}
	}
	for _, name := range openaitest.Fixtures() {
		if _, ok := recordedStreams[name]; !ok {
			t.Errorf("nobody says what %s means", name)
		}
	}
}

// retrying lets the agent make failed calls again.
func (s *stack) retrying(attempts int) {
	a := s.Engine.Agents["demo"]
	a.Retry = loop.Retry{Attempts: attempts}
	s.Engine.Agents["demo"] = a
}

func (s *stack) wantTold(t *testing.T, j loop.Job, want telling) {
	t.Helper()
	got := s.lookAt(t, j)
	if got.run != want.run || !strings.Contains(got.error, want.error) || (got.error == "") != (want.error == "") || got.finish != want.finish ||
		!slices.Equal(got.said, want.said) || !slices.Equal(got.calls, want.calls) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

// wantPairs holds that the provider was asked once per answer, and the second
// time with the results of the calls of the first.
func wantPairs(t *testing.T, p *openaitest.Provider, said string, want telling) {
	t.Helper()
	asked := askedAbout(p, said)
	if n := 1 + min(len(want.calls), 1); len(asked) != n {
		t.Fatalf("the provider was asked %d times, want %d", len(asked), n)
	}
	got := pairs(asked[len(asked)-1].Chat)
	if len(got) != len(want.calls) {
		t.Fatalf("%d calls were sent back, want %d: %.300q", len(got), len(want.calls), got)
	}
	for i, pair := range got {
		_, result, _ := strings.Cut(pair, " → ")
		if _, want, _ := strings.Cut(want.calls[i], " → "); result != want {
			t.Errorf("result %q, want %q", result, want)
		}
	}
}
