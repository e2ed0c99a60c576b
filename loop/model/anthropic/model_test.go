package anthropic_test

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/anthropic"
	"github.com/seed-2ca4966b/agentd/loop/model/anthropic/anthropictest"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

func say(role hooks.Role, s string) hooks.Message {
	return hooks.Message{Role: role, Parts: []hooks.Part{{Type: hooks.PartText, Text: s}}}
}

func hello() loop.ModelRequest {
	return loop.ModelRequest{Model: "test-model-1", Messages: []hooks.Message{say(hooks.RoleUser, "hello")}}
}

func fixture(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func newModel(t *testing.T, cfg anthropic.Config) *anthropic.Model {
	t.Helper()
	m, err := anthropic.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// asked makes a call that gets one answer, and writes it down.
func asked(t *testing.T, a anthropictest.Answer) (string, error) {
	t.Helper()
	p := anthropictest.New(t, a)
	return transcribe(newModel(t, anthropic.Config{BaseURL: p.URL}).Stream(t.Context(), hello()))
}

// transcribe writes an answer down: one line per block, and one for the finish.
// The deltas of a block are joined, so that the transcript does not depend on
// how the network cut the stream.
func transcribe(chunks iter.Seq2[stream.Chunk, error]) (string, error) {
	var order []string
	text := make(map[string]string)
	end := ""
	written := func() string {
		var b strings.Builder
		for _, block := range order {
			b.WriteString(block + text[block] + "\n")
		}
		return b.String() + end
	}
	for c, err := range chunks {
		if err != nil {
			return written(), err
		}
		if end != "" {
			return "", fmt.Errorf("chunk %+v follows the finish", c)
		}
		block := fmt.Sprintf("%s/%s: ", c.Lane, c.BlockID)
		switch c.Kind {
		case stream.KindToolCall:
			block = fmt.Sprintf("tool_arguments/%s: ", c.BlockID)
			order = append(order, block)
			text[block] = fmt.Sprintf("%s %s ", c.Call.ProviderID, c.Call.Name)
		case stream.KindDelta:
			if text[block] == "" {
				order = append(order, block)
			}
			text[block] += c.Text
		case stream.KindFinish:
			u := c.Finish.Usage
			end = fmt.Sprintf("finish: %s (%s) %d/%d", c.Finish.Reason, c.Finish.Raw, u.InputTokens, u.OutputTokens)
		case stream.KindEnd:
			return "", fmt.Errorf("chunk %+v is no adapter's", c)
		}
	}
	return written(), nil
}

func wantModelError(t *testing.T, err error) loop.ModelError {
	t.Helper()
	var me *loop.ModelError
	if !errors.As(err, &me) {
		t.Fatalf("got error %v, want a ModelError", err)
	}
	return *me
}

// event is one of a stream, with its kind in the data only.
func event(data string) string { return "data: " + data + "\n\n" }

func opening(index int, block string) string {
	return event(fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, index, block))
}

func delta(index int, delta string) string {
	return event(fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, index, delta))
}

func closing(index int) string {
	return event(fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, index))
}

func ending(reason string) string {
	return event(`{"type":"message_delta","delta":{"stop_reason":"`+reason+`"},"usage":{"output_tokens":7}}`) + event(`{"type":"message_stop"}`)
}

const begun = `data: {"type":"message_start","message":{"usage":{"input_tokens":11,"output_tokens":1,"cache_read_input_tokens":4}}}` + "\n\n"

