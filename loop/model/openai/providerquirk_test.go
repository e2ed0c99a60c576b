package openai_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/loop/model/openai/openaitest"
)

// script is an answer with something of everything.
var script = openaitest.Script{
	Reasoning: "Two things.",
	Text:      []string{"Looking", " both up."},
	Calls: []openaitest.Call{
		{ID: "call_A", Name: "lookup_order", Arguments: `{"order_id":"A-17"}`}, {ID: "call_B", Name: "get_time", Arguments: `{"zone":"UTC"}`},
	},
}

// TestAScriptMeansTheSameWithEveryQuirk plays one answer as each kind of
// provider would send it, whole and byte by byte.
func TestAScriptMeansTheSameWithEveryQuirk(t *testing.T) {
	t.Parallel()
	const (
		said  = "reasoning/1: Two things.\ntext/2: Looking both up.\n"
		calls = "tool_arguments/3: call_A lookup_order {\"order_id\":\"A-17\"}\ntool_arguments/4: call_B get_time {\"zone\":\"UTC\"}\n"
		whole = said + calls + "finish: tool_calls (tool_calls) 11/7"
		begun = "reasoning/1: Two things.\ntext/2: Looking\n"
	)
	finished := func(reason string) string { return said + calls + "finish: " + reason + " 11/7" }
	odd := map[string]string{
		"badargs": said + "tool_arguments/3: call_A lookup_order {\"order_id\":\"A-17\ntool_arguments/4: call_B get_time {\"zone\":\"UTC\n" +
			"finish: tool_calls (tool_calls) 11/7",
		"fr_content_filter": finished("content_filter (content_filter)"),
		"fr_end_turn":       finished("tool_calls (end_turn)"),
		"fr_eos":            finished("tool_calls (eos)"),
		"fr_function_call":  finished("tool_calls (function_call)"),
		"fr_stop":           finished("tool_calls (stop)"),
		"nofinish":          finished("unknown ()"),
		"noid": said + "tool_arguments/3:  lookup_order {\"order_id\":\"A-17\"}\ntool_arguments/4:  get_time {\"zone\":\"UTC\"}\n" +
			"finish: tool_calls (tool_calls) 11/7",
		"midstream": said,
		"reset":     begun,
		"truncate":  begun,
		"html":      "",
		"rate":      "",
	}
	failures := map[string]loop.ModelError{
		"midstream": {Status: 200, Code: "server_error", Message: "scripted provider failure", Retryable: true},
		"html":      {Status: 502, Message: "the provider answered 502 Bad Gateway", Retryable: true},
		"rate": {
			Status: 429, Code: "requests/rate_limit_exceeded", Message: "too many requests, wait a moment", Retryable: true, RetryAfter: time.Second,
		},
	}
	for quirk := range odd {
		if !slices.Contains(openaitest.Quirks(), quirk) {
			t.Errorf("there is no quirk %q any more", quirk)
		}
	}
	for _, quirk := range openaitest.Quirks() {
		t.Run(quirk, func(t *testing.T) {
			t.Parallel()
			want, ok := odd[quirk]
			if !ok {
				want = whole
			}
			f := fakeProvider{openaitest.New(t, script.Answer(quirk), script.Answer(quirk).Bytewise())}
			m := f.model(t, openai.Config{})
			for range 2 {
				got, err := play(t.Context(), m, hello())
				if quirk == "reset" && strings.HasPrefix(want, got) {
					continue // the network may lose what was sent before
				}
				if got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				failure, fails := failures[quirk]
				var me *loop.ModelError
				switch {
				case !fails && err != nil:
					t.Errorf("got error %v", err)
				case fails && (!errors.As(err, &me) || *me != failure):
					t.Errorf("got error %+v, want %+v", err, failure)
				}
			}
		})
	}
}
