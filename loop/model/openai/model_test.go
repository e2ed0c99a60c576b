package openai_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

func say(role hooks.Role, s string) hooks.Message {
	return hooks.Message{Role: role, Parts: []hooks.Part{{Type: hooks.PartText, Text: s}}}
}

func hello() loop.ModelRequest {
	return loop.ModelRequest{Model: "test-model-1", Messages: []hooks.Message{say(hooks.RoleUser, "hello")}}
}

// play makes a call and writes the answer down: one line per block, and one
// for the finish. The deltas of a block are joined, so that the transcript
// does not depend on how the network cut the stream.
func play(ctx context.Context, m *openai.Model, req loop.ModelRequest) (string, error) {
	return transcribe(m.Stream(ctx, req))
}

func transcribe(chunks iter.Seq2[stream.Chunk, error]) (string, error) {
	var order []string
	text := make(map[string]string)
	end := ""
	for c, err := range chunks {
		if err != nil {
			return transcript(order, text) + end, err
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
	return transcript(order, text) + end, nil
}

func transcript(order []string, text map[string]string) string {
	var b strings.Builder
	for _, block := range order {
		b.WriteString(block + text[block] + "\n")
	}
	return b.String()
}

func wantModelError(t *testing.T, err error) loop.ModelError {
	t.Helper()
	var me *loop.ModelError
	if !errors.As(err, &me) {
		t.Fatalf("got error %v, want a ModelError", err)
	}
	return *me
}

const twoCalls = "tool_arguments/1: call_A lookup_order {\"order_id\":\"A-17\"}\ntool_arguments/2: call_B get_time {\"zone\":\"UTC\"}\n"

// streams are whole bodies and what they mean, however they are cut.
var streams = []struct{ name, want string }{
	{"keepalive", "text/1: Hello world\nfinish: stop (stop) 11/7"},
	{"no_index_one_chunk", twoCalls + "finish: tool_calls (tool_calls) 0/0"},
	{"no_index_sequential", twoCalls + "finish: tool_calls (tool_calls) 0/0"},
	{"colliding_index", twoCalls + "finish: tool_calls (tool_calls) 0/0"},
	{"empty_arguments", "tool_arguments/1: call_A get_time \nfinish: tool_calls (tool_calls) 0/0"},
	{"empty_choices", "text/1: ok\nfinish: stop (stop) 11/7"},
	{"finish_and_done", "text/1: The total is 42.\nfinish: stop (stop) 0/0"},
	{"finish_no_done", "text/1: The total is 42.\nfinish: stop (stop) 0/0"},
	{"done_no_finish", "text/1: The total is 42.\nfinish: unknown () 0/0"},
	{"eof_no_finish", "text/1: The total is 4\n"},
	{"utf8", "text/1: Preis 3€ 東京 🧭 e\u0301\nfinish: stop (stop) 0/0"},
	{"complete_then_length", "tool_arguments/1: call_A get_time {\"zone\":\"UTC\"}\nfinish: length (length) 0/0"},
	{"length_cut", "tool_arguments/1: call_A save_note {\"path\":\"r.md\",\"body\":\"first half\nfinish: length (length) 0/0"},
	{"repairable_cut", "tool_arguments/1: call_A run_steps {\"steps\":[\"build\",\"test\"\nfinish: length (length) 0/0"},
	{"misreported_cut", "tool_arguments/1: call_A save_note {\"path\":\"r.md\",\"body\":\"first half\nfinish: tool_calls (tool_calls) 0/0"},
	{
		"parallel_calls",
		"reasoning/1: Two things.\ntext/2: Looking both up.\ntool_arguments/3: call_A lookup_order {\"order_id\":\"A-17\"}\n" +
			"tool_arguments/4: call_B get_time {\"zone\":\"UTC\"}\nfinish: tool_calls (tool_calls) 11/7",
	},
}

func TestAStreamMeansTheSameHoweverItIsCut(t *testing.T) {
	t.Parallel()
	for _, tt := range streams {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body := fixture(t, tt.name)
			for _, p := range []playback{
				{body: body}, {body: body, every: 1}, {body: body, every: 7, header: map[string]string{"Content-Type": "text/plain"}},
				{body: strings.ReplaceAll(body, "\n", "\r\n"), every: 1},
				{body: strings.ReplaceAll(body, "data: ", "data:")},
				{body: strings.TrimRight(body, "\n")},
			} {
				f := newFake(t, p)
				got, err := play(t.Context(), f.model(t, openai.Config{}), hello())
				if err != nil || got != tt.want {
					t.Errorf("every %d: got %q and error %v, want %q", p.every, got, err, tt.want)
				}
				if n := len(f.sent()); n != 1 {
					t.Errorf("the provider was called %d times", n)
				}
			}
		})
	}
}