// streams are bodies and what they mean, however they are cut.
func streams(t *testing.T) map[string]struct{ body, want string } {
	call := opening(0, `{"type":"tool_use","id":"toolu_A","name":"get_time","input":{}}`)
	return map[string]struct{ body, want string }{
		"KeepAlive":      {fixture(t, "keepalive.sse"), "text/1: Hello\nfinish: stop (end_turn) 11/7"},
		"EmptyArguments": {fixture(t, "empty_arguments.sse"), "tool_arguments/1: toolu_A get_time {}\nfinish: tool_calls (tool_use) 11/7"},
		"NoStop":         {fixture(t, "no_stop.sse"), "text/1: The total is 4\n"},
		"StopReasonOnly": {begun + strings.TrimSuffix(ending("end_turn"), event(`{"type":"message_stop"}`)), ""},
		"NoDeltas":       {begun + call + closing(0) + ending("tool_use"), "tool_arguments/1: toolu_A get_time {}\nfinish: tool_calls (tool_use) 15/7"},
		"CutBeforeAnyArgument": {
			begun + call + closing(0) + ending("max_tokens"), "tool_arguments/1: toolu_A get_time {\nfinish: length (max_tokens) 15/7",
		},
		"CutArguments": {
			begun + call + delta(0, `{"type":"input_json_delta","partial_json":"{\"zone\":\"U"}`) + closing(0) + ending("max_tokens"),
			"tool_arguments/1: toolu_A get_time {\"zone\":\"U\nfinish: length (max_tokens) 15/7",
		},
		"WholeArguments": {
			begun + opening(0, `{"type":"tool_use","id":"toolu_A","name":"get_time","input":{"n":9007199254740993}}`) + ending("end_turn"),
			"tool_arguments/1: toolu_A get_time {\"n\":9007199254740993}\nfinish: tool_calls (end_turn) 15/7",
		},
		"AllKinds": {
			begun + opening(0, `{"type":"thinking","thinking":"Two","signature":""}`) + delta(0, `{"type":"thinking_delta","thinking":" things."}`) +
				delta(0, `{"type":"signature_delta","signature":"c2ln"}`) + closing(0) +
				opening(1, `{"type":"redacted_thinking","data":"x"}`) + closing(1) +
				opening(2, `{"type":"text","text":"Prei"}`) + event(`{"type":"ping"}`) + delta(2, `{"type":"text_delta","text":"s 3€ \ud83e"}`) +
				delta(2, `{"type":"text_delta","text":"\udded"}`) + delta(2, `{"type":"citations_delta","citation":{}}`) + closing(2) +
				opening(3, `{"type":"tool_use","id":"toolu_A","name":"get_time","input":{}}`) +
				opening(4, `{"type":"tool_use","id":"toolu_B","name":"look","input":{}}`) +
				delta(4, `{"type":"input_json_delta","partial_json":"{\"b\""}`) + delta(3, `{"type":"input_json_delta","partial_json":"{\"a\":1}"}`) +
				delta(4, `{"type":"input_json_delta","partial_json":":2}"}`) + closing(3) + closing(4) + event(`{"type":"news"}`) + ending("tool_use"),
			"reasoning/1: Two things.\ntext/3: Preis 3€ 🧭\ntool_arguments/4: toolu_A get_time {\"a\":1}\ntool_arguments/5: toolu_B look {\"b\":2}\nfinish: tool_calls (tool_use) 15/7",
		},
		"NoOpening":    {begun + delta(0, `{"type":"text_delta","text":"Hi"}`) + closing(0) + closing(7) + ending("end_turn"), "text/1: Hi\nfinish: stop (end_turn) 15/7"},
		"SameIndex":    {begun + opening(0, `{"type":"text","text":"a\ud83e"}`) + opening(0, `{"type":"text","text":"b"}`) + ending("end_turn"), "text/1: a\xED\xA0\xBE\ntext/2: b\nfinish: stop (end_turn) 15/7"},
		"NeverClosed":  {begun + opening(0, `{"type":"text","text":"a\ud83e"}`) + ending("end_turn"), "text/1: a\xED\xA0\xBE\nfinish: stop (end_turn) 15/7"},
		"StopSequence": {begun + ending("stop_sequence"), "finish: stop (stop_sequence) 15/7"},
		"Refusal":      {begun + ending("refusal"), "finish: content_filter (refusal) 15/7"},
		"PauseTurn":    {begun + ending("pause_turn"), "finish: unknown (pause_turn) 15/7"},
		"Window":       {begun + ending("model_context_window_exceeded"), "finish: length (model_context_window_exceeded) 15/7"},
		"NoReason":     {opening(0, `{"type":"text","text":"a"}`) + event(`{"type":"message_start"}`) + "data: [DONE]\n\n" + event(`{"type":"message_stop"}`), "text/1: a\nfinish: unknown () 0/0"},
		"NullError":    {event(`{"error":null}`) + opening(0, `{"type":"text","text":"a"}`) + ending("end_turn"), "text/1: a\nfinish: stop (end_turn) 0/7"},
		"CutInAFrame":  {begun + delta(0, `{"type":"text_delta","text":"Hi"}`) + `data: {"type":"content_block_del`, "text/1: Hi\n"},
		"OnlyPings":    {": ping\n\nevent: ping\n\n" + event(`{"type":"ping"}`), ""},
		"LongLine": {
			begun + opening(0, `{"type":"text","text":""}`) + delta(0, `{"type":"text_delta","text":"`+strings.Repeat("x", 300<<10)+`"}`) + ending("end_turn"),
			"text/1: " + strings.Repeat("x", 300<<10) + "\nfinish: stop (end_turn) 15/7",
		},
	}
}

func TestAStreamMeansTheSameHoweverItIsCut(t *testing.T) {
	t.Parallel()
	for name, tt := range streams(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := []anthropictest.Answer{
				{Body: tt.body}, {Body: tt.body, Every: 7, Header: http.Header{"Content-Type": {"text/plain"}}},
				{Body: strings.ReplaceAll(tt.body, "\n", "\r\n")}, {Body: strings.ReplaceAll(tt.body, "data: ", "data:")},
				{Body: tt.body, End: anthropictest.EndCut},
			}
			if len(tt.body) < 10<<10 {
				answers = append(answers, anthropictest.Answer{Body: tt.body, Every: 1}, anthropictest.Answer{Body: tt.body, Every: 1, End: anthropictest.EndCut})
			}
			for _, a := range answers {
				got, err := asked(t, a)
				if err != nil || got != tt.want {
					t.Errorf("every %d, end %d: got %.500q and error %v, want %.500q", a.Every, a.End, got, err, tt.want)
				}
			}
		})
	}
}

func TestAWholeAnswerNeedsNoEndOfTheConnection(t *testing.T) {
	t.Parallel()
	got, err := asked(t, anthropictest.Answer{Body: fixture(t, "keepalive.sse"), End: anthropictest.EndStall})
	if err != nil || got != "text/1: Hello\nfinish: stop (end_turn) 11/7" {
		t.Errorf("got %q and error %v", got, err)
	}
}

func TestAResetBeforeMessageStopIsNoFinish(t *testing.T) {
	t.Parallel()
	got, err := asked(t, anthropictest.Answer{Body: fixture(t, "no_stop.sse"), End: anthropictest.EndReset})
	var me *loop.ModelError
	if err != nil && !errors.As(err, &me) || strings.Contains(got, "finish") {
		t.Errorf("got %q and error %v", got, err)
	}
}

func TestSilenceEndsTheCall(t *testing.T) {
	t.Parallel()
	const short = 50 * time.Millisecond
	ping := event(`{"type":"ping"}`)
	for code, tt := range map[string]struct {
		body string
		cfg  anthropic.Config
		text string
	}{
		"first_byte_timeout": {"", anthropic.Config{FirstByteTimeout: short}, ""},
		"idle_timeout":       {fixture(t, "no_stop.sse"), anthropic.Config{IdleTimeout: short}, "text/1: The total is 4\n"},
		"data_timeout":       {ping, anthropic.Config{DataTimeout: short}, ""},
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			p := anthropictest.New(t, anthropictest.Answer{Body: tt.body, End: anthropictest.EndStall})
			tt.cfg.BaseURL = p.URL
			got, err := transcribe(newModel(t, tt.cfg).Stream(t.Context(), hello()))
			if me := wantModelError(t, err); me.Code != code || !me.Retryable || got != tt.text {
				t.Errorf("got %+v after %q", me, got)
			}
		})
	}
}