func TestWhatCountsAsFinished(t *testing.T) {
	t.Parallel()
	const whole = "text/1: The total is 42.\nfinish: stop (stop) 0/0"
	tests := []struct{ name, fixture, end, want string }{
		{"EOFWithoutFinish", "eof_no_finish", "", "text/1: The total is 4\n"},
		{"CutWithoutFinish", "eof_no_finish", "cut", "text/1: The total is 4\n"},
		{"ResetWithoutFinish", "eof_no_finish", "reset", "text/1: The total is 4\n"},
		{"Finish", "finish_no_done", "", whole},
		{"FinishAndCut", "finish_no_done", "cut", whole},
		{"FinishAndReset", "finish_no_done", "reset", whole},
		{"Done", "finish_and_done", "", whole},
		{"DoneAndCut", "finish_and_done", "cut", whole},
		{"DoneAndReset", "finish_and_done", "reset", whole},
		{"DoneAndOpen", "finish_and_done", "stall", whole},
		{"DoneWithoutFinish", "done_no_finish", "", "text/1: The total is 42.\nfinish: unknown () 0/0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, playback{body: fixture(t, tt.fixture), end: tt.end})
			cfg := openai.Config{}
			if tt.end == "reset" { // not by the network, which may lose what came before
				body := io.MultiReader(strings.NewReader(fixture(t, tt.fixture)), iotest.ErrReader(syscall.ECONNRESET))
				cfg.HTTPClient = through(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body)}, nil
				})
			}
			got, err := play(t.Context(), f.model(t, cfg), hello())
			if err != nil || got != tt.want {
				t.Errorf("got %q and error %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestAStreamOfKeepAlivesIsNoAnswer(t *testing.T) {
	t.Parallel()
	f := newFake(t, playback{body: ": ping\n\nevent: ping\n\ndata:\n\n"})
	if got, err := play(t.Context(), f.model(t, openai.Config{}), hello()); err != nil || got != "" {
		t.Errorf("got %q and error %v, want nothing at all", got, err)
	}
}

func TestAFrameThatTheConnectionCutIsNoChunk(t *testing.T) {
	t.Parallel()
	body := fixture(t, "finish_no_done")
	at := strings.Index(body, `"2."`)
	f := newFake(t, playback{body: body[:at], end: "cut"})
	if got, err := play(t.Context(), f.model(t, openai.Config{}), hello()); err != nil || got != "text/1: The total is 4\n" {
		t.Errorf("got %q and error %v, want the text before the cut", got, err)
	}
}

// TestAConversationRunsThroughAStrictProvider asks, runs two tools and asks
// again, and reads what was sent.
func TestAConversationRunsThroughAStrictProvider(t *testing.T) {
	t.Parallel()
	f := newFake(t, playback{body: fixture(t, "parallel_calls"), every: 1}, playback{body: fixture(t, "finish_and_done")})
	m := f.model(t, openai.Config{APIKey: "sk-secret"})
	req := hello()
	req.System = "Be brief."
	req.Tools = []loop.ToolSpec{{Name: "get_time", Description: "Says <when>", Schema: []byte(`{"type":"object","maximum":18446744073709551615}`)}}
	if _, err := play(t.Context(), m, req); err != nil {
		t.Fatal(err)
	}
	call := func(id, providerID, name, arguments string) hooks.Part {
		return hooks.Part{Type: hooks.PartToolCall, ToolCall: &hooks.ToolCall{ID: id, ProviderID: providerID, Name: name, Arguments: arguments}}
	}
	result := func(id, content string) hooks.Message {
		return hooks.Message{Role: hooks.RoleTool, Parts: []hooks.Part{{Type: hooks.PartToolResult, ToolResult: &hooks.ToolResult{CallID: id, Content: content}}}}
	}
	req.Messages = append(req.Messages,
		hooks.Message{Role: hooks.RoleAssistant, Parts: []hooks.Part{
			{Type: hooks.PartReasoning, Text: "Two things."}, {Type: hooks.PartText, Text: "Looking both up."},
			call("u1", "call_A", "lookup_order", `{"order_id":9007199254740993}`), call("u2", "call_B", "get_time", " "),
		}},
		result("u1", "shipped"), result("u2", " \n"))
	got, err := play(t.Context(), m, req)
	if err != nil || !strings.Contains(got, "The total is 42.") {
		t.Fatalf("got %q and error %v", got, err)
	}
	const want = `{"model":"test-model-1","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hello"},` +
		`{"role":"assistant","content":"Looking both up.","tool_calls":[` +
		`{"id":"call_A","type":"function","function":{"name":"lookup_order","arguments":"{\"order_id\":9007199254740993}"}},` +
		`{"id":"call_B","type":"function","function":{"name":"get_time","arguments":"{}"}}]},` +
		`{"role":"tool","content":"shipped","tool_call_id":"call_A"},{"role":"tool","content":"(no output)","tool_call_id":"call_B"}],` +
		`"tools":[{"type":"function","function":{"name":"get_time","description":"Says <when>","parameters":{"type":"object","maximum":18446744073709551615}}}],` +
		`"stream":true,"stream_options":{"include_usage":true}}`
	sent := f.sent()
	if len(sent) != 2 || sent[1].body != want {
		t.Errorf("sent %s\nwant %s", sent[len(sent)-1].body, want)
	}
	if sent[1].auth != "Bearer sk-secret" {
		t.Errorf("authorization was %q", sent[1].auth)
	}
}
